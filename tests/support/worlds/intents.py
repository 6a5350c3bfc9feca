# SPDX-License-Identifier: Apache-2.0
"""A small cluster with an index of intents over it, changed step by step."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from common.api.contract import COMPLETION_INDEX
from common.api.migrations import (
    Amounts,
    ControllerRef,
    Migration,
    MigrationStatus,
    PodRef,
    ReplacementRef,
)
from common.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from common.cache.state import ClusterState
from common.cluster.records import PodRecord, PodUid
from common.metrics import Metrics
from extender.intents import Guidance, Intents
from tests.support.clock import FakeClock
from tests.support.worlds.migrations import migration, spec_of

NODES = ("n1", "n2", "n3", "n4", "n5")


class IntentWorld:
    """The API server's truth, the cache that follows it, and the index."""

    def __init__(self, *, live: bool = True, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s
        self.clock = FakeClock(now=1_794_000_000.0)
        self.state = ClusterState()
        self.metrics = Metrics("test")
        self.intents = self._indexed(self.state)
        self.pods: dict[str, Pod] = {}
        self.migrations: dict[str, Migration] = {}
        self._numbers = itertools.count(1)
        if live:
            self.intents.begin()

    def pod(
        self,
        name: str = "",
        *,
        owner: str = "rs-1",
        kind: str = "ReplicaSet",
        node: str = "",
        index: int | None = None,
        namespace: str = "shop",
    ) -> str:
        """Create a pod and return its uid; an empty owner makes a bare one."""
        uid = f"pod-{next(self._numbers)}"
        reference = OwnerReference(kind=kind, name=owner, uid=owner, controller=True)
        meta = ObjectMeta(
            name=name or uid,
            namespace=namespace,
            uid=uid,
            creation_timestamp=self.now(),
            owner_references=[reference] if owner else None,
            annotations={COMPLETION_INDEX: str(index)} if index is not None else None,
        )
        self._put(Pod(metadata=meta, spec=PodSpec(node_name=node)))
        return uid

    def bind(self, uid: str, node: str) -> None:
        """Give a pod its node."""
        self._put(Pod(metadata=self.pods[uid].metadata, spec=PodSpec(node_name=node)))

    def delete(self, uid: str) -> None:
        """Remove a pod; a rejected one goes alike, because finished pods are not watched."""
        self.state.pods.delete(self.pods.pop(uid))

    def move(
        self,
        moved: str,
        *,
        target: str = "n2",
        alternatives: tuple[str, ...] = (),
        lasts_s: float = 300,
        replacement_name: str = "",
        status: MigrationStatus | None = None,
        **spec: Any,
    ) -> str:
        """Plan a move of a pod away from where it is; return the name of the Migration."""
        pod = self.pods[moved]
        refs = pod.metadata.owner_references
        owner = refs[0] if refs else None
        index = (pod.metadata.annotations or {}).get(COMPLETION_INDEX)
        wanted = {
            "pod": PodRef(namespace="shop", name=pod.metadata.name, uid=moved),
            "controller": ControllerRef(kind=owner.kind, name=owner.name, uid=owner.uid)
            if owner
            else None,
            "workload": None,
            "completion_index": None if index is None else int(index),
            "replacement_name": replacement_name,
            "source": pod.spec.node_name or "n1",
            "target": target,
            "alternatives": alternatives,
            "deadline": self.now() + timedelta(seconds=lasts_s),
            "load": Amounts(cpu_milli=100.0, memory_bytes=1000.0),
            "requests": Amounts(cpu_milli=50.0, memory_bytes=500.0),
            **spec,
        }
        made = migration(spec_of(**wanted), created=self.now(), status=status or MigrationStatus())
        self._plan(made)
        return made.metadata.name

    def set_status(self, name: str, **status: Any) -> None:
        """Change the status of a Migration."""
        old = self.migrations[name]
        self._plan(
            Migration(metadata=old.metadata, spec=old.spec, status=MigrationStatus(**status))
        )

    def replaced(self, name: str, uid: str, node: str = "", **status: Any) -> None:
        """Have the rebalancer say who the replacement is."""
        self.set_status(name, replacement=ReplacementRef(name=uid, uid=uid, node=node), **status)

    def withdraw(self, name: str) -> None:
        """Delete a Migration."""
        self.state.migrations.delete(self.migrations.pop(name))

    def ask(self, uid: str, names: Collection[str] = NODES) -> Guidance | None:
        """Ask where a pod is to go."""
        return self.intents.assign_slot(self.record(uid), names)

    def target(self, uid: str, names: Collection[str] = NODES) -> str | None:
        """Return the node that a pod is sent to; None without guidance."""
        found = self.ask(uid, names)
        return None if found is None else found.target

    def record(self, uid: str) -> PodRecord:
        found = self.state.pods.by_uid.get(PodUid(uid))
        assert found is not None
        return found

    def restarted(self, *, migrations_first: bool = False) -> Intents:
        """Return an index that a new process would make of what exists."""
        state = ClusterState()
        intents = self._indexed(state, Metrics("restarted"))
        kinds = [(state.pods, self.pods.values()), (state.migrations, self.migrations.values())]
        for table, objects in reversed(kinds) if migrations_first else kinds:
            for each in objects:
                table.upsert(each)  # type: ignore[attr-defined]  # each table its own kind
        intents.begin()
        return intents

    async def pass_(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def now(self) -> datetime:
        """Return the time as the API server stamps it: in whole seconds."""
        return datetime.fromtimestamp(int(self.clock.now()), UTC)

    def counted(self) -> dict[str, int]:
        """Return how often each outcome was counted."""
        (found,) = [m for m in self.metrics.registry.collect() if m.name == "evenkeel_intents"]
        totals = [s for s in found.samples if s.name.endswith("_total") and s.value]
        return {sample.labels["outcome"]: int(sample.value) for sample in totals}

    def states(self, intents: Intents | None = None) -> dict[str, str]:
        """Return the state of every slot by Migration."""
        return {row.migration: row.state for row in (intents or self.intents).rows()}

    def _indexed(self, state: ClusterState, metrics: Metrics | None = None) -> Intents:
        intents = Intents(
            state.snapshot, clock=self.clock, metrics=metrics or self.metrics, skew_s=self.skew_s
        )
        state.migrations.listen(intents.on_migration)
        state.pods.listen(intents.on_pod)
        return intents

    def _put(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.state.pods.upsert(pod)

    def _plan(self, made: Migration) -> None:
        self.migrations[made.metadata.name] = made
        self.state.migrations.upsert(made)
