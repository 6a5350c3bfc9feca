# SPDX-License-Identifier: Apache-2.0
"""The closed loop while pods, nodes, workloads and budgets change under a move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import (
    DELETION_COST,
    DO_NOT_DISRUPT,
    MIRROR_POD,
    PREFER_NO_EVICTION,
    PRODUCT,
    PRODUCT_LABEL,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.kube.resources import DEPLOYMENTS, MIGRATIONS, NODES, PDBS, PODS
from common.kube.timestamps import micro_time, parse_time
from simulator import build
from simulator.api import DeleteOptions, Json, is_ready, timestamp, with_condition
from simulator.api import condition as condition_of
from simulator.build import STOP_AFTER, Manifest
from simulator.faults import FreezeWatches, LostAnswers, NodeDeath, RejectPods, SlowStarts
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import figure
from tests.support.stands.migration import condition

WEB = build.deployment("web", 4)
MOVING = "InProgress"
SOON_S = 80.0
"""A deadline that comes while a test waits."""


def other_than(pod: dict[str, Any]) -> str:
    """Return a node that a pod is not on."""
    return "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2"


BRIEF = f"{SOON_S:g}s"
"""As long as replacements may take, from the eviction on."""


def soon(loop: Loop) -> dict[str, Any]:
    return {"deadline": micro_time(loop.clock.now() + SOON_S)}


def never_ends(make: Callable[..., Manifest]) -> Manifest:
    """Return a workload whose pods take no notice of being told to go."""
    spec = {"terminationGracePeriodSeconds": 100_000}
    return make("web", 3, annotations={STOP_AFTER: "10h"}, spec=spec)


async def test_an_evicted_pod_that_never_ends_is_evicted_once(tmp_path: Path) -> None:
    web = never_ends(build.deployment)
    async with closed_loop(tmp_path, web) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 3))[0]
        name = loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
        await loop.cycles(health, 3)
    assert loop.outcomes() == ["AsPlanned"]
    assert loop.witness.evicted == [name]


async def test_a_move_waits_for_a_pod_of_a_set_as_long_as_its_grace(tmp_path: Path) -> None:
    web = never_ends(build.stateful_set)
    async with closed_loop(tmp_path, web) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 3))[0]
        name = loop.plan(pod, other_than(pod), **soon(loop))
        await loop.until_says(name, "Replaced", "NoReplacementYet")
        await loop.clock.sleep(SOON_S)
        await loop.cycles(health, 3)
        assert loop.status(name)["phase"] == "InProgress", "its deadline counted until then"
        assert loop.witness.evicted == [name]
        loop.store.delete(MIGRATIONS, name)


async def test_a_replacement_that_finds_no_node_ends_the_move_at_its_deadline(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer(migrationDeadline=BRIEF):
        pod = (await loop.until_ready("web", 4))[0]
        nodes = loop.cluster.node_names()
        loop.when_evicted(lambda: loop.cordon(*nodes))
        name = loop.plan(pod, other_than(pod))
        await loop.until_says(name, "Replaced", "ReplacementPending")
        [status] = await loop.until_ended(name)
        loop.cordon(*nodes, on=False)
        await loop.until_ready("web", 4)
    assert (status["phase"], loop.outcomes()) == ("Failed", ["DeadlineExceeded"])
    assert loop.witness.evicted == [name]


def delete(loop: Loop) -> None:
    loop.store.delete(DEPLOYMENTS, "web", namespace="default")


def scale(loop: Loop) -> None:
    loop.store.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, namespace="default")


def scale_to_nothing(loop: Loop) -> None:
    loop.store.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, namespace="default")


LEFT: dict[Callable[[Loop], None], int] = {delete: 0, scale: 3, scale_to_nothing: 0}
FIRST, LAST = "-100", "100"
"""What it costs to be the pod that a set gives up first, or last."""


def with_cost(loop: Loop, pod: Json, cost: str) -> None:
    change = {"metadata": {"annotations": {DELETION_COST: cost}}}
    loop.store.patch(PODS, pod["metadata"]["name"], change, namespace="default")


@pytest.mark.parametrize("change", LEFT)
async def test_a_workload_that_gives_up_the_pod_itself_ends_the_move_before_it_begins(
    change: Callable[[Loop], None], tmp_path: Path
) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        with_cost(loop, pod, FIRST)
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, "Acknowledged", lambda: change(loop))
        loop.plan(pod, other_than(pod))
        [status] = await loop.until_ended(name)
        await loop.until_ready("web", LEFT[change])
        await loop.cycles(health, 2)
    assert (status["phase"], loop.outcomes()) == ("Completed", ["NotReplaced"])
    assert loop.witness.evicted == []


async def test_a_workload_that_gives_up_another_pod_is_moved_or_left_as_it_is(
    tmp_path: Path,
) -> None:
    """While there is one too many, it is not known which will go: then nothing is moved."""
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        with_cost(loop, pod, LAST)
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, "Acknowledged", lambda: scale(loop))
        loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
        await loop.until_ready("web", 3)
        await loop.cycles(health, 2)
    evicted = {"AsPlanned": [name], "NotReplaced": []}
    [ending] = loop.outcomes()
    assert loop.witness.evicted == evicted[ending]


@pytest.mark.parametrize("change", LEFT)
async def test_a_workload_that_shrinks_after_the_eviction_needs_no_replacement(
    change: Callable[[Loop], None], tmp_path: Path
) -> None:
    """The replacement, if there is one yet, does not start and is the first to go."""
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        loop.cluster.faults.inject(SlowStarts(factor=10_000.0))
        loop.when_done(name, "Evicted", lambda: change(loop))
        loop.plan(pod, other_than(pod))
        [status] = await loop.until_ended(name)
        await loop.until_ready("web", LEFT[change])
        await loop.cycles(health, 2)
    assert (status["phase"], loop.outcomes()) == ("Completed", ["NotReplaced"])
    assert loop.witness.evicted == [name]


TIER = {"tier": "shop"}
"""What `web` and `other` have in common, for a budget that covers both."""
SHOP = [
    build.deployment(app, n, labels={"app": app, **TIER}) for app, n in (("web", 4), ("other", 2))
]


def budget_of(min_available: int) -> Manifest:
    return build.pdb("shop", match=TIER, min_available=min_available)


def created(loop: Loop, min_available: int) -> None:
    loop.cluster.create([budget_of(min_available)])


def tightened(loop: Loop, min_available: int) -> None:
    change = {"spec": {"minAvailable": min_available}}
    loop.store.patch(PDBS, "shop", change, namespace="default")


BUDGET_CHANGES = pytest.mark.parametrize(
    ("change", "before"),
    [(created, []), (tightened, [budget_of(1)])],
    ids=["created", "tightened"],
)


@BUDGET_CHANGES
async def test_a_budget_that_is_spent_meanwhile_is_waited_for(
    change: Callable[[Loop, int], None], before: list[Manifest], tmp_path: Path
) -> None:
    """Five of six must be healthy, and one is not: no pod may go until it is."""
    async with closed_loop(tmp_path, *SHOP, *before) as loop, loop.rebalancer() as health:
        ill = (await loop.until_ready("other", 2))[0]
        pod = (await loop.until_ready("web", 4))[0]
        make_ready(loop, ill, on=False)
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, "Marked", lambda: change(loop, 5))
        loop.plan(pod, other_than(pod))
        await loop.until_says(name, "Evicted", "PdbExhausted")
        await loop.cycles(health, 3)
        assert loop.witness.evicted == []
        make_ready(loop, ill, on=True)
        await loop.until_ended(name)
    assert loop.outcomes() == ["AsPlanned"]
    assert loop.witness.evicted == [name]


def make_ready(loop: Loop, pod: Json, *, on: bool) -> None:
    """Let a pod pass its readiness probe, or fail it."""
    meta = pod["metadata"]
    told = condition_of("Ready", str(on), timestamp(loop.clock.now()))
    change = {"namespace": meta["namespace"], "status": True}
    loop.store.modify(PODS, meta["name"], lambda old: with_condition(old, told), **change)


@BUDGET_CHANGES
async def test_a_budget_that_never_allows_an_eviction_ends_the_move(
    change: Callable[[Loop, int], None], before: list[Manifest], tmp_path: Path
) -> None:
    async with closed_loop(tmp_path, *SHOP, *before) as loop, loop.rebalancer() as health:
        await loop.until_ready("other", 2)
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, "Marked", lambda: change(loop, 6))
        loop.plan(pod, other_than(pod))
        [status] = await loop.until_ended(name)
        await loop.cycles(health, 3)
        after = loop.store.get(PODS, pod["metadata"]["name"], "default")
    assert (status["phase"], loop.outcomes()) == ("Failed", ["PdbExhausted"])
    assert loop.witness.evicted == []
    assert after["metadata"]["uid"] == name


async def test_a_budget_of_the_users_own_takes_the_place_of_ours(tmp_path: Path) -> None:
    """Two budgets on one pod would have every eviction refused, for good."""
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer():
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        stood: list[str] = []

        def add_theirs() -> None:
            stood.extend(found["metadata"]["name"] for found in loop.store.list(PDBS))
            loop.cluster.create([build.pdb("theirs", match={"app": "web"}, min_available=3)])

        loop.when_done(name, "Protected", add_theirs)
        loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
    assert stood == ["web-rescheduler-pdb"]
    assert loop.outcomes() == ["AsPlanned"]
    assert [found["metadata"]["name"] for found in loop.store.list(PDBS)] == ["theirs"]


@pytest.mark.long(16)
async def test_a_node_that_dies_while_it_receives_costs_one_eviction(tmp_path: Path) -> None:
    """Its pods are given up long after the deadline, and come back somewhere else."""
    lost = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    spec = {"tolerations": [{**lost, "tolerationSeconds": 600}]}
    web = build.deployment("web", 4, spec=spec)
    async with (
        closed_loop(tmp_path, web) as loop,
        loop.rebalancer(migrationDeadline=BRIEF) as health,
    ):
        pod = (await loop.until_ready("web", 4))[0]
        target = other_than(pod)

        def begins_there(new: Json) -> bool:
            return on(new, target) and new["status"].get("phase") == "Pending"

        die = partial(loop.cluster.faults.inject, NodeDeath(node=target))
        loop.when_evicted(lambda: loop.when(PODS, begins_there, die))
        name = loop.plan(pod, target)
        [status] = await loop.until_ended(name)
        assert status["replacement"]["node"] == target
        ready = await loop.until_ready("web", 4)
        await loop.cycles(health, 3)
    assert (status["phase"], loop.outcomes()) == ("Failed", ["DeadlineExceeded"])
    assert loop.witness.evicted == [name]
    assert target not in {each["spec"]["nodeName"] for each in ready}


@pytest.mark.parametrize("step", ["Marked", "Evicted"])
async def test_a_rollout_that_begins_meanwhile_is_left_alone(step: str, tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        labels = {"app": "web", "release": "next"}
        change = {"spec": {"template": {"metadata": {"labels": labels}}}}
        patch = lambda: loop.store.patch(DEPLOYMENTS, "web", change, namespace="default")  # noqa: E731
        loop.when_done(name, step, patch)
        loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
        await loop.until(lambda: len(_of_release(loop)) == 4, "the rollout is over")
        await loop.cycles(health, 2)
    [ending] = loop.outcomes()
    assert ending in {"NotReplaced", "AsPlanned", "Alternative", "ReplacementLost"}
    assert len(loop.witness.evicted) <= (step == "Evicted")


def _of_release(loop: Loop) -> list[Any]:
    found = loop.ready("web")
    return [pod for pod in found if pod["metadata"]["labels"].get("release") == "next"]


async def test_the_next_pod_of_the_same_name_is_not_evicted(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, build.stateful_set("db", 3)) as loop, loop.rebalancer():
        pod = (await loop.until_ready("db", 3))[0]
        fault = loop.cluster.server.faults.add(
            verbs=["create"], resources=["pods/eviction"], status=500, times=1
        )
        name = loop.plan(pod, other_than(pod))
        await loop.until(lambda: fault.hits, "an eviction fails")
        now = DeleteOptions(grace_s=0)
        loop.store.delete(PODS, pod["metadata"]["name"], namespace="default", options=now)
        await loop.until_ended(name)
        assert condition(loop.migrations()[0], "Evicted")["reason"] == "PodGone"
        after = loop.store.get(PODS, pod["metadata"]["name"], "default")
    assert after["metadata"]["uid"] != name
    assert loop.witness.evicted == []


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "not-watched"])
async def test_the_next_pod_of_the_same_name_survives_an_eviction_whose_answer_was_lost(
    watched: bool, tmp_path: Path
) -> None:
    """The result is unknown, and when it can be read the namesake exists.

    Who sees no changes of pods tries the eviction itself again, the others only look.
    """
    async with closed_loop(tmp_path, build.stateful_set("db", 3)) as loop, loop.rebalancer():
        pod = (await loop.until_ready("db", 3))[0]
        uid, key = str(pod["metadata"]["uid"]), (pod["metadata"]["name"], "default")
        loop.cluster.faults.inject(
            LostAnswers(verbs=("create",), resources=("pods/eviction",), times=1)
        )
        looks = loop.cluster.server.faults.add(verbs=["get"], resources=["pods"], status=500)
        looks.times = 0
        loop.when_evicted(lambda: setattr(looks, "times", None))
        if not watched:
            freeze = partial(loop.cluster.faults.inject, FreezeWatches(resources=("pods",)))
            loop.when_done(uid, "Protected", freeze)
        name = loop.plan(pod, other_than(pod))
        await loop.until_says(name, "Evicted", "EvictionUnsure")
        await loop.until(lambda: namesake(loop, key, uid), "the next one is there")
        tried = looks.hits
        await loop.until(lambda: looks.hits > tried, "it is tried again")
        next_uid = namesake(loop, key, uid)
        loop.cluster.server.faults.remove(looks)
        await loop.until_says(name, "Evicted", "PodGone")
        loop.cluster.faults.clear()
        await loop.until_ended(name)
        await loop.until_ready("db", 3)
        assert namesake(loop, key, uid) == next_uid
    assert loop.outcomes() == ["AsPlanned"]
    assert loop.witness.evicted == [uid]


def namesake(loop: Loop, key: tuple[str, str], uid: str) -> str:
    """Return the uid of the pod that has the name of another; empty if there is none."""
    found = loop.store.find(PODS, *key)
    return "" if found is None or found["metadata"]["uid"] == uid else found["metadata"]["uid"]


async def test_the_second_half_of_a_swap_waits_until_the_first_pod_is_gone(tmp_path: Path) -> None:
    slow = build.deployment(
        "slow",
        2,
        annotations={STOP_AFTER: "100s"},
        spec={"terminationGracePeriodSeconds": 1000},
    )
    places = {"slow": ["node-0", "node-2"], "web": ["node-1"] * 4}
    async with closed_loop(tmp_path, WEB, slow, places=places) as loop, loop.rebalancer():
        [first] = [pod for pod in await loop.until_ready("slow", 2) if on(pod, "node-0")]
        second = (await loop.until_ready("web", 4))[0]
        there = first["metadata"]["uid"]
        evicted_early: list[bool] = []

        def look(change: Any) -> None:
            leaves = change.obj["metadata"]["uid"] == second["metadata"]["uid"]
            if leaves and "deletionTimestamp" in change.obj["metadata"]:
                evicted_early.append(
                    any(p["metadata"]["uid"] == there for p in loop.cluster.pods())
                )

        loop.store.subscribe(PODS, look)
        last = loop.plan(second, "node-0", needs=[there])
        await loop.until_says(last, "BudgetChecked", "WaitsForRoom")
        name = loop.plan(first, "node-1")
        await loop.until_ended(name, last)
    assert loop.outcomes() == ["AsPlanned", "AsPlanned"]
    assert loop.witness.evicted == [name, last]
    assert set(evicted_early) == {False}


def on(pod: dict[str, Any], node: str) -> bool:
    return bool(pod["spec"].get("nodeName") == node)


async def test_a_kubelet_that_rejects_the_replacement_costs_one_eviction(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        target = other_than(pod)
        # It takes its time, so that the replacement is known before it is lost.
        loop.cluster.fleet.delays.stop_s = (250.0, 250.0)
        loop.cluster.faults.inject(RejectPods(node=target))
        name = loop.plan(pod, target)
        [status] = await loop.until_ended(name)
        assert status["replacement"]["node"] == target
        ready = await loop.until_ready("web", 4)
        await loop.cycles(health, 3)
    assert (status["phase"], loop.outcomes()) == ("Failed", ["ReplacementLost"])
    assert loop.witness.evicted == [name]
    assert status["replacement"]["uid"] not in {each["metadata"]["uid"] for each in ready}


async def test_moves_that_go_wrong_stop_the_others_until_one_has_gone_well(tmp_path: Path) -> None:
    breaker = {"minimum": 2, "halfOpenAfter": "30s"}
    apps = [build.deployment(app, 4) for app in ("web", "shop", "api")]
    async with (
        closed_loop(tmp_path, *apps) as loop,
        loop.rebalancer(breaker=breaker, workloadCooldown="0s", migrationDeadline=BRIEF),
    ):
        await loop.until_ready("api", 4)
        # Of two workloads: one that is short of pods gives no more away.
        both = [await loop.until_ready(app, 4) for app in ("web", "shop")]
        pods = [next(pod for pod in found if not on(pod, "node-2")) for found in both]
        slow = loop.cluster.faults.inject(SlowStarts(node="node-2", factor=1_000.0))
        wrong = await loop.until_ended(*[loop.plan(pod, "node-2") for pod in pods])
        loop.cluster.faults.withdraw(slow)
        assert loop.outcomes() == ["DeadlineExceeded"] * 2
        assert all("evictedAt" in status for status in wrong)
        for pod in (pod for pod in loop.on("node-2") if not is_ready(pod)):
            loop.store.delete(
                PODS, pod["metadata"]["name"], namespace="default", options=DeleteOptions(grace_s=0)
            )
        for app in ("web", "shop"):
            await loop.until_ready(app, 4)
        later = [pod for pod in loop.ready("api") if not on(pod, "node-2")][:2]
        peak = at_once(loop, "strategy")
        names = [loop.plan(pod, "node-2") for pod in later]
        await loop.until_says(names[0], "BudgetChecked", "BreakerOpen")
        ended = await loop.until_ended(*names)
    assert [status["outcome"] for status in ended] == ["AsPlanned"] * 2
    assert max(peak) == 1, "the second one waits until the first has gone well"
    opened_s = max(parse_time(status["finishedAt"]) for status in wrong)
    assert min(parse_time(status["startedAt"]) for status in ended) >= opened_s + 30


PROTECTED: dict[str, dict[str, Any]] = {
    "NotSafeToEvict": {"annotations": {SAFE_TO_EVICT: "false"}},
    "DoNotDisrupt": {"annotations": {DO_NOT_DISRUPT: "true"}},
    "PreferNoEviction": {"annotations": {PREFER_NO_EVICTION: ""}},
    "ReschedulingDisabled": {"labels": {"app": "web", RESCHEDULING_LABEL: "disabled"}},
    "ExcludedNamespace": {"namespace": "kube-system"},
    "SystemPriority": {"spec": {"priorityClassName": "system-cluster-critical"}},
    "OwnPod": {"labels": {"app": "web", PRODUCT_LABEL: PRODUCT}},
    "ExcludedPod": {"labels": {"app": "web", "kept": "yes"}},
    "PodNotSelected": {},
}
CONFIGURED: dict[str, dict[str, Any]] = {
    "ExcludedPod": {"excludedPodSelector": "kept=yes"},
    "PodNotSelected": {"podSelector": "app!=web"},
}


@pytest.mark.parametrize("reason", PROTECTED)
async def test_a_stranger_cannot_have_a_protected_pod_evicted(reason: str, tmp_path: Path) -> None:
    guarded = build.deployment("web", 4, **PROTECTED[reason])
    settings = CONFIGURED.get(reason, {})
    async with closed_loop(tmp_path, guarded) as loop, loop.rebalancer(**settings):
        pod = (await loop.until_ready("web", 4))[0]
        [status] = await loop.until_ended(loop.plan(pod, other_than(pod)))
    assert (status["phase"], loop.outcomes()) == ("Failed", [reason])
    assert loop.witness.evicted == []
    assert pod["metadata"]["uid"] in {each["metadata"]["uid"] for each in loop.ready("web")}


def daemon_set_pod(loop: Loop) -> Manifest:
    made = {**build.deployment("agent", 1), "kind": "DaemonSet"}
    del made["spec"]["replicas"]
    [owner] = loop.cluster.create([made])
    return owned(build.pod("agent", node="node-0"), owner)


def mirror_pod(loop: Loop) -> Manifest:
    node = loop.store.get(NODES, "node-0")
    return owned(build.pod("agent", node="node-0", annotations={MIRROR_POD: "hash"}), node)


def orphaned_mirror_pod(_: Loop) -> Manifest:
    return build.pod("agent", node="node-0", annotations={MIRROR_POD: "hash"})


def owned(pod: Manifest, owner: Json) -> Manifest:
    """Return a pod that an object controls."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return pod


