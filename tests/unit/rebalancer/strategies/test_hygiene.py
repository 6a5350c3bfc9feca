# SPDX-License-Identifier: Apache-2.0
"""Old, restarting and failed pods: which rules match, what is moved and what is removed."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import ConfigError, RebalancerConfiguration, Strategy, parse_config
from common.config.hygiene import LIFETIME_STATES
from rebalancer.evictability import Context
from rebalancer.goals import Removal
from rebalancer.removals import Removals, removals
from simulator import build
from tests.support.worlds.planner import NOW_S, PlannerWorld
from tests.support.worlds.wire import wire_pod

Json = dict[str, Any]
HEAD = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"
AGE_S = 7200  # of pods that were created LONG_AGO, at NOW_S
STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def status(
    phase: str = "Running",
    *,
    ready: bool = False,
    reason: str = "",
    conditions: tuple[Json, ...] = (),
    **groups: Json,
) -> Json:
    """Return a status; containers by group, as `main`, `init` or `ephemeral`."""
    since = "2027-01-15T06:00:00Z"
    own = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    names = {"main": "container", "init": "initContainer", "ephemeral": "ephemeralContainer"}
    found = {f"{names[group]}Statuses": [{"name": "c", **c}] for group, c in groups.items()}
    return {"phase": phase, "reason": reason, "conditions": [own, *conditions], **found}


def waits(reason: str, restarts: int = 0) -> Json:
    return {"restartCount": restarts, "state": {"waiting": {"reason": reason}}}


def ended(reason: str = "Error", code: int = 1) -> Json:
    return {"restartCount": 0, "state": {"terminated": {"reason": reason, "exitCode": code}}}


def runs(restarts: int) -> Json:
    return {"restartCount": restarts, "state": {"running": {}}}


def world_of(rules: Json, given: Json | None = None, **pod: Any) -> PlannerWorld:
    config = {"enabledStrategies": ["Hygiene"], "mode": "act", "hygiene": rules}
    world = PlannerWorld(config=config)
    world.node("a")
    world.node("b")
    world.pod("web-0", "a", 5.0, **{"owner": "web", "status": given, **pod})
    return world


def removed(world: PlannerWorld) -> Removals:
    cluster = world.cluster()
    context = Context.of(cluster.snapshot, cluster.config, now_s=NOW_S)
    return removals(cluster.snapshot, cluster.config, context, NOW_S)


def outcome(world: PlannerWorld) -> str:
    """Return what becomes of the one pod."""
    moves, listed = world.plan().moves, removed(world).listed
    assert not (moves and listed)
    return "moved" if moves else "removed" if listed else "stays"


LIFETIME: list[tuple[Json, Json, str]] = [
    ({"maxAge": "119m"}, status(ready=True), "moved"),
    ({"maxAge": "2h"}, status(ready=True), "stays"),
    ({"maxAge": "1h"}, status(ready=False), "removed"),
    ({"maxAge": "1h", "states": ["Pending"]}, status(ready=True), "stays"),
    ({"states": ["Running"]}, status(ready=True), "moved"),
    ({"states": ["Pending"]}, status("Pending", main=waits("ContainerCreating")), "removed"),
    ({"states": ["NodeLost"]}, status("Unknown", reason="NodeLost"), "removed"),
    (
        {"states": ["ImagePullBackOff"]},
        status("Pending", main=waits("ImagePullBackOff")),
        "removed",
    ),
    ({"states": ["OOMKilled"]}, status("Failed", main=ended("OOMKilled", 137)), "removed"),
    ({"states": ["Succeeded"]}, status("Succeeded", main=ended("Completed", 0)), "removed"),
    ({"states": ["Completed"]}, status(ready=True, init=ended("Completed", 0)), "stays"),
    (
        {"states": ["Completed"], "includingInitContainers": True},
        status(ready=True, init=ended("Completed", 0)),
        "moved",
    ),
    ({"states": ["Error"]}, status(ready=True, ephemeral=ended()), "stays"),
    (
        {"states": ["Error"], "includingEphemeralContainers": True},
        status(ready=True, ephemeral=ended()),
        "moved",
    ),
    ({"exitCodes": [3]}, status(main=ended(code=3)), "removed"),
    ({"exitCodes": [3]}, status(main=ended(code=4)), "stays"),
    ({"exitCodes": [3]}, status(init=ended(code=3)), "stays"),
    (
        {"exitCodes": [3], "includingInitContainers": True},
        status("Pending", init=ended(code=3)),
        "removed",
    ),
    ({"conditions": [{"type": "Ready", "status": "False", "minAge": "2h"}]}, status(), "removed"),
    ({"conditions": [{"type": "Ready", "status": "False", "minAge": "3h"}]}, status(), "stays"),
    ({"conditions": [{"type": "Ready", "status": "True"}]}, status(ready=True), "moved"),
    ({"conditions": [{"reason": "X"}, {"type": "Y"}]}, status(ready=True), "stays"),
    (
        {"conditions": [{"reason": "X"}, {"type": "Y"}]},
        status(ready=True, conditions=({"type": "Y", "status": "False"},)),
        "moved",
    ),
    (
        {"conditions": [{"type": "Y", "minAge": "0s"}]},
        status(ready=True, conditions=({"type": "Y", "status": "False"},)),
        "stays",
    ),
]


@pytest.mark.parametrize(("rule", "given", "wanted"), LIFETIME)
def test_pods_that_have_been_there_for_too_long(rule: Json, given: Json, wanted: str) -> None:
    assert outcome(world_of({"podLifeTime": [rule]}, given)) == wanted


RESTARTS: list[tuple[Json, Json, str]] = [
    ({"restarts": 10}, status(ready=True, main=runs(10)), "moved"),
    ({"restarts": 10}, status(ready=True, main=runs(9)), "stays"),
    ({"restarts": 10}, status(main=waits("CrashLoopBackOff", 12)), "removed"),
    ({"restarts": 10}, status(ready=True, main=runs(5), init=runs(5)), "stays"),
    (
        {"restarts": 10, "includingInitContainers": True},
        status(ready=True, main=runs(5), init=runs(5)),
        "moved",
    ),
    (
        {"restarts": 10, "states": ["CrashLoopBackOff"]},
        status(ready=True, main=runs(10)),
        "stays",
    ),
    (
        {"restarts": 10, "states": ["CrashLoopBackOff"]},
        status(main=waits("CrashLoopBackOff", 12)),
        "removed",
    ),
    ({"restarts": 10, "states": ["Running"]}, status(ready=True, main=runs(10)), "moved"),
]


@pytest.mark.parametrize(("rule", "given", "wanted"), RESTARTS)
def test_pods_that_were_restarted_too_often(rule: Json, given: Json, wanted: str) -> None:
    assert outcome(world_of({"tooManyRestarts": [rule]}, given)) == wanted


EVICTED = status("Failed", reason="Evicted")
FAILED: list[tuple[Json, Json, str]] = [
    ({}, EVICTED, "removed"),
    ({}, status("Succeeded"), "stays"),
    ({}, status(main=waits("CrashLoopBackOff")), "stays"),
    ({"minAge": "2h"}, EVICTED, "removed"),
    ({"minAge": "3h"}, EVICTED, "stays"),
    ({"reasons": ["Evicted"]}, EVICTED, "removed"),
    ({"reasons": ["OOMKilled"]}, EVICTED, "stays"),
    ({"reasons": ["OOMKilled"]}, status("Failed", main=ended("OOMKilled")), "removed"),
    ({"reasons": ["Error"]}, status("Failed", init=ended()), "stays"),
    (
        {"reasons": ["Error"], "includingInitContainers": True},
        status("Failed", init=ended()),
        "removed",
    ),
    ({"exitCodes": [7]}, status("Failed", main=ended(code=7)), "removed"),
    ({"exitCodes": [7]}, status("Failed", main=ended(code=8)), "stays"),
]


@pytest.mark.parametrize(("rule", "given", "wanted"), FAILED)
def test_pods_that_have_failed(rule: Json, given: Json, wanted: str) -> None:
    assert outcome(world_of({"failedPods": [rule]}, given)) == wanted


SELECTED: list[tuple[Json, bool]] = [
    ({"namespaces": {"include": ["default"]}}, True),
    ({"namespaces": {"include": ["other"]}}, False),
    ({"namespaces": {"exclude": ["default"]}}, False),
    ({"podSelector": "app=web"}, True),
    ({"podSelector": "app=other"}, False),
    ({"ownerKinds": {"include": ["ReplicaSet"]}}, True),
    ({"ownerKinds": {"include": ["Job"]}}, False),
    ({"ownerKinds": {"exclude": ["ReplicaSet"]}}, False),
    ({"ownerKinds": {"exclude": ["Job"]}}, True),
]


@pytest.mark.parametrize(("rule", "wanted"), SELECTED)
def test_the_pods_that_a_rule_is_about(rule: Json, wanted: bool) -> None:
    assert bool(removed(world_of({"failedPods": [rule]}, EVICTED)).listed) is wanted


def with_job_pod(**rule: Any) -> PlannerWorld:
    world = PlannerWorld(
        config={
            "enabledStrategies": ["Hygiene"],
            "mode": "act",
            "hygiene": {"failedPods": [rule]},
        }
    )
    world.node("a")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "task", "uid": "j", "controller": True}
    made = build.pod("task-0", node="a")
    world.state.pods.upsert(wire_pod(made, status=EVICTED, ownerReferences=[job]))
    return world


def test_finished_pods_of_jobs_stay_unless_they_are_named() -> None:
    assert removed(with_job_pod()).listed == ()
    assert removed(with_job_pod(ownerKinds={"exclude": ["ReplicaSet"]})).listed == ()
    assert len(removed(with_job_pod(ownerKinds={"include": ["Job"]})).listed) == 1


def test_a_removal_says_what_and_why() -> None:
    [found] = removed(world_of({"failedPods": [{}]}, EVICTED)).listed
    assert isinstance(found, Removal)
    assert (found.key, found.node, found.finished) == ("default/web-0", "a", True)
    assert found.message == "it has failed (Evicted) (hygiene.failedPods[0])"
    assert found.deferred_by == ""


def test_a_move_says_what_and_why() -> None:
    world = world_of({"podLifeTime": [{"maxAge": "1h"}]}, status(ready=True))
    [move] = world.plan().moves
    assert (move.strategy, move.reason, move.target) == (Strategy.HYGIENE, "Hygiene", "b")
    assert move.message == (
        f"default/web-0 is to be replaced: it was created {AGE_S}s ago (hygiene.podLifeTime[0])"
    )


PROTECTED: list[tuple[Json, str]] = [
    ({"annotations": STAYS}, "NotSafeToEvict"),
    ({"kind": "none"}, "BarePod"),
    ({"labels": {"scheduler.alpha.kubernetes.io/rescheduling": "disabled"}}, "RescheduleDisabled"),
    ({"spec": {"priority": 2_000_000_000}}, "SystemPriority"),
]


@pytest.mark.parametrize("given", [EVICTED, status(main=waits("CrashLoopBackOff", 50))])
@pytest.mark.parametrize("pod", [pod for pod, _ in PROTECTED])
def test_what_protects_a_pod_from_moves_protects_it_here(pod: Json, given: Json) -> None:
    rules = {"failedPods": [{}], "tooManyRestarts": [{"restarts": 10}]}
    found = removed(world_of(rules, given, **pod))
    assert found.listed == ()
    assert found.notes[0].startswith("Hygiene does not remove 1 pod that its rules match: 1 × ")


def test_a_budget_is_asked_only_about_pods_that_run() -> None:
    rules = {"failedPods": [{}], "tooManyRestarts": [{"restarts": 10}]}
    for given, wanted in ((EVICTED, 1), (status(main=waits("CrashLoopBackOff", 50)), 0)):
        world = world_of(rules, given)
        world.pdb("web", {"app": "web"}, allowed=0, healthy=0)
        assert len(removed(world).listed) == wanted


def test_local_storage_of_a_pod_that_runs_is_kept() -> None:
    volume = {"volumes": [{"name": "v", "emptyDir": {}}]}
    rules = {"failedPods": [{}], "tooManyRestarts": [{"restarts": 10}]}
    running = world_of(rules, status(main=waits("CrashLoopBackOff", 50)), spec=volume)
    assert removed(running).listed == ()
    assert len(removed(world_of(rules, EVICTED, spec=volume)).listed) == 1


def test_only_so_many_are_removed_in_a_cycle_the_oldest_first() -> None:
    world = world_of(
        {"failedPods": [{}], "maxRemovals": 2}, EVICTED, created="2027-01-15T07:00:00Z"
    )
    for number, hour in ((1, 5), (2, 4), (3, 6)):
        created = f"2027-01-15T0{hour}:00:00Z"
        world.pod(f"web-{number}", "a", 0.0, owner="web", status=EVICTED, created=created)
    listed = removed(world).listed
    assert [each.name for each in listed] == ["web-2", "web-1", "web-3", "web-0"]
    assert [bool(each.deferred_by) for each in listed] == [False, False, True, True]
    assert listed[2].deferred_by == (
        "2 pods are removed in this cycle, the limit (hygiene.maxRemovals)"
    )


def test_observing_is_shown_and_does_not_use_up_the_limit() -> None:
    world = world_of({"failedPods": [{}]}, EVICTED)
    world.config = {**world.config, "mode": "observe"}
    [found] = removed(world).listed
    assert "observe" in found.deferred_by


def test_a_pod_that_is_being_moved_is_not_removed() -> None:
    world = world_of({"tooManyRestarts": [{"restarts": 1}]}, status(main=waits("Error", 5)))
    assert len(removed(world).listed) == 1
    world.moving("web-0", "b")
    assert removed(world).listed == ()


def test_without_rules_a_note_says_so() -> None:
    plan = world_of({}, EVICTED).plan()
    assert "Hygiene has no rules (hygiene), so it does nothing." in plan.notes


def test_pods_that_may_not_be_moved_are_counted_in_a_note() -> None:
    world = world_of({"podLifeTime": [{"maxAge": "1h"}]}, status(ready=True), annotations=STAYS)
    plan = world.plan()
    assert plan.goals == ()
    note = "1 pod is to be replaced by the rules of Hygiene, but may not be moved now."
    assert note in plan.notes


def test_nothing_is_done_unless_it_is_enabled() -> None:
    world = world_of({"podLifeTime": [{"maxAge": "1h"}], "failedPods": [{}]}, EVICTED)
    world.config = {**world.config, "enabledStrategies": ["ResourceOptimization"]}
    assert outcome(world) == "stays"


WRONG: list[tuple[str, str]] = [
    ("podLifeTime: [{}]", "set maxAge, states, conditions or exitCodes"),
    ("podLifeTime: [{states: [Runing]}]", "Runing is none of"),
    ("podLifeTime: [{conditions: [{}]}]", "set type, status, reason or minAge"),
    (
        "podLifeTime: [{conditions: [{type: Initialized, status: 'True'}]}]",
        "Initialized is not kept while it is True: use Ready",
    ),
    ("tooManyRestarts: [{}]", "hygiene.tooManyRestarts[0].restarts"),
    ("tooManyRestarts: [{restarts: 0}]", "must be"),
    ("tooManyRestarts: [{restarts: 1, states: [Failed]}]", "Failed is none of"),
    ("failedPods: [{namespaces: {include: [a], exclude: [b]}}]", "only one of include and exclude"),
    ("failedPods: [{ownerKinds: {include: [A], exclude: [B]}}]", "only one of include and exclude"),
]


@pytest.mark.parametrize(("rules", "why"), WRONG)
def test_rules_that_say_nothing_or_nonsense_are_refused(rules: str, why: str) -> None:
    with pytest.raises(ConfigError, match="hygiene") as failure:
        parse_config(f"{HEAD}hygiene: {{{rules}}}\n", RebalancerConfiguration, "test")
    assert why in str(failure.value)


def test_every_state_is_accepted() -> None:
    states = ", ".join(sorted(LIFETIME_STATES))
    text = f"{HEAD}hygiene: {{podLifeTime: [{{states: [{states}]}}]}}\n"
    parse_config(text, RebalancerConfiguration, "test")
