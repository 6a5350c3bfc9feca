# SPDX-License-Identifier: Apache-2.0
"""The loop: what is planned, waited for, looked at again, and let begin."""

from __future__ import annotations

import asyncio
import random
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from common.api.migrations import (
    ControllerRef,
    MigrationStatus,
    PodRef,
    ReplacementRef,
    read_prediction,
)
from common.config import LeaderElection, RebalancerConfiguration, SourceKind
from common.kube.errors import AlreadyExists, ServerError
from common.kube.leader import Elector
from common.load import Belief
from common.metrics import Metrics
from common.usage import MEASURED, SourceChoice
from rebalancer.decision import Decider, Decision
from rebalancer.finished_pods import NONE_FINISHED, Finished
from rebalancer.leading import Leadership
from rebalancer.loop import judges_differently
from rebalancer.refusals import Refusal
from rebalancer.triggers import SETTLED_S, Trigger
from simulator import build
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import DirectClient, MemoryApi
from tests.support.worlds.loop import Stage
from tests.support.worlds.migrations import controller, migration, spec_of
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.wire import wire_node, wire_pod

QUICK = {
    "enabledStrategies": ["ResourceOptimization", "NodeMaintenance"],
    "observations": 1,
    "smoothing": "1s",
    "reschedulingInterval": "30s",
    "revalidateAfter": "15s",
    "revalidateWithin": "90s",
}


WITHOUT_METRICS = SourceChoice(
    configured=SourceKind.AUTO, asked=SourceKind.REQUESTS, why="none are served"
)


def hot(**config: Any) -> Stage:
    """Return a stage with one node that is too hot by one pod."""
    world = PlannerWorld(config={**QUICK, **config})
    for name in ("hot", "low", "mid"):
        world.node(name)
    for pod, node, load in (("big", "hot", 40.0), ("rest", "hot", 50.0), ("on-mid", "mid", 20.0)):
        world.pod(pod, node, load, replicas=40)
    stage = Stage(world)
    stage.measure()
    return stage


def draining(**config: Any) -> Stage:
    """Return a stage with a node that is to be emptied of three pods."""
    world = PlannerWorld(config={**QUICK, **config})
    world.node("leaving", maintenance=True)
    world.node("n2")
    world.node("n3")
    for number in range(3):
        world.pod(f"p{number}", "leaving", 5.0)
    stage = Stage(world)
    stage.measure()
    return stage


async def test_a_move_for_load_waits_for_newer_samples() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(14)
        stage.measure()
        assert stage.begun == []
        await stage.advance(1)
        assert stage.begun == ["big to low"]


async def test_a_move_waits_until_every_touched_node_has_a_newer_sample() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(15)
        stage.measure(without=["low"])
        await stage.advance(20)
        assert stage.begun == []
        stage.measure()
        await stage.advance(1)
        assert stage.begun == ["big to low"]


async def test_moves_of_nodes_without_a_newer_sample_in_time_are_dropped() -> None:
    stage = hot()
    async with stage.running():
        for _ in range(9):
            await stage.advance(10)
        assert stage.begun == []
        assert stage.total("plan_chains_dropped_total", reason="NoNewerSample") == 1


async def test_a_target_without_a_newer_sample_gives_way_to_one_that_has_it() -> None:
    stage = hot()
    async with stage.running():
        for _ in range(8):
            await stage.advance(10)
            stage.measure(without=["low"])
        await stage.advance(10)
        assert stage.begun == ["big to mid"]


async def test_a_plan_that_newer_samples_do_not_call_for_is_dropped_and_said() -> None:
    stage = hot()
    async with stage.running():
        stage.world.pod("rest", "hot", 20.0)
        await stage.advance(14)
        stage.measure()
        await stage.advance(1)
        assert stage.begun == []
        assert stage.loop.plan is not None
        words = "default/big is not moved after all: the newer samples do not call for it"
        assert words in stage.loop.plan.notes