@pytest.mark.parametrize(
    ("make", "reason", "spec"),
    [
        (daemon_set_pod, "DaemonSetPod", {}),
        (mirror_pod, "MirrorPod", {}),
        (orphaned_mirror_pod, "MirrorPod", {"replacementName": "rescheduled-agent-1800000000"}),
    ],
)
async def test_a_stranger_cannot_have_a_pod_evicted_that_belongs_to_its_node(
    make: Callable[[Loop], Manifest], reason: str, spec: dict[str, Any], tmp_path: Path
) -> None:
    async with closed_loop(tmp_path) as loop, loop.rebalancer(barePods="replace"):
        loop.cluster.create([make(loop)])
        [pod] = await loop.until_ready("agent", 1)
        [status] = await loop.until_ended(loop.plan(pod, "node-1", **spec))
    assert (status["phase"], loop.outcomes()) == ("Failed", [reason])
    assert loop.witness.evicted == []
    assert [each["metadata"]["uid"] for each in loop.ready("agent")] == [pod["metadata"]["uid"]]


async def test_a_stranger_cannot_have_a_pod_moved_to_the_control_plane(tmp_path: Path) -> None:
    ruling = build.node("ruling", labels={"node-role.kubernetes.io/control-plane": ""})
    nodes = [build.node("node-0"), build.node("node-1"), ruling]
    places = {"web": ["node-0", "node-0", "node-1", "node-1"]}
    async with closed_loop(tmp_path, WEB, nodes=nodes, places=places) as loop, loop.rebalancer():
        pod = (await loop.until_ready("web", 4))[0]
        await loop.until_ended(loop.plan(pod, "ruling"))
    assert loop.outcomes() == ["TargetControlPlane"]
    assert loop.witness.evicted == []


