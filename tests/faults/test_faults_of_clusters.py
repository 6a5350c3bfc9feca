"""The closed loop while pods, nodes, workloads and budgets change under a move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.contract import (
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.kube.resources import DEPLOYMENTS, PDBS, PODS
from common.kube.timestamps import micro_time
from simulator import build
from simulator.api import DeleteOptions
from simulator.build import STOP_AFTER, Manifest
from simulator.faults import NodeDeath, RejectPods
from tests.support.closed_loop import Loop, closed_loop
from tests.support.migration_stand import condition

WEB = build.deployment("web", 4)
SOON_S = 40.0
"""A deadline that comes while a test waits."""


def other_than(pod: dict[str, Any]) -> str:
    """Return a node that a pod is not on."""
    return "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2"


def soon(loop: Loop) -> dict[str, Any]:
    return {"deadline": micro_time(loop.clock.now() + SOON_S)}


def never_ends(make: Callable[..., Manifest]) -> Manifest:
    """Return a workload whose pods take no notice of being told to go."""
    spec = {"terminationGracePeriodSeconds": 100_000}
    return make("web", 3, annotations={STOP_AFTER: "10h"}, spec=spec)


@pytest.mark.parametrize(
    ("make", "ending"),
    [(build.deployment, "AsPlanned"), (build.stateful_set, "DeadlineExceeded")],
)
async def test_an_evicted_pod_that_never_ends_is_evicted_once(
    make: Callable[..., Manifest], ending: str, tmp_path: Path
) -> None:
    async with closed_loop(tmp_path, never_ends(make)) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 3))[0]
        deadline = soon(loop) if ending == "DeadlineExceeded" else {}
        name = loop.plan(pod, other_than(pod), **deadline)
        await loop.until_ended(name)
        await loop.cycles(health, 3)
    assert loop.outcomes() == [ending]
    assert loop.witness.evicted == [name]


async def test_a_replacement_that_finds_no_node_ends_the_move_at_its_deadline(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer():
        pod = (await loop.until_ready("web", 4))[0]
        nodes = loop.cluster.node_names()
        loop.when_evicted(lambda: loop.cordon(*nodes))
        name = loop.plan(pod, other_than(pod), **soon(loop))
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


@pytest.mark.parametrize("step", ["Acknowledged", "Evicted"])
@pytest.mark.parametrize("change", [delete, scale, scale_to_nothing])
async def test_a_workload_that_shrinks_meanwhile_ends_the_move(
    change: Callable[[Loop], None], step: str, tmp_path: Path
) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, step, lambda: change(loop))
        loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
        await loop.cycles(health, 2)
    [ending] = loop.outcomes()
    # What was faster is open: the end of the workload, or the move.
    assert ending in {"NotReplaced", "AsPlanned", "Alternative", "ReplacementLost"}
    assert len(loop.witness.evicted) <= 1


def created(loop: Loop) -> None:
    loop.cluster.create([build.pdb("web", match={"app": "web"}, min_available=4)])


def tightened(loop: Loop) -> None:
    loop.store.patch(PDBS, "web", {"spec": {"minAvailable": 4}}, namespace="default")


@pytest.mark.parametrize("change", [created, tightened])
async def test_a_budget_that_comes_meanwhile_is_kept(
    change: Callable[[Loop], None], tmp_path: Path
) -> None:
    budgets = [build.pdb("web", match={"app": "web"}, min_available=3)]
    async with (
        closed_loop(tmp_path, WEB, *(budgets if change is tightened else ())) as loop,
        loop.rebalancer(reschedulingInterval="2s") as health,
    ):
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        loop.when_done(name, "Marked", lambda: change(loop))
        loop.plan(pod, other_than(pod))
        await loop.cycles(health, 5)
        assert loop.witness.evicted == []
        loosened = {"spec": {"minAvailable": 3}}
        loop.store.patch(PDBS, "web", loosened, namespace="default")
        await loop.until_ended(name)
    assert set(loop.outcomes()) <= {"AsPlanned", "PdbExhausted"}


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


async def test_a_node_that_dies_while_it_receives_costs_one_eviction(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB) as loop, loop.rebalancer() as health:
        pod = (await loop.until_ready("web", 4))[0]
        target = other_than(pod)
        loop.when_evicted(lambda: loop.cluster.faults.inject(NodeDeath(node=target)))
        name = loop.plan(pod, target, **soon(loop))
        [status] = await loop.until_ended(name)
        await loop.cycles(health, 3)
        loop.cluster.faults.clear()
        await loop.until_ready("web", 4)
    assert status["phase"] in {"Completed", "Failed"}
    assert loop.witness.evicted == [name]


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
        loop.cluster.faults.inject(RejectPods(node=target))
        name = loop.plan(pod, target, **soon(loop))
        await loop.until_ended(name)
        await loop.cycles(health, 3)
        loop.cluster.faults.clear()
        await loop.until_ready("web", 4)
    assert loop.witness.evicted == [name]


PROTECTED: dict[str, dict[str, Any]] = {
    "NotSafeToEvict": {"annotations": {SAFE_TO_EVICT: "false"}},
    "DoNotDisrupt": {"annotations": {DO_NOT_DISRUPT: "true"}},
    "PreferNoEviction": {"annotations": {PREFER_NO_EVICTION: ""}},
    "ReschedulingDisabled": {"labels": {"app": "web", RESCHEDULING_LABEL: "disabled"}},
    "ExcludedNamespace": {"namespace": "kube-system"},
}


@pytest.mark.parametrize("reason", PROTECTED)
async def test_a_stranger_cannot_have_a_protected_pod_evicted(reason: str, tmp_path: Path) -> None:
    guarded = build.deployment("web", 4, **PROTECTED[reason])
    async with closed_loop(tmp_path, guarded) as loop, loop.rebalancer():
        pod = (await loop.until_ready("web", 4))[0]
        name = loop.plan(pod, other_than(pod))
        await loop.until_ended(name)
    assert loop.outcomes() == [reason]
    assert loop.witness.evicted == []
