# SPDX-License-Identifier: Apache-2.0
"""A small cluster that is asked for advice: measured nodes, Migrations, pods to place.

Every node offers 10 cores and 10,000 MiB, so a percent is 100 milli-cores or 100 MiB.
Boards are only made when `refresh` is called; the watch is the call that changes the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from common.api.contract import MAINTENANCE_LABEL
from common.api.migrations import (
    Amounts,
    ControllerRef,
    Migration,
    MigrationSpec,
    PodRef,
)
from common.api.objects import ObjectMeta, Pod
from common.cluster.records import NodeName, PodUid, pod_record
from common.config import ExtenderConfiguration
from common.load import Belief
from common.metrics import Metrics
from extender.advisor import Advisor
from extender.intents import Intents
from extender.protocol import RequestPod
from extender.scoring import Board
from simulator import build
from tests.support.clock import FakeClock
from tests.support.worlds.load import MIB, LoadWorld
from tests.support.worlds.wire import uid_of, wire_node, wire_pod

CPU_MILLI = 10_000
MEM_MIB = 10_000
CREATED = "2027-01-15T08:00:00Z"
"""When pods to place are made: after every Migration, because LoadWorld's time is that moment."""


class AdvisorWorld:
    """One cluster, one advisor, one clock."""

    def __init__(self, *, from_requests: bool = False, **config: Any) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics("extender")
        self.world = LoadWorld(from_requests=from_requests)
        self.state = self.world.state
        self.ready = True
        self.intents = Intents(self.state.snapshot, clock=self.clock, metrics=self.metrics)
        self.intents.begin()
        self.state.migrations.listen(self.intents.on_migration)
        self.state.pods.listen(self.intents.on_pod)
        self.advisor = Advisor(
            self.state,
            self.intents,
            config=ExtenderConfiguration(**config),
            clock=self.clock,
            metrics=self.metrics,
            ready=lambda: self.ready,
        )
        self._usage: dict[str, tuple[float, float]] = {}
        self._nodes: list[str] = []
        self._pods: dict[str, Pod] = {}

    def node(
        self, name: str, *, maintenance: str = "", images: dict[str, int] | None = None, **more: Any
    ) -> None:
        """Add a node, or change it; `images` has sizes, the rest is as for `build.node`."""
        labels = {MAINTENANCE_LABEL: maintenance} if maintenance else {}
        made = build.node(name, cpu=f"{CPU_MILLI}m", memory=f"{MEM_MIB}Mi", labels=labels, **more)
        made["status"]["images"] = [
            {"names": [image], "sizeBytes": size} for image, size in (images or {}).items()
        ]
        self.state.nodes.upsert(wire_node(made))
        if name not in self._nodes:
            self._nodes.append(name)

    def busy(self, name: str, cpu: float, mem: float = 0.0, *, asked: float | None = None) -> None:
        """Let a pod that asks for `asked` percent use so many percent of a node."""
        requests = (None, None) if asked is None else (_milli(asked), _mib(asked))
        self.world.pod(f"busy-{name}", name, requests=requests)
        self._usage[f"busy-{name}"] = (cpu * CPU_MILLI / 100, mem * MEM_MIB / 100)

    def loads(self, **percent: float | tuple[float, float]) -> None:
        """Add measured nodes at once: name=cpu or name=(cpu, memory), in percent."""
        for name, load in percent.items():
            cpu, mem = load if isinstance(load, tuple) else (load, 0.0)
            self.node(name)
            self.busy(name, cpu, mem)
        self.measure()

    def measure(self, *, only: Sequence[str] | None = None) -> None:
        """Measure the nodes, all or some, and make a board."""
        names = self._nodes if only is None else only
        on = {n: self._usage.get(f"busy-{n}", (0.0, 0.0)) for n in names}
        self.world.measure(on, dict(self._usage))
        self.refresh()

    def refresh(self) -> Board:
        """Make a board of what is known now, and use it."""
        self.advisor.use(self.next_board())
        assert self.advisor.board is not None
        return self.advisor.board

    def next_board(self) -> Board:
        """Make a board of what is known now, as the thread does, and do not use it yet."""
        belief = Belief(self.state.snapshot(), self.world.view(self.intents.predecessors()))
        return Board.after(self.advisor.board, belief, self.advisor.config)

    def pod(
        self,
        name: str,
        *,
        cpu: float | None = None,
        mem: float | None = None,
        owner: str = "",
        kind: str = "ReplicaSet",
        nominated: str = "",
        annotations: dict[str, str] | None = None,
        priority: int = 0,
        watched: bool = True,
    ) -> RequestPod:
        """Make a pod to place; it asks for percents of a node."""
        made = build.pod(
            name,
            cpu=None if cpu is None else _milli(cpu),
            memory=None if mem is None else _mib(mem),
            annotations=annotations,
            spec={"priority": priority},
        )
        metadata: dict[str, Any] = {"uid": uid_of(name), "creationTimestamp": CREATED}
        if owner:
            metadata["ownerReferences"] = [_controller(kind, owner)]
        wire = wire_pod(made, **metadata)
        self._pods[name] = wire
        if watched:
            self.state.pods.upsert(wire)
        return RequestPod(
            namespace="default",
            name=name,
            uid=PodUid(uid_of(name)),
            nominated_node=NodeName(nominated),
            record=pod_record(wire, self.state.shared),
        )

    def bind(self, name: str, node: str) -> None:
        """Let the watch show a pod on a node."""
        wire = self._pods[name]
        wire.spec.node_name = node
        self.state.pods.upsert(wire)

    def delete(self, name: str) -> None:
        self.state.pods.delete(self._pods.pop(name))

    def migration(
        self,
        name: str,
        *,
        owner: str,
        source: str,
        target: str,
        alternatives: tuple[str, ...] = (),
        load: float = 0.0,
        asked: float = 0.0,
        priority: int = 0,
    ) -> None:
        """Plan a move of a ReplicaSet's pod; load and requests are percents of a node."""
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        spec = MigrationSpec(
            pod=PodRef(namespace="default", name=f"{name}-old", uid=uid_of(f"{name}-old")),
            controller=ControllerRef(kind="ReplicaSet", name=owner, uid=uid_of(owner)),
            source=source,
            target=target,
            alternatives=alternatives,
            strategy="LoadBalancing",
            reason="Overloaded",
            deadline=datetime.fromtimestamp(self.clock.now() + 600.0, UTC),
            load=_amounts(load),
            requests=_amounts(asked),
            priority=priority,
        )
        meta = ObjectMeta(name=name, uid=uid_of(name), creation_timestamp=now)
        self.state.migrations.upsert(Migration(metadata=meta, spec=spec))

    def count(self, metric: str, **labels: str) -> float:
        """Return what a counter stands at."""
        return self.metrics.registry.get_sample_value(f"evenkeel_{metric}", labels) or 0.0


def _milli(percent: float) -> str:
    return f"{round(percent * CPU_MILLI / 100)}m"


def _mib(percent: float) -> str:
    return f"{round(percent * MEM_MIB / 100)}Mi"


def _amounts(percent: float) -> Amounts:
    return Amounts(cpu_milli=percent * CPU_MILLI / 100, memory_bytes=percent * MEM_MIB * MIB / 100)


def _controller(kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": uid_of(name),
        "controller": True,
    }