async def test_a_stranger_cannot_have_a_node_overfilled(tmp_path: Path) -> None:
    """Three quarters of the target are in use, and the pod uses an eighth of a node."""
    web = build.deployment("web", 3, cpu="100m", usage_cpu="1")
    full = build.deployment("full", 2, cpu="100m", usage_cpu="3")
    places = {"web": ["node-0", "node-0", "node-2"], "full": ["node-1", "node-1"]}
    async with closed_loop(tmp_path, web, full, places=places) as loop, loop.rebalancer() as health:
        await loop.until_ready("full", 2)
        pod = (await loop.until_ready("web", 3))[0]
        await eventually(lambda: is_known_to_be_full(health), "the load of the target is known")
        name = loop.plan(pod, "node-1", **soon(loop))
        await loop.until_says(name, "BudgetChecked", "TargetTooFull")
        await loop.until_ended(name)
        assert await figure(health, "limits_total", limit="TargetTooFull") == 1
    assert loop.outcomes() == ["DeadlineExceeded"]
    assert loop.witness.evicted == []


async def is_known_to_be_full(health: str) -> bool:
    return await figure(health, "node_load_percent", resource="cpu", of="highest") > 70


async def test_a_stranger_cannot_hurry_a_workload_by_one_plan_id_for_all(tmp_path: Path) -> None:
    """Moves of one plan do not make each other rest; those that come after its end do."""
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer(workloadCooldown="30s"):
        first, second = (await loop.until_ready("web", 4))[:2]
        [before] = await loop.until_ended(loop.plan(first, other_than(first), planId="mine"))
        await loop.clock.sleep(1.0)
        name = loop.plan(second, other_than(second), planId="mine")
        await loop.until_says(name, "BudgetChecked", "WorkloadCooldown")
        [status] = await loop.until_ended(name)
    assert parse_time(status["evictedAt"]) - parse_time(before["finishedAt"]) >= 30


