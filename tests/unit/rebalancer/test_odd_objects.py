# SPDX-License-Identifier: Apache-2.0
"""An object of an unexpected kind is refused by name, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from common.api.objects import ReplicaSet
from common.cache.snapshot import Snapshot
from common.cluster.records import PodRecord
from common.config import RebalancerConfiguration
from common.load import Belief, LoadTracker
from common.metrics import Metrics
from rebalancer.decision import MAX_UNFIT, Decider, Decision
from rebalancer.report.page import PlanPublisher
from simulator import build
from tests.support.worlds.loop import Stage
from tests.support.worlds.planner import NOW_S, PlannerWorld
from tests.support.worlds.wire import owner_reference, stamped, wire, wire_pod

STRATEGIES = ["NodeMaintenance", "ResourceOptimization"]
HUGE = str(2**62)


def two_tasks() -> PlannerWorld:
    """Return a node to be emptied, one that is too hot, and room for both."""
    world = PlannerWorld(config={"enabledStrategies": STRATEGIES, "mode": "act"})
    world.node("drained", maintenance=True)
    world.node("hot")
    world.node("cool")
    world.node("cold")
    world.pod("leaves", "drained", 5)
    for name in ("a", "b", "c"):
        world.pod(name, "hot", 30)
    return world


def _endless_grace(world: PlannerWorld) -> None:
    world.pod("odd", "drained", 5, spec={"terminationGracePeriodSeconds": 2**63 - 1})
    world.pod("odd-2", "hot", 5, spec={"terminationGracePeriodSeconds": 2**63 - 1})


def _invented_resource(world: PlannerWorld) -> None:
    asks = {"resources": {"requests": {"x.io/y": HUGE}, "limits": {"x.io/y": HUGE}}}
    spec = {"containers": [{"name": n, "image": "i", **asks} for n in ("one", "two")]}
    world.pod("odd", "drained", 5, spec=spec)
    world.pod("odd-2", "hot", 5, spec=spec)


def _many_digits(world: PlannerWorld) -> None:
    asks = {"resources": {"requests": {"cpu": "9" * 400, "memory": "9" * 400}}}
    spec = {"containers": [{"name": "one", "image": "i", **asks}]}
    world.pod("odd", "drained", 5, spec=spec)
    world.pod("odd-2", "hot", 5, spec=spec)


def _owns_itself(world: PlannerWorld) -> None:
    for name, node in (("odd", "drained"), ("odd-2", "hot")):
        world.pod(name, node, 5)
        made = stamped(build.replica_set(name, 3, labels={"app": name}))
        own = {"ownerReferences": [owner_reference(made)]}
        made["metadata"] = {**made["metadata"], **own, "generation": 1}
        replicas = {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}
        made["status"] = {"observedGeneration": 1, **replicas}
        world.state.replica_sets.upsert(wire(ReplicaSet, made))


@pytest.mark.parametrize(
    "odd",
    [_endless_grace, _invented_resource, _many_digits, _owns_itself],
    ids=lambda f: f.__name__,
)
async def test_one_tenants_object_stops_neither_drains_nor_load_moves(
    odd: Callable[[PlannerWorld], None],
) -> None:
    world = two_tasks()
    odd(world)
    stage = Stage(world)
    for _ in range(3):
        stage.measure()
        await stage.clock.advance(20)
    stage.measure()
    async with stage.running():
        for _ in range(8):
            stage.measure()
            await stage.advance(20)
            for spec in stage.specs:
                stage.finish(spec.pod.name)
    assert stage.total("cycles_total", result="failed") == 0
    assert stage.total("cycles_total", result="done") > 0
    moved = {spec.pod.name for spec in stage.specs}
    assert "leaves" in moved
    assert moved & {"a", "b", "c"}
    expected = odd is _endless_grace
    assert ("odd" in moved) is expected


async def test_a_pod_that_no_node_is_given_to_stops_load_moves_for_ten_minutes_only() -> None:
    """It fits by all that we see; the scheduler may know that its storage is full."""
    world = two_tasks()
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    late = build.pod("late", namespace="tenant")
    world.state.pods.upsert(wire_pod(late, status={"conditions": [waits]}))
    stage = Stage(world)
    async with stage.running():
        for _ in range(27):
            stage.measure()
            await stage.advance(20)
        assert {spec.pod.name for spec in stage.specs} == {"leaves"}
        stage.finish("leaves")
        for _ in range(10):
            stage.measure()
            await stage.advance(20)
    assert {spec.pod.name for spec in stage.specs} & {"a", "b", "c"}


def decided(world: PlannerWorld, spoil: Callable[[PodRecord], PodRecord], *pods: str) -> Decision:
    """Decide on a cluster of which some pods' records are broken."""
    snapshot = world.state.snapshot()
    tracker = LoadTracker()
    tracker.observe(world._sample(), snapshot, NOW_S)
    load = tracker.view(snapshot, NOW_S)
    broken = spoiled(snapshot, spoil, {f"default/{name}" for name in pods})
    decider = Decider(RebalancerConfiguration.model_validate(dict(world.config)))
    return decider.decide(Belief(broken, load), NOW_S, at_once=True)