async def test_the_migration_says_what_was_planned_and_predicted() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(14)
        stage.measure()
        await stage.advance(1)
        [made] = stage.api.created
        spec, predicted = made.spec, read_prediction(made.metadata.annotations or {})
        assert (spec.source, spec.target, spec.alternatives) == ("hot", "low", ("mid",))
        assert stage.api.deleted == []
        assert predicted is not None
        assert predicted.source is not None
        assert predicted.target is not None
        assert (predicted.source.cpu_percent, predicted.target.cpu_percent) == (50.0, 40.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"paused": True}, "nothing is moved: paused is true"),
        ({"mode": "observe"}, "its mode is observe"),
        ({"modes": {"ResourceOptimization": "observe"}}, "its mode is observe"),
    ],
)
async def test_nothing_begins_and_the_plan_says_why(change: dict[str, Any], words: str) -> None:
    stage = hot(**change)
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(30)
        assert stage.begun == []
        assert stage.loop.plan is not None
        assert stage.loop.plan.moves
        assert any(words in note for note in stage.loop.plan.notes)


async def test_a_dry_run_writes_nothing() -> None:
    world = draining().world
    stage = Stage(world, dry_run=True)
    stage.measure()
    await stage.loop.cycle()
    assert stage.begun == []
    assert stage.loop.plan is not None
    assert "nothing is moved: this is a dry run" in stage.loop.plan.notes


async def test_pausing_while_a_plan_waits_stops_it() -> None:
    stage = hot()
    async with stage.running():
        stage.config = stage.config.model_copy(update={"paused": True})
        await stage.advance(1)
        stage.measure()
        await stage.advance(14)
        assert stage.begun == []


async def test_nothing_is_written_without_the_lead() -> None:
    stage = draining()
    stage.leadership.on = False
    await stage.loop.cycle()
    assert stage.begun == []


async def test_the_policy_can_refuse_moves_for_load_and_is_quoted() -> None:
    stage = hot()
    stage.policy.refusal = Refusal("NoExtender", "no extender is alive", permanent=False)
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(30)
        assert stage.begun == []
        assert stage.loop.plan is not None
        assert "nothing is moved for load: no extender is alive" in stage.loop.plan.notes
        assert "the policy says so" in stage.loop.plan.notes


async def test_emptying_a_node_waits_for_no_sample_and_no_extender() -> None:
    stage = draining()
    stage.policy.refusal = Refusal("NoExtender", "no extender is alive", permanent=False)
    await stage.loop.cycle()
    assert len(stage.begun) == 3


async def test_the_label_is_answered_at_once() -> None:
    stage = draining()
    stage.label("leaving", on=False)
    async with stage.running():
        assert stage.begun == []
        stage.label("leaving", on=True)
        await stage.advance(SETTLED_S)
        assert len(stage.begun) == 3


async def test_the_label_is_answered_while_a_plan_waits_for_samples() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(5)
        stage.label("mid", on=True)
        await stage.advance(SETTLED_S)
        assert [spec.pod.name for spec in stage.specs] == ["on-mid"]
        stage.measure()
        await stage.advance(10)
        assert [spec.pod.name for spec in stage.specs] == ["on-mid"]


async def test_a_new_node_is_looked_at_as_soon_as_it_is_of_age() -> None:
    stage = hot(enabledStrategies=["LoadBalancing"], reschedulingInterval="1h", mode="observe")
    async with stage.running():
        await stage.advance(100)
        assert stage.total("cycles_total", result="done") == 1
        new = wire_node(build.node("new"))
        new.metadata.creation_timestamp = datetime.fromtimestamp(stage.clock.now(), UTC)
        stage.world.state.nodes.upsert(new)
        await stage.advance(299)
        assert stage.total("cycles_total", result="done") == 1
        await stage.advance(1)
        assert stage.total("cycles_total", result="done") == 2


async def test_a_changed_configuration_is_looked_at_at_once() -> None:
    stage = hot(paused=True, reschedulingInterval="1h")
    async with stage.running():
        stage.config = stage.config.model_copy(update={"cpu_threshold": 70.0})
        stage.triggers.fire(Trigger.CONFIG)
        await stage.advance(0)
        assert stage.total("cycles_total", result="done") == 2