LIMITED: dict[str, tuple[str, dict[str, Any]]] = {
    "MaxInFlightPerNode": ("source", {"maxInFlightPerNode": 1}),
    "MaxInboundPerNode": ("target", {"maxInFlightPerNode": 9, "maxInboundPerNode": 1}),
    "WorkloadAtOnce": ("workload", {"maxInFlightPerNode": 9}),
    "StatefulSetOneAtATime": ("workload", {"maxInFlightPerNode": 9}),
}
WIDELY = {
    "WorkloadAtOnce": [build.deployment("web", 3)],
    "StatefulSetOneAtATime": [build.stateful_set("web", 5)],
}
APART = [build.deployment(app, 4, labels={"app": app, "all": "web"}) for app in "abc"]


@pytest.mark.parametrize("limit", LIMITED)
async def test_strangers_cannot_have_more_under_way_than_is_allowed(
    limit: str, tmp_path: Path
) -> None:
    """However many Migrations are created at once, one of them is under way at a time."""
    by, settings = LIMITED[limit]
    async with (
        closed_loop(tmp_path, *WIDELY.get(limit, APART)) as loop,
        loop.rebalancer(**settings) as health,
    ):
        apps = [app["metadata"]["name"] for app in WIDELY.get(limit, APART)]
        wanted = sum(app["spec"]["replicas"] for app in WIDELY.get(limit, APART))
        await loop.until(lambda: len(loop.ready()) == wanted, "all pods run")
        await loop.clock.sleep(1.0)
        pods = [pod for app in apps for pod in loop.ready(app)[: 9 // len(apps)]]
        chosen = [pod for pod in pods if not on(pod, "node-1")][:3]
        peak = at_once(loop, by)
        names = [loop.plan(pod, "node-1", planId="mine") for pod in chosen]
        await loop.until_ended(*names)
        assert await figure(health, "limits_total", limit=limit) >= 1
    assert loop.outcomes() == ["AsPlanned"] * len(chosen)
    assert (len(chosen) > 1, max(peak)) == (True, 1)


def at_once(loop: Loop, by: str) -> list[int]:
    """Return a list that gets how many moves of one node or workload are under way, each time."""
    found: list[int] = []

    def look(_: Any) -> None:
        moves = [m["spec"] for m in loop.migrations() if m.get("status", {}).get("phase") == MOVING]
        named = Counter(str(move[by]) for move in moves)
        found.append(max(named.values(), default=0))

    loop.store.subscribe(MIGRATIONS, look)
    return found


async def test_a_stranger_cannot_have_a_replacement_moved_on_within_the_hour(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer(workloadCooldown="0s") as health:
        pod = (await loop.until_ready("web", 4))[0]
        [first] = await loop.until_ended(loop.plan(pod, other_than(pod), planId="mine"))
        landed = first["replacement"]["name"]
        [again] = [p for p in await loop.until_ready("web", 4) if p["metadata"]["name"] == landed]
        name = loop.plan(again, pod["spec"]["nodeName"], planId="mine", **soon(loop))
        await loop.until_says(name, "BudgetChecked", "LineageCooldown")
        await loop.until_ended(name)
        assert await figure(health, "limits_total", limit="LineageCooldown") == 1
    assert loop.outcomes() == ["AsPlanned", "DeadlineExceeded"]
    assert len(loop.witness.evicted) == 1


async def test_a_namespace_loses_no_more_in_a_cycle_than_it_may_over_a_restart(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"maxPerNamespace": 1, "reschedulingInterval": "1h"}
    async with closed_loop(tmp_path, WEB) as loop:
        pods = (await loop.until_ready("web", 4))[:2]
        async with loop.rebalancer(**settings):
            await loop.until_ended(loop.plan(pods[0], other_than(pods[0]), planId="mine"))
        async with loop.rebalancer(**settings) as health:
            name = loop.plan(pods[1], other_than(pods[1]), planId="other", **soon(loop))
            await loop.until_says(name, "BudgetChecked", "MaxPerNamespace")
            await loop.until_ended(name)
            assert await figure(health, "limits_total", limit="MaxPerNamespace") == 1
    assert loop.outcomes() == ["AsPlanned", "DeadlineExceeded"]
    assert len(loop.witness.evicted) == 1


async def test_strangers_cannot_have_more_moved_in_one_interval_than_is_allowed(
    tmp_path: Path,
) -> None:
    settings: dict[str, Any] = {"maxReschedulePods": 1, "reschedulingInterval": "1h"}
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer(**settings):
        pods = (await loop.until_ready("web", 4))[:2]
        names = [
            loop.plan(pod, other_than(pod), planId=f"plan-{number}", **soon(loop))
            for number, pod in enumerate(pods)
        ]
        await loop.until_ended(*names)
    assert loop.outcomes() == ["AsPlanned", "DeadlineExceeded"]
    assert len(loop.witness.evicted) == 1
