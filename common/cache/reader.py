# SPDX-License-Identifier: Apache-2.0
"""Fills the state: one reflector per kind that Evenkeel reads.

`CACHED_KINDS` is what every program watches; the role in `deploy/base/reader.yaml` grants exactly
that. After the first sync the garbage collector is told to leave the cache alone:
otherwise a full collection stops the process for a tenth of a second at 150,000 pods.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final

import structlog

from common.api.contract import INSTALL_CRD, PAUSE
from common.api.migrations import Migration
from common.api.objects import (
    ConfigMap,
    DaemonSet,
    Deployment,
    HorizontalPodAutoscaler,
    Job,
    Lease,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    VerticalPodAutoscaler,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from common.cache.state import ClusterState
from common.clock import Clock
from common.config import Reading
from common.kube import resources
from common.kube.api import KubeApi
from common.kube.reflector import ListWatch, Reflector, Sink
from common.kube.resources import Resource
from common.metrics import Metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CachedKind(ListWatch[Object]):
    """A kind that is read, and the table that it fills."""

    _: KW_ONLY
    table: Callable[[ClusterState], Sink[Any]]  # Any: each table takes its own wire struct
    optional: bool = False
    """Whether work can begin without it."""


CACHED_KINDS: Final[tuple[CachedKind, ...]] = (
    CachedKind(resources.NODES, Node, table=lambda s: s.nodes),
    # The scheduler leaves finished pods out too: they hold nothing (pkg/scheduler/scheduler.go).
    CachedKind(
        resources.PODS,
        Pod,
        table=lambda s: s.pods,
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
    ),
    CachedKind(resources.NAMESPACES, Namespace, table=lambda s: s.namespaces),
    CachedKind(resources.REPLICASETS, ReplicaSet, table=lambda s: s.replica_sets),
    CachedKind(resources.DEPLOYMENTS, Deployment, table=lambda s: s.deployments),
    CachedKind(resources.STATEFULSETS, StatefulSet, table=lambda s: s.stateful_sets),
    CachedKind(resources.DAEMONSETS, DaemonSet, table=lambda s: s.daemon_sets),
    CachedKind(resources.JOBS, Job, table=lambda s: s.jobs),
    CachedKind(
        resources.REPLICATIONCONTROLLERS,
        ReplicationController,
        table=lambda s: s.replication_controllers,
    ),
    CachedKind(resources.PDBS, PodDisruptionBudget, table=lambda s: s.budgets),
    # Optional: without them a workload is only refused a surge too late, not wrongly moved.
    CachedKind(
        resources.AUTOSCALERS,
        HorizontalPodAutoscaler,
        table=lambda s: s.autoscalers,
        optional=True,
    ),
    CachedKind(resources.PVCS, PersistentVolumeClaim, table=lambda s: s.claims),
    CachedKind(resources.PVS, PersistentVolume, table=lambda s: s.volumes),
    CachedKind(resources.STORAGECLASSES, StorageClass, table=lambda s: s.storage_classes),
    CachedKind(resources.CSINODES, CSINode, table=lambda s: s.csi_nodes),
    CachedKind(resources.PRIORITYCLASSES, PriorityClass, table=lambda s: s.priority_classes),
)

VPA_KIND: Final = CachedKind(
    resources.VPAS,
    VerticalPodAutoscaler,
    table=lambda s: s.vpas,
    optional=True,
    dispensable=True,
)
"""Separate, because most clusters do not have this kind."""

POD_GROUP_KIND: Final = CachedKind(
    resources.POD_GROUPS,
    PodGroup,
    table=lambda s: s.pod_groups,
    optional=True,
    dispensable=True,
)
"""Separate, because most clusters do not serve this kind; pods of a group that is not known are
never moved."""

MIGRATION_KIND: Final = CachedKind(
    resources.MIGRATIONS,
    Migration,
    table=lambda s: s.migrations,
    optional=True,
    install=INSTALL_CRD,
)
"""Separate, because a cluster without Evenkeel does not have this kind."""


def lease_kind(namespace: str) -> CachedKind:
    """Return how the Leases of one namespace are read.

    In other namespaces every node renews one each ten seconds, and any client may write some.
    """
    return CachedKind(resources.LEASES, Lease, table=lambda s: s.leases, namespace=namespace)


def pause_kind(namespace: str) -> CachedKind:
    """Return how the ConfigMap is read that stops all moves; no other one is."""
    return CachedKind(
        resources.CONFIGMAPS,
        ConfigMap,
        table=lambda s: s.pauses,
        namespace=namespace,
        field_selector=f"metadata.name={PAUSE}",
    )


class ClusterReader:
    """Keeps a state in step with an API server, and knows how well it does."""

    def __init__(
        self,
        client: KubeApi,
        *,
        reading: Reading,
        clock: Clock,
        metrics: Metrics,
        kinds: Sequence[CachedKind] = CACHED_KINDS,
    ) -> None:
        self._odd = metrics.counter(
            "objects_odd_total",
            "Objects that are kept although they are invalid.",
            ("kind", "cause"),
        )
        self.state: Final = ClusterState(self._tell_odd)
        self._needed = frozenset(kind.resource for kind in kinds if not kind.optional)
        self._installs = {kind.resource: kind.install for kind in kinds if kind.install}
        self.reflectors: Final = tuple(
            Reflector(
                client,
                kind,
                kind.table(self.state),
                reading=reading,
                clock=clock,
                metrics=metrics,
                rng=random.Random(),
            )
            for kind in kinds
        )
        missing = metrics.gauge(
            "crd_missing", "1 while the CRD of this kind is not installed.", ("kind",)
        )
        for reflector in self.reflectors:
            if reflector.resource in self._installs:
                absent = partial(_is_absent, reflector)
                missing.labels(reflector.resource.kind).set_function(absent)

    async def run(self) -> None:
        """Read for ever."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())
            await self.wait_synced()
            gc.collect()
            gc.freeze()

    def reflector_of(self, resource: Resource) -> Reflector[Any]:
        """Return the reflector of a kind that is read; raise LookupError for any other."""
        for reflector in self.reflectors:
            if reflector.resource == resource:
                return reflector
        raise LookupError(f"{resource.plural} are not read here")

    async def wait_synced(self) -> None:
        """Return when every kind that is needed has been listed once."""
        for reflector in self.reflectors:
            if reflector.resource in self._needed:
                await reflector.wait_synced()

    def last_unreachable_s(self) -> float:
        """Return until when no kind could be read, on the monotonic clock; -inf if never so.

        Optional kinds do not count: one that is not installed is asked for only rarely.
        """
        needed = (r for r in self.reflectors if r.resource in self._needed)
        return min((r.last_unreachable_s for r in needed), default=float("-inf"))

    def why_not_synced(self) -> str | None:
        """Name the kinds that are missing or stale; None when all is well.

        A kind that work does not need may be missing altogether.
        """
        behind = [r for r in self.reflectors if not r.synced and not self._is_spared(r)]
        if not behind:
            return None
        why = "; ".join(sorted({words for r in behind if (words := self._trouble_of(r))}))
        names = ", ".join(r.resource.plural for r in behind)
        return f"waiting for {names}" + (f" ({why})" if why else "")

    def why_not_steered(self) -> str | None:
        """Say which CRD is missing and how to install it, where work goes on without it."""
        missing = (r for r in self.reflectors if r.absent and self._is_spared(r))
        found = [self._trouble_of(r) for r in missing if r.resource in self._installs]
        return "; ".join(found) or None

    def _is_spared(self, reflector: Reflector[Any]) -> bool:
        return reflector.absent and reflector.resource not in self._needed

    def _trouble_of(self, reflector: Reflector[Any]) -> str:
        install = self._installs.get(reflector.resource, "") if reflector.absent else ""
        return f"{reflector.trouble}: run {install}" if install else reflector.trouble

    def _tell_odd(self, kind: str, key: str, cause: str) -> None:
        self._odd.labels(kind, cause).inc()
        log.warning("object is invalid", kind=kind, object=key, cause=cause)


def _is_absent(reflector: Reflector[Any]) -> float:
    return float(reflector.absent)