def spoiled(
    snapshot: Snapshot, spoil: Callable[[PodRecord], PodRecord], keys: set[str]
) -> Snapshot:
    def changed(pods: Any) -> Any:
        return {uid: spoil(pod) if pod.key in keys else pod for uid, pod in pods.items()}

    nodes = {
        name: msgspec.structs.replace(view, pods=changed(view.pods))
        for name, view in snapshot.nodes.items()
    }
    return msgspec.structs.replace(snapshot, nodes=nodes, pods=changed(snapshot.pods))


def _no_gate_can_read(pod: PodRecord) -> PodRecord:
    return msgspec.structs.replace(pod, annotations=5)


def _has_no_weight(pod: PodRecord) -> PodRecord:
    shape = msgspec.structs.replace(pod.shape, preferred_nodes=5)
    return msgspec.structs.replace(pod, shape=shape)


def _has_unknown_fit(pod: PodRecord) -> PodRecord:
    shape = msgspec.structs.replace(pod.shape, spread=5)
    return msgspec.structs.replace(pod, shape=shape)


@pytest.mark.parametrize(
    "spoil", [_no_gate_can_read, _has_no_weight, _has_unknown_fit], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("pods", [("a",), ("leaves", "a")], ids="+".join)
def test_a_pod_that_cannot_be_judged_is_refused_by_name(
    spoil: Callable[[PodRecord], PodRecord], pods: tuple[str, ...]
) -> None:
    plan = decided(two_tasks(), spoil, *pods).plan
    moved = {move.pod.removeprefix("default/") for move in plan.moves}
    assert ("leaves" in moved) is ("leaves" not in pods)
    assert moved & {"a", "b", "c"}
    assert not moved & set(pods)
    refused = {each.pod.removeprefix("default/"): each.reasons for each in plan.refused}
    for name in pods:
        assert [why.name for why in refused[name]] == ["Unjudgeable"]
        assert "judging it failed with" in refused[name][0].message


def test_pods_that_stay_are_counted_by_reason() -> None:
    metrics = Metrics("test")
    publisher = PlanPublisher(metrics)
    publisher.plan_made(decided(two_tasks(), _no_gate_can_read, "a").plan, 0.1)
    count = metrics.registry.get_sample_value
    assert count("evenkeel_plan_pods_refused", {"reason": "Unjudgeable"}) == 1
    publisher.plan_made(decided(two_tasks(), lambda pod: pod, "a").plan, 0.1)
    assert count("evenkeel_plan_pods_refused", {"reason": "Unjudgeable"}) is None


def test_a_pod_that_cannot_be_judged_is_logged_once_a_plan() -> None:
    with capture_logs() as logs:
        decided(two_tasks(), _no_gate_can_read, "a")
    told = [each["pod"] for each in logs if each["event"] == "pod not judged"]
    assert told == ["default/a"]


def test_nodes_are_emptied_even_if_load_cannot_be_planned_for() -> None:
    world = two_tasks()
    many = [f"odd-{number:02}" for number in range(MAX_UNFIT + 2)]
    world.node("hotter")
    for name in many:
        world.pod(name, "hotter", 4)
    with capture_logs() as logs:
        plan = decided(world, _has_unknown_fit, *many).plan
    assert [each["event"] for each in logs].count("planning for load failed") == 1
    assert [move.pod for move in plan.moves] == ["default/leaves"]
    assert any("Nothing is planned for load, because that failed" in note for note in plan.notes)
