"""Fills the state: one reflector per kind that Evenkeel reads.

`READINGS` is what everybody watches; the role in `deploy/base/reader.yaml` grants exactly
that. After the first sync the garbage collector is told to leave the cache alone:
otherwise a full collection stops the process for a tenth of a second at 150,000 pods.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog

from common.clock import Clock
from common.cluster.migrations import Migration
from common.cluster.objects import (
    DaemonSet,
    Deployment,
    Job,
    Lease,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from common.cluster.state import ClusterState
from common.cluster.storage_objects import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from common.contract import INSTALL_CRD
from common.kube import resources as kinds
from common.kube.client import KubeClient
from common.kube.reflector import Reflector, ReflectorSettings, Sink
from common.kube.resources import Resource
from common.metrics import Metrics

log: structlog.stdlib.BoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reading:
    """A kind that we read, and the table that it fills."""

    resource: Resource
    type_: type[Object]
    table: Callable[[ClusterState], Sink[Any]]  # Any: each table takes its own wire struct
    field_selector: str = ""
    namespace: str = ""
    """The only one that is read; the empty one stands for all."""
    optional: bool = False
    """Whether work can begin without it."""
    install: str = ""
    """The command that installs its CRD; empty for built-in kinds."""


READINGS: Final[tuple[Reading, ...]] = (
    Reading(kinds.NODES, Node, lambda s: s.nodes),
    # The scheduler leaves finished pods out too: they hold nothing (pkg/scheduler/scheduler.go).
    Reading(
        kinds.PODS,
        Pod,
        lambda s: s.pods,
        field_selector="status.phase!=Succeeded,status.phase!=Failed",
    ),
    Reading(kinds.NAMESPACES, Namespace, lambda s: s.namespaces),
    Reading(kinds.REPLICASETS, ReplicaSet, lambda s: s.replica_sets),
    Reading(kinds.DEPLOYMENTS, Deployment, lambda s: s.deployments),
    Reading(kinds.STATEFULSETS, StatefulSet, lambda s: s.stateful_sets),
    Reading(kinds.DAEMONSETS, DaemonSet, lambda s: s.daemon_sets),
    Reading(kinds.JOBS, Job, lambda s: s.jobs),
    Reading(
        kinds.REPLICATIONCONTROLLERS,
        ReplicationController,
        lambda s: s.replication_controllers,
    ),
    Reading(kinds.PDBS, PodDisruptionBudget, lambda s: s.budgets),
    Reading(kinds.PVCS, PersistentVolumeClaim, lambda s: s.claims),
    Reading(kinds.PVS, PersistentVolume, lambda s: s.volumes),
    Reading(kinds.STORAGECLASSES, StorageClass, lambda s: s.storage_classes),
    Reading(kinds.CSINODES, CSINode, lambda s: s.csi_nodes),
    Reading(kinds.PRIORITYCLASSES, PriorityClass, lambda s: s.priority_classes),
)

MIGRATION_READING: Final = Reading(
    kinds.MIGRATIONS, Migration, lambda s: s.migrations, optional=True, install=INSTALL_CRD
)
"""Apart from the others, for a cluster that knows nothing of Evenkeel has no such kind."""


def lease_reading(namespace: str) -> Reading:
    """Return how the Leases of one namespace are read.

    Elsewhere every node renews one each ten seconds, and anybody may be able to write some.
    """
    return Reading(kinds.LEASES, Lease, lambda s: s.leases, namespace=namespace)


class ClusterReader:
    """Keeps a state in step with an API server, and knows how well it does."""

    def __init__(
        self,
        client: KubeClient,
        *,
        settings: ReflectorSettings,
        clock: Clock,
        metrics: Metrics,
        readings: Sequence[Reading] | None = None,
    ) -> None:
        self._odd = metrics.counter(
            "objects_odd_total", "Objects that are kept but make no sense.", ("kind", "cause")
        )
        self.state: Final = ClusterState(self._tell_odd)
        readings = READINGS if readings is None else readings
        self._needed = frozenset(r.resource for r in readings if not r.optional)
        self._installs = {r.resource: r.install for r in readings if r.install}
        self.reflectors: Final = tuple(
            Reflector(
                client,
                reading.resource,
                reading.type_,
                reading.table(self.state),
                settings=replace(
                    settings,
                    field_selector=reading.field_selector,
                    namespace=reading.namespace,
                    install=reading.install,
                ),
                clock=clock,
                metrics=metrics,
                rng=random.Random(),
            )
            for reading in readings
        )
        missing = metrics.gauge(
            "crd_missing", "1 while the API server does not know this kind.", ("kind",)
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
        """Return until when no kind could be read, on the monotonic clock; -inf if never so."""
        return min(r.last_unreachable_s for r in self.reflectors)

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
        found = [self._trouble_of(r) for r in self.reflectors if r.absent and self._is_spared(r)]
        return "; ".join(found) or None

    def _is_spared(self, reflector: Reflector[Any]) -> bool:
        return reflector.absent and reflector.resource not in self._needed

    def _trouble_of(self, reflector: Reflector[Any]) -> str:
        install = self._installs.get(reflector.resource, "") if reflector.absent else ""
        return f"{reflector.trouble}: run {install}" if install else reflector.trouble

    def _tell_odd(self, kind: str, key: str, cause: str) -> None:
        self._odd.labels(kind, cause).inc()
        log.warning("object makes no sense", kind=kind, object=key, cause=cause)


def _is_absent(reflector: Reflector[Any]) -> float:
    return float(reflector.absent)