def with_a_slow_drain(*, evicted_s: float, **given: Any) -> Stage:
    """Return a stage whose pool is to be leveled, while a pod of it drains elsewhere."""
    stage = hot(enabledStrategies=["LoadBalancing"], imbalanceThreshold=55.0)
    world = stage.world
    world.node("source")
    world.node("target")
    world.pod("slow", "source", 30.0, kind="StatefulSet", replicas=40)
    world.pod("other", "target", 10.0, replicas=40)
    [old] = [pod for pod in world.state.snapshot().pods.values() if pod.name == "slow"]
    leaves = build.pod("slow", node="source", spec={"terminationGracePeriodSeconds": 7200})
    ends = datetime.fromtimestamp(stage.clock.now() + 7200 - evicted_s, UTC).isoformat()
    times: dict[str, Any] = {"creationTimestamp": "2026-11-16T08:00:00Z", "deletionTimestamp": ends}
    world.state.pods.upsert(wire_pod(leaves, uid=old.uid, **times))
    evicted = datetime.fromtimestamp(stage.clock.now() - evicted_s, UTC)
    status = MigrationStatus(phase="InProgress", evicted_at=evicted, **given)
    spec = spec_of(
        pod=PodRef(namespace="default", name="slow", uid=old.uid),
        controller=controller("StatefulSet", "slow"),
        source="source",
        target="target",
        alternatives=(),
        deadline=datetime.fromtimestamp(stage.clock.now() + 7500, UTC),
    )
    world.state.migrations.upsert(migration(spec, created=evicted, status=status))
    stage.measure()
    return stage


async def begun_after_a_while(stage: Stage) -> list[str]:
    async with stage.running():
        for _ in range(8):
            await stage.advance(15)
            stage.measure()
        return stage.begun


async def test_a_pod_that_drains_for_hours_does_not_keep_its_pool_from_being_leveled() -> None:
    assert await begun_after_a_while(with_a_slow_drain(evicted_s=120)) == ["big to low"]


async def test_right_after_an_eviction_the_pool_rests() -> None:
    assert await begun_after_a_while(with_a_slow_drain(evicted_s=-10)) == []


async def test_a_pool_rests_when_the_replacement_of_a_slow_pod_has_come() -> None:
    found = ReplacementRef(name="slow", uid="new", node="target")
    assert await begun_after_a_while(with_a_slow_drain(evicted_s=120, replacement=found)) == []


async def test_moves_under_way_count_as_done() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(14)
        assert stage.begun == ["big to low"]
        for _ in range(12):
            stage.measure()
            await stage.advance(10)
        assert stage.begun == ["big to low"]
        assert stage.loop.plan is not None
        assert not stage.loop.plan.goals
        levels = {node.name: round(node.before.cpu) for node in stage.loop.plan.nodes}
        assert levels == {"hot": 50, "low": 40, "mid": 20}


async def test_samples_between_two_plans_are_counted() -> None:
    stage = hot(observations=3, reschedulingInterval="60s")
    async with stage.running():
        for _ in range(2):
            await stage.advance(15)
            stage.measure()
        await stage.advance(29)
        assert stage.loop.plan is not None
        assert not stage.loop.plan.goals
        await stage.advance(1)
        assert stage.loop.plan.goals
        assert stage.total("cycles_total", result="done") == 1


async def test_samples_are_counted_while_a_plan_waits_to_be_looked_at_again() -> None:
    stage = hot(observations=2, reschedulingInterval="30s")
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(29)
        assert stage.loop.plan is not None
        assert stage.loop.plan.goals
        stage.world.node("late")
        stage.world.pod("very-big", "late", 90.0, replicas=40)
        for _ in range(2):
            await stage.advance(5)
            stage.measure()
        await stage.advance(20)
        assert {spec.source for spec in stage.specs} == {"hot"}
        assert any("late" in goal for goal in stage.loop.plan.goals)


async def test_a_sample_that_cannot_be_counted_is_no_harm() -> None:
    stage = hot(reschedulingInterval="30s")
    async with stage.running():
        stage.blow_up = True
        stage.measure()
        await stage.advance(14)
        stage.blow_up = False
        stage.measure()
        await stage.advance(1)
        assert stage.begun == ["big to low"]


async def test_nodes_of_moves_under_way_rest() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(14)
        assert stage.begun == ["big to low"]
        stage.world.pod("more", "hot", 40.0, replicas=40)
        for _ in range(12):
            stage.measure()
            await stage.advance(10)
        stage.measure()
        await stage.loop.cycle()
        assert stage.begun == ["big to low"]
        assert stage.loop.plan is not None
        words = "another move from or to hot is still under way"
        assert any(note.endswith(words) for note in stage.loop.plan.notes)


