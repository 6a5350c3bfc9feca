"""Plans, and whatever else the daemon is put together from, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from common.cluster.interning import Interner
from common.cluster.migrations import (
    MigrationRecord,
    MigrationSpec,
    MigrationStatus,
    Uses,
    migration_record,
)
from common.cluster.records import NodeName, PodUid
from common.config import RebalancerConfiguration, Strategy
from common.load import Load, LoadBook
from common.metrics import Metrics
from common.observer import Belief, load_settings
from common.usage import MEASURED, Sample
from rebalancer.daemon import Daemon
from rebalancer.deciding import Decider
from rebalancer.planner import Bound, Move, Plan
from rebalancer.reasons import Refusal
from rebalancer.waking import Bell, Due
from rebalancer.writing import Answer, Written
from tests.support.clock import FakeClock, without_threads
from tests.support.migrations import migration
from tests.support.planner_world import NOW_S, PlannerWorld


def move_of(pod: str, **other: Any) -> Move:
    """Return a move of this cycle from n1 to n2, unless told otherwise."""
    said: dict[str, Any] = {
        "pod": f"shop/{pod}",
        "uid": PodUid(other.pop("uid", f"u-{pod}")),
        "owner": f"Deployment shop/{pod}",
        "source": NodeName("n1"),
        "target": NodeName("n2"),
        "alternatives": (),
        "strategy": Strategy.RESOURCE_OPTIMIZATION,
        "reason": "AboveCeiling",
        "words": "n1 uses 93 % CPU",
        "chain": 0,
        "cpu_milli": 500.0,
        "mem_bytes": 1e8,
        "this_cycle": True,
    }
    return Move(**{**said, **other})


def plan_of(*moves: Move, bound: int = 0, proof: str = "ceilings", **other: Any) -> Plan:
    """Return a plan with these moves."""
    said: dict[str, Any] = {
        "plan_id": "plan-1",
        "fingerprint": "f",
        "strategies": (Strategy.RESOURCE_OPTIMIZATION,),
        "goals": ("AtMost n1 cpu 80 %",) if moves else (),
        "moves": moves,
        "lower_bound": Bound(evictions=bound, proof=proof, words="n1 has to give"),
        "nodes": (),
        "unmet": (),
        "refused": (),
    }
    return Plan(**{**said, **other})


class Stage:
    """A cluster that is put together by hand, for a daemon with real parts but the sockets."""

    def __init__(self, world: PlannerWorld, *, dry_run: bool = False) -> None:
        self.world = world
        self.clock = FakeClock(now=NOW_S)
        self.metrics = Metrics("test")
        self.config = RebalancerConfiguration.model_validate({"mode": "act", **world.config})
        self.bell = Bell(self.clock)
        self.refusal: Refusal | None = None
        self.leads = True
        self.answer = Written.CREATED
        self.written: list[tuple[MigrationSpec, Uses, MigrationRecord | None]] = []
        self.blind = False
        """The watch does not show what was written."""
        self.blow_up = False
        """Looking at the cluster fails."""
        self._book = LoadBook(load_settings(self.config))
        self.deciders: list[Decider] = []
        self.predecessors: Mapping[PodUid, Load] = {}
        world.state.nodes.listen(self.bell.on_node)
        self.source = MEASURED
        self.daemon = Daemon(
            observer=self,
            snapshot=world.state.snapshot,
            decider_factory=self.decider,
            writer=self,
            config=lambda: self.config,
            bell=self.bell,
            clock=self.clock,
            metrics=self.metrics,
            steering=self,
            leads=lambda: self.leads,
            dry_run=dry_run,
        )

    def decider(self, config: RebalancerConfiguration) -> Decider:
        self.deciders.append(Decider(config))
        return self.deciders[-1]

    def measure(self, *, without: Collection[str] = ()) -> None:
        """Take a sample of all nodes but these."""
        now_s, sample = self.clock.now(), self.world._sample()
        nodes = {n: replace(u, end_s=now_s) for n, u in sample.nodes.items() if n not in without}
        pods = {k: replace(u, end_s=now_s) for k, u in sample.pods.items()}
        self._book.observe(Sample(nodes=nodes, pods=pods), self.world.state.snapshot(), now_s)
        self.bell.ring(Due.SAMPLE)

    async def look(self, predecessors: Mapping[PodUid, Load]) -> Belief:
        if self.blow_up:
            raise RuntimeError("no look today")
        self.predecessors = predecessors
        snapshot = self.world.state.snapshot()
        load = self._book.view(snapshot, self.clock.now(), predecessors)
        return Belief(snapshot, load, self.source)

    async def write(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None
    ) -> Answer:
        if self.answer is not Written.CREATED:
            return Answer(self.answer)
        self.written.append((spec, predicted, before))
        made = migration(spec, created=datetime.fromtimestamp(self.clock.now(), UTC))
        if not self.blind:
            self.world.state.migrations.upsert(made)
        return Answer(Written.CREATED, migration_record(made, Interner()))

    def may_plan(self) -> Refusal | None:
        return self.refusal

    def notes(self) -> tuple[str, ...]:
        return ("steering says so",)

    @property
    def begun(self) -> list[str]:
        return [f"{spec.pod.name} to {spec.target}" for spec, _, _ in self.written]

    def total(self, name: str, **labels: str) -> float:
        """Return the value of a metric; zero if nothing was counted."""
        return self.metrics.registry.get_sample_value(f"evenkeel_{name}", labels) or 0.0

    def label(self, node: str, *, on: bool) -> None:
        """Put a node under maintenance, or take it back."""
        given = {**self.world.made_nodes[node], "maintenance": on}
        self.world.node(node, **given)

    def finish(self, pod: str, *, phase: str = "Completed") -> None:
        """Let the Migration of a pod end."""
        spec = next(spec for spec, _, _ in self.written if spec.pod.name == pod)
        ended = datetime.fromtimestamp(self.clock.now(), UTC)
        status = MigrationStatus(phase=phase, finished_at=ended)
        self.world.state.migrations.upsert(migration(spec, created=ended, status=status))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the daemon; it sleeps when the block begins."""
        without_threads()
        task = asyncio.create_task(self.daemon.run())
        try:
            await self.clock.until_sleeping()
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def advance(self, seconds: float) -> None:
        """Let time pass until everybody sleeps again."""
        await self.clock.advance(seconds)
        await self.clock.until_sleeping()
