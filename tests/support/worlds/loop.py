# SPDX-License-Identifier: Apache-2.0
"""Plans, and what else the loop is put together from, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from common.api.migrations import (
    Migration,
    MigrationSpec,
    MigrationStatus,
    MoveReason,
)
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.records import NodeName, PodUid
from common.config import RebalancerConfiguration, Strategy
from common.kube.events import ObjectRef
from common.kube.resources import Resource
from common.load import Belief, Load, LoadTracker
from common.metrics import Metrics
from common.usage import MEASURED, Sample
from rebalancer.decision import Decider
from rebalancer.leading import Leadership
from rebalancer.loop import LoopParts, RebalanceLoop
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.planner import Bound, Move, Plan
from rebalancer.refusals import Refusal
from rebalancer.store import MigrationStore
from rebalancer.triggers import Trigger, Triggers
from rebalancer.usage_events import LeaseEvents, UsageEvents
from tests.support.clock import FakeClock, without_threads
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.worlds.migrations import migration
from tests.support.worlds.observer import FakeObserver
from tests.support.worlds.planner import NOW_S, PlannerWorld


def move_of(pod: str, **other: Any) -> Move:
    """Return a move of this cycle, by default from n1 to n2."""
    drains = other.get("reason") == MoveReason.MAINTENANCE
    said: dict[str, Any] = {
        "pod": f"shop/{pod}",
        "uid": PodUid(other.pop("uid", f"u-{pod}")),
        "owner": f"Deployment shop/{pod}",
        "source": NodeName("n1"),
        "target": NodeName("n2"),
        "alternatives": (),
        "strategy": Strategy.NODE_MAINTENANCE if drains else Strategy.RESOURCE_OPTIMIZATION,
        "reason": MoveReason.ABOVE_CEILING,
        "message": "n1 uses 93 % CPU",
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
        "goals": ("n1 below 80 % CPU",) if moves else (),
        "moves": moves,
        "lower_bound": Bound(evictions=bound, proof=proof, message="n1 has to give"),
        "nodes": (),
        "unmet": (),
        "refused": (),
    }
    return Plan(**{**said, **other})


def no_usage_events(clock: Clock) -> UsageEvents:
    """Return what records no Events."""
    return UsageEvents(LeaseEvents(None, ObjectRef(kind="Lease", name="none")), clock=clock)


class SwitchedLeadership(Leadership):
    """Leads as long as a test wants it to."""

    on = True

    def leads(self) -> bool:
        return self.on and not self.dry_run


class OpenPolicy(PacingPolicy):
    """Lets moves for load be planned unless a test refuses them."""

    def __init__(self, *notes: str) -> None:
        self.refusal: Refusal | None = None
        self.given_notes = notes
        self.reports = 0

    def may_plan(self) -> Refusal | None:
        return self.refusal

    def notes(self) -> tuple[str, ...]:
        return self.given_notes

    def report(self) -> None:
        self.reports += 1


class MigrationsApi(PartialKubeApi):
    """Accepts Migrations, and shows them in the cache at once unless the watch is late."""

    def __init__(self, state: ClusterState, clock: FakeClock) -> None:
        self._state = state
        self._clock = clock
        self.created: list[Migration] = []
        self.failure: Exception | None = None
        self.late_watch = False
        self.deleted: list[str] = []

    async def create(self, resource: Resource, body: Any, **_: Any) -> bytes:
        if self.failure is not None:
            raise self.failure
        sent = msgspec.convert(msgspec.to_builtins(body), Migration)
        made = migration(sent.spec, created=datetime.fromtimestamp(self._clock.now(), UTC))
        made.metadata.annotations = sent.metadata.annotations
        self.created.append(made)
        if not self.late_watch:
            self._state.migrations.upsert(made)
        return msgspec.json.encode(made)

    async def delete(self, resource: Resource, *, name: str, **_: Any) -> bytes:
        self.deleted.append(name)
        self._state.migrations.forget(name)
        return b"{}"


class Stage:
    """A cluster that is put together by hand, for a loop with real parts but the sockets."""

    def __init__(self, world: PlannerWorld, *, dry_run: bool = False) -> None:
        self.world = world
        self.clock = FakeClock(now=NOW_S)
        self.metrics = Metrics("test")
        self.config = RebalancerConfiguration.model_validate({"mode": "act", **world.config})
        self.triggers = Triggers(self.clock)
        self.api = MigrationsApi(world.state, self.clock)
        self.policy = OpenPolicy("the policy says so")
        self.leadership = SwitchedLeadership(dry_run=dry_run)
        self.blow_up = False
        """Observing the cluster fails."""
        self._tracker = LoadTracker(self.config)
        self.deciders: list[Decider] = []
        self.predecessors: Mapping[PodUid, Load] = {}
        world.state.nodes.listen(self.triggers.on_node)
        self.source = MEASURED
        self.observer = FakeObserver(self.believe)
        self.store = MigrationStore(self.api, world.state, clock=self.clock, metrics=self.metrics)
        parts = LoopParts(
            observer=self.observer,
            store=self.store,
            policy=self.policy,
            triggers=self.triggers,
            leadership=self.leadership,
            usage_events=no_usage_events(self.clock),
            new_decider=lambda config: self.decider(config),
        )
        self.loop = RebalanceLoop(
            parts, lambda: self.config, clock=self.clock, metrics=self.metrics
        )

    def decider(self, config: RebalancerConfiguration) -> Decider:
        self.deciders.append(Decider(config))
        return self.deciders[-1]

    def measure(self, *, without: Collection[str] = ()) -> None:
        """Take a sample of all nodes but these."""
        now_s, sample = self.clock.now(), self.world._sample()
        nodes = {n: replace(u, end_s=now_s) for n, u in sample.nodes.items() if n not in without}
        pods = {k: replace(u, end_s=now_s) for k, u in sample.pods.items()}
        self._tracker.observe(Sample(nodes=nodes, pods=pods), self.world.state.snapshot(), now_s)
        self.triggers.fire(Trigger.SAMPLE)

    def believe(self, predecessors: Mapping[PodUid, Load]) -> Belief:
        if self.blow_up:
            raise RuntimeError("nothing is seen today")
        self.predecessors = predecessors
        snapshot = self.world.state.snapshot()
        load = self._tracker.view(snapshot, self.clock.now(), predecessors)
        return Belief(snapshot, load, self.source)

    @property
    def specs(self) -> list[MigrationSpec]:
        """The specs of the Migrations that were created."""
        return [made.spec for made in self.api.created]

    @property
    def begun(self) -> list[str]:
        return [f"{spec.pod.name} to {spec.target}" for spec in self.specs]

    def total(self, name: str, **labels: str) -> float:
        """Return the value of a metric; zero if nothing was counted."""
        return self.metrics.registry.get_sample_value(f"evenkeel_{name}", labels) or 0.0

    def label(self, node: str, *, on: bool) -> None:
        """Put a node under maintenance, or take it back."""
        given = {**self.world.made_nodes[node], "maintenance": on}
        self.world.node(node, **given)

    def finish(self, pod: str, *, phase: str = "Completed") -> None:
        """Let the Migration of a pod end."""
        spec = next(spec for spec in self.specs if spec.pod.name == pod)
        ended = datetime.fromtimestamp(self.clock.now(), UTC)
        status = MigrationStatus(phase=phase, finished_at=ended)
        self.world.state.migrations.upsert(migration(spec, created=ended, status=status))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the loop; it sleeps when the block begins."""
        without_threads()
        task = asyncio.create_task(self.loop.run())
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