async def test_pods_under_way_take_no_place_of_others() -> None:
    stage = draining(maintenanceParallelism=2)
    await stage.loop.cycle()
    assert len(stage.begun) == 2
    stage.finish(stage.specs[0].pod.name, phase="Completed")
    stage.world.state.pods.forget(f"default/{stage.specs[0].pod.name}")
    await stage.loop.cycle()
    assert len({spec.pod.name for spec in stage.specs}) == 3


async def test_what_the_watch_does_not_show_yet_counts_as_under_way() -> None:
    stage = draining(maintenanceParallelism=2)
    stage.api.late_watch = True
    await stage.loop.cycle()
    await stage.loop.cycle()
    assert len(stage.begun) == 2


async def test_own_moves_start_the_counts_over() -> None:
    world = PlannerWorld(config={**QUICK, "observations": 3})
    for name in ("hot", "low"):
        world.node(name)
    # So little that the level alone would not start the count over.
    world.pod("small", "hot", 8.0)
    world.pod("rest", "hot", 77.0)
    stage = Stage(world)
    stage.measure()
    async with stage.running():
        while not stage.specs:
            await stage.advance(5)
            stage.measure()
        await stage.advance(30)
        stage.finish("small", phase="Failed")
        stage.measure()
        await stage.advance(30)
        assert stage.loop.plan is not None
        assert not stage.loop.plan.goals
        assert any("of 3 samples" in note for note in stage.loop.plan.notes)


async def test_a_failed_write_leaves_out_the_rest_of_its_chain_only() -> None:
    stage = draining()
    stage.api.failure = ServerError(500, "no")
    await stage.loop.cycle()
    assert stage.begun == []
    stage.api.failure = None
    await stage.loop.cycle()
    assert len(stage.begun) == 3


async def test_a_move_that_exists_already_is_fine() -> None:
    stage = draining()
    stage.api.failure = AlreadyExists(409, "exists")
    await stage.loop.cycle()
    assert stage.begun == []


async def test_a_failed_move_of_a_node_under_maintenance_is_tried_again() -> None:
    stage = draining()
    await stage.loop.cycle()
    stage.finish("p0", phase="Failed")
    await stage.clock.advance(29)
    await stage.loop.cycle()
    assert len(stage.begun) == 3
    await stage.clock.advance(1)
    await stage.loop.cycle()
    [uid] = {spec.pod.uid for spec in stage.specs if spec.pod.name == "p0"}
    assert stage.api.deleted == [uid]


async def test_a_cycle_that_fails_is_counted_and_the_next_one_comes() -> None:
    stage = hot()
    stage.world.state.nodes.forget("hot")
    stage.observer.believe = _raise
    async with stage.running():
        assert stage.total("cycles_total", result="failed") == 1
        stage.observer.believe = stage.believe
        await stage.advance(30)
        assert stage.total("cycles_total", result="done") == 1


def _raise(_: object) -> Belief:
    raise ZeroDivisionError("one too many")


async def test_evictions_of_an_episode_are_told_beside_their_bound() -> None:
    stage = hot()
    async with stage.running():
        await stage.advance(1)
        stage.measure()
        await stage.advance(14)
        assert stage.total("episode_lower_bound") == 1
        assert stage.total("episode_evictions") == 0
        stage.finish("big")
        stage.world.pod("big", "low", 40.0)
        stage.measure()
        await stage.advance(30)
        assert stage.total("episode_evictions") == 1
        assert stage.total("episode_lower_bound") == 1


async def test_what_was_counted_on_requests_does_not_count_for_samples() -> None:
    stage = hot(observations=2)
    stage.source = WITHOUT_METRICS
    async with stage.running():
        await stage.advance(31)
        stage.measure()
        await stage.advance(31)
        assert stage.loop.plan is not None
        assert stage.loop.plan.moves
        assert "No metrics: none are served." in " ".join(stage.loop.plan.notes)
        assert stage.specs == []
        stage.source = MEASURED
        stage.measure()
        await stage.advance(31)
        assert stage.loop.plan.moves == ()
        assert len(stage.deciders) == 2


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, False),
        ({"paused": True}, False),
        ({"mode": "observe"}, False),
        ({"modes": {"LoadBalancing": "observe"}}, False),
        ({"cpuThreshold": 70.0}, True),
        ({"observations": 5}, True),
    ],
)
def test_only_what_changes_plans_makes_a_new_decider(change: dict[str, Any], differs: bool) -> None:
    old = RebalancerConfiguration()
    assert judges_differently(old, RebalancerConfiguration.model_validate(change)) is differs


async def test_another_threshold_counts_from_the_next_cycle_on() -> None:
    stage = hot(cpuThreshold=95.0, memoryThreshold=95.0)
    await stage.loop.cycle()
    assert stage.loop.plan is not None
    assert not stage.loop.plan.goals
    stage.config = stage.config.model_copy(update={"cpu_threshold": 80.0, "paused": True})
    await stage.loop.cycle()
    assert stage.loop.plan.goals == ("hot below 80 % CPU",)
    assert len(stage.deciders) == 2


class SlowDecider(Decider):
    """Decides when it is let."""

    def __init__(self, config: RebalancerConfiguration, gate: threading.Event) -> None:
        super().__init__(config)
        self._gate = gate

    def decide(
        self,
        belief: Belief,
        now_s: float,
        finished: Finished = NONE_FINISHED,
        *,
        at_once: bool = False,
    ) -> Decision:
        self._gate.wait()
        return super().decide(belief, now_s, finished, at_once=at_once)


def elector(api: MemoryApi, clock: FakeClock) -> Elector:
    return Elector(
        DirectClient(api, "me"),
        LeaderElection(name="helm"),
        namespace="here",
        identity="me",
        clock=clock,
        metrics=Metrics("test"),
        rng=random.Random(1),
    )


async def test_the_lease_is_renewed_while_a_long_plan_is_made() -> None:
    stage, gate, api = draining(), threading.Event(), MemoryApi()
    stage.decider = lambda config: SlowDecider(config, gate)  # type: ignore[method-assign]
    helm = elector(api, stage.clock)
    task = asyncio.create_task(Leadership(helm).run([stage.loop.run]))
    try:
        await stage.clock.until_sleeping(2)
        for _ in range(60):
            await stage.clock.advance(1)
            assert helm.is_leader
        assert stage.begun == []
        gate.set()
        await stage.clock.until_sleeping(3)
        assert len(stage.begun) == 3
    finally:
        gate.set()
        task.cancel()
        while not task.done():
            await stage.clock.advance(1)
        await asyncio.gather(task, return_exceptions=True)


async def test_losing_the_lead_ends_the_cycle_and_everything_beside_it() -> None:
    stage, api = hot(), MemoryApi()
    helm = elector(api, stage.clock)
    ended: list[str] = []

    async def controller() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("controller")

    task = asyncio.create_task(Leadership(helm).run([stage.loop.run, controller]))
    try:
        await stage.clock.until_sleeping(3)
        assert stage.loop.plan is not None
        [lease] = api.objects.values()
        lease["spec"]["holderIdentity"] = "another"
        lease["metadata"]["resourceVersion"] = "999999"
        for _ in range(15):
            await stage.clock.advance(1)
        assert not helm.is_leader
        assert ended == ["controller"]
        assert stage.loop.plan is None
        stage.measure()
        await stage.clock.advance(1)
        assert stage.begun == []
    finally:
        task.cancel()
        while not task.done():
            await stage.clock.advance(1)
        await asyncio.gather(task, return_exceptions=True)


async def test_a_quarantined_workload_is_not_planned_for_and_another_one_is() -> None:
    stage = hot(workloadCooldown="0s")
    snapshot = stage.world.state.snapshot()
    pod = snapshot.pods_by_name["default/big"]
    owner, top = pod.owner, snapshot.top_owner(pod)
    assert owner is not None
    assert top is not None
    now = datetime.fromtimestamp(stage.clock.now() - 60, UTC)
    failed = migration(
        spec_of(
            pod=PodRef(namespace="default", name="big-0", uid="gone"),
            controller=ControllerRef(kind=owner.kind, name=owner.name, uid=owner.uid),
            workload=ControllerRef(kind=top.kind, name=top.name, uid=top.uid),
        ),
        created=now,
        status=MigrationStatus(phase="Failed", evicted_at=now, finished_at=now),
    )
    stage.world.state.migrations.upsert(failed)
    async with stage.running():
        await stage.advance(14)
        stage.measure()
        await stage.advance(1)
        assert stage.begun == ["rest to low"]
        assert stage.loop.plan is not None
        reasons = {r.pod: [why.name for why in r.reasons] for r in stage.loop.plan.refused}
    assert reasons["default/big"] == ["WorkloadQuarantined"]
