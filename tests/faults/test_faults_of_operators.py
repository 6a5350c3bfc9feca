# SPDX-License-Identifier: Apache-2.0
"""The closed loop beside people who maintain nodes and switch it off, and autoscalers."""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import COMPLETION_INDEX, MAINTENANCE_PROGRESS
from common.clock import SYSTEM
from common.kube.resources import DEPLOYMENTS, JOBS, LEASES, MIGRATIONS, NODES, PODS
from simulator import build
from simulator.api import Change, Json
from simulator.faults import FreezeWatches, MetricsUnavailable, ServerError, SlowStarts
from tests.support.http import fetch
from tests.support.stands.closed_loop import PATIENCE_S, Loop, closed_loop
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.loop_programs import IMPATIENT, figure, is_ready_at

MAINTENANCE: dict[str, Any] = {"enabledStrategies": ["NodeMaintenance"]}
REMOVAL = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}
CYCLES = 50


async def test_a_node_under_maintenance_is_emptied_within_its_budgets(tmp_path: Path) -> None:
    web, api = build.deployment("web", 6), build.deployment("api", 3)
    budgets = [build.pdb(app, match={"app": app}, max_unavailable=1) for app in ("web", "api")]
    places = {"web": ["node-0"] * 6, "api": ["node-0", "node-1", "node-2"]}
    async with (
        closed_loop(tmp_path, web, api, *budgets, places=places) as loop,
        loop.rebalancer(**MAINTENANCE),
    ):
        await loop.until_ready("web", 6)
        maintain(loop.cluster, "node-0", on=True)
        await loop.until(lambda: not loop.on("node-0"), "node-0 is empty")
        await loop.until(lambda: loop.ours() == ["node-0"], "it is cordoned")
        await loop.settled()
        maintain(loop.cluster, "node-0", on=False)
        await loop.until(lambda: not loop.ours(), "the cordon is undone")
    assert len(loop.witness.evicted) == 7
    node = loop.store.get(NODES, "node-0")
    assert not node["spec"].get("unschedulable")
    assert MAINTENANCE_PROGRESS not in node["metadata"]["annotations"]


async def test_maintenance_that_is_canceled_stops_half_way(tmp_path: Path) -> None:
    web = build.deployment("web", 8)
    budget = build.pdb("web", match={"app": "web"}, max_unavailable=1)
    async with (
        closed_loop(tmp_path, web, budget, places={"web": ["node-0"] * 8}) as loop,
        loop.rebalancer(**MAINTENANCE) as health,
    ):
        await loop.until_ready("web", 8)
        loop.cluster.faults.inject(SlowStarts(factor=10.0))
        maintain(loop.cluster, "node-0", on=True)
        await loop.until(lambda: len(loop.witness.evicted) == 2, "two have left")
        maintain(loop.cluster, "node-0", on=False)
        await loop.until(lambda: not loop.ours(), "the cordon is undone")
        await loop.settled()
        evicted = len(loop.witness.evicted)
        await loop.cycles(health, 3)
    assert len(loop.witness.evicted) == evicted < 8
    assert not loop.store.get(NODES, "node-0")["spec"].get("unschedulable")


FOUR = build.deployment("web", 4)


def rolling_out(loop: Loop, *, on: bool) -> None:
    """Begin a rollout of `web` that does not get on, or take it back."""
    labels = {"app": "web", "release": "next" if on else None}
    change = {"spec": {"paused": on, "template": {"metadata": {"labels": labels}}}}
    loop.store.patch(DEPLOYMENTS, "web", change, namespace="default")


async def waiting_to_go(loop: Loop) -> str:
    """Plan a move that has begun and waits for its workload right before the eviction."""
    pod = (await loop.until_ready("web", 4))[0]
    name = str(pod["metadata"]["uid"])
    loop.when_done(name, "Marked", lambda: rolling_out(loop, on=True))
    loop.plan(pod, "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2")
    await loop.until_says(name, "Evicted", "RolloutInProgress")
    return name


async def test_pausing_stops_moves_that_have_begun_and_a_broken_file_changes_nothing(
    tmp_path: Path,
) -> None:
    async with closed_loop(tmp_path, FOUR) as loop:
        file = loop.configured()
        async with loop.rebalancer(file) as health:
            name = await waiting_to_go(loop)
            loop.configured(paused=True)
            await told(health, "config_reloads_total", 1, result="applied")
            rolling_out(loop, on=False)
            await loop.until_says(name, "Evicted", "Paused")
            file.write_text("paused: no, or yes: who knows")
            await told(health, "config_refused", 1)
            await loop.cycles(health, 3)
            assert loop.witness.evicted == [], "what was in force stays in force"
            loop.configured(paused=False)
            await told(health, "config_refused", 0)
            [status] = await loop.until_ended(name)
    assert status["outcome"] == "AsPlanned"


async def test_moves_that_have_begun_rest_while_nothing_is_measured(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, FOUR, load={"metricExpiry": "20s"}) as loop,
        loop.rebalancer(metricExpiry="20s") as health,
    ):
        name = await waiting_to_go(loop)
        loop.cluster.faults.inject(MetricsUnavailable())
        await told(health, "nodes_unknown", 3)
        rolling_out(loop, on=False)
        await loop.until_says(name, "Evicted", "BreakerOpen")
        await loop.cycles(health, 3)
        assert loop.witness.evicted == []
        assert await figure(health, "breaker_open", purpose="load") == 1
        assert await figure(health, "limits_total", limit="BreakerOpen") >= 1
        loop.cluster.faults.clear()
        [status] = await loop.until_ended(name)
    assert status["outcome"] == "AsPlanned"


async def test_moves_that_have_begun_wait_while_the_cache_is_stale(
    tmp_path: Path,
) -> None:
    async with (
        closed_loop(tmp_path, FOUR) as loop,
        loop.rebalancer(reading=IMPATIENT) as health,
    ):
        name = await waiting_to_go(loop)
        loop.cluster.faults.inject(FreezeWatches(resources=("nodes",)))
        loop.cluster.faults.inject(ServerError(status=503, verbs=("list",), resources=("nodes",)))
        await loop.until_says(name, "Evicted", "CacheStale")
        rolling_out(loop, on=False)
        await loop.cycles(health, 3)
        assert loop.witness.evicted == []
        loop.cluster.faults.clear()
        [status] = await loop.until_ended(name)
    assert status["outcome"] == "AsPlanned"


HOT = build.deployment("web", 8, cpu="100m", usage_cpu="1000m")
"""On one node two too many."""
ON_ONE = {"web": ["node-0"] * 8}
OBSERVING: dict[str, dict[str, Any]] = {
    "all": {"mode": "observe"},
    "its-strategy": {"modes": {"ResourceOptimization": "observe"}},
}


@pytest.mark.parametrize("settings", OBSERVING.values(), ids=OBSERVING)
async def test_in_mode_observe_plans_are_made_and_nothing_moves_until_mode_act(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    async with closed_loop(tmp_path, HOT, places=ON_ONE) as loop:
        file = loop.configured(**settings)
        async with loop.rebalancer(file, **settings) as health:
            await told(health, "plan_evictions", 2)
            await loop.cycles(health, 5)
            assert await figure(health, "plan_evictions") == 2, "it goes on planning"
            assert (loop.migrations(), loop.witness.evicted) == ([], [])
            loop.configured(mode="act")
            await loop.until(lambda: len(loop.on("node-0")) == 6, "now it acts")
    assert loop.outcomes() == ["AsPlanned"] * 2


async def test_an_observed_strategy_holds_up_no_other(tmp_path: Path) -> None:
    both = ["LoadBalancing", "ResourceOptimization"]
    settings: dict[str, Any] = {"enabledStrategies": both, "modes": {"LoadBalancing": "observe"}}
    async with (
        closed_loop(tmp_path, HOT, places=ON_ONE) as loop,
        loop.rebalancer(**settings) as health,
    ):
        await loop.until(lambda: len(loop.on("node-0")) == 6, "it is under its ceiling")
        await loop.settled()
        await loop.cycles(health, 5)
    assert len(loop.witness.evicted) == 2, "what LoadBalancing wants besides is not done"


async def test_a_dry_run_plans_and_writes_nothing(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, HOT, places=ON_ONE) as loop:
        file = loop.configured(mode="observe")
        async with loop.rebalancer(file, dry_run=True, mode="observe") as health:
            await told(health, "plan_evictions", 2)
            loop.configured(mode="act")
            await told(health, "config_reloads_total", 1, result="applied")
            await loop.cycles(health, 5)
            assert await figure(health, "plan_evictions") == 2, "it goes on planning"
        assert (loop.migrations(), loop.witness.evicted) == ([], [])
        assert loop.store.find(LEASES, "evenkeel-rebalancer", "default") is None
        async with loop.rebalancer():
            await loop.until(lambda: len(loop.on("node-0")) == 6, "the real one moves them")
    assert loop.outcomes() == ["AsPlanned"] * 2


async def test_a_single_replica_is_moved_only_if_that_is_allowed(tmp_path: Path) -> None:
    """Both ways: as its own plan would have it, and as a stranger asks."""
    hot = [build.deployment(f"one-{n}", 1, cpu="100m", usage_cpu="1000m") for n in range(8)]
    places = {f"one-{n}": ["node-0"] for n in range(8)}
    async with closed_loop(tmp_path, *hot, places=places) as loop:
        file = loop.configured(surge="Never")
        async with loop.rebalancer(file) as health:
            await told(health, "plan_goals_unmet", 1)
            [pod] = await loop.until_ready("one-0", 1)
            name = loop.plan(pod, "node-1")
            [status] = await loop.until_ended(name)
            assert (status["phase"], loop.outcomes()) == ("Failed", ["SingleReplica"])
            await planned_with(health, "SingleReplica")
            await loop.cycles(health, 3)
            assert loop.witness.evicted == []
            loop.store.delete(MIGRATIONS, name)
            loop.configured(singleReplica="allow", surge="Never")
            await loop.until(lambda: len(loop.on("node-0")) == 6, "now they are moved")
    assert loop.outcomes() == ["AsPlanned"] * 2


async def planned_with(health: str, reason: str) -> None:
    """Wait until the last plan names a reason."""

    async def named() -> bool:
        return reason in (await fetch(f"{health}/debug/plan", output="json")).text

    await eventually(named, f"the plan names {reason}", patience_s=PATIENCE_S)


PATIENT = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
JOBS_MOVE = {"jobs": "move"}


@pytest.mark.parametrize(
    ("settings", "policy", "ending"),
    [
        ({}, PATIENT, "JobPod"),
        (JOBS_MOVE, None, "JobCountsDisruptions"),
        (JOBS_MOVE, PATIENT, "AsPlanned"),
    ],
)
async def test_a_pod_of_a_job_is_moved_only_if_that_is_allowed_and_costs_nothing(
    settings: dict[str, Any], policy: dict[str, Any] | None, ending: str, tmp_path: Path
) -> None:
    async with closed_loop(tmp_path) as loop, loop.rebalancer(**settings):
        job = run_job(loop, policy)
        loop.when_evicted(lambda: loop.cluster.create([of_job(job, "work-2")]))
        [pod] = await loop.until_ready("work", 1)
        name = loop.plan(pod, "node-1", completionIndex=0)
        await loop.until_ended(name)
    assert loop.outcomes() == [ending]
    assert loop.witness.evicted == ([name] if ending == "AsPlanned" else [])


def run_job(loop: Loop, policy: dict[str, Any] | None) -> Json:
    """Run a Job with a pod on node-0; its controller is the test."""
    template = build.pod_template(labels={"app": "work"}, spec={"restartPolicy": "Never"})
    spec: Json = {"template": template, **({"podFailurePolicy": policy} if policy else {})}
    spec |= {"completionMode": "Indexed", "completions": 1}
    named = {"name": "work", "namespace": "default"}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": spec}
    [job] = loop.cluster.create([made])
    loop.store.patch(JOBS, "work", {"status": {"active": 1}}, namespace="default", status=True)
    loop.cluster.create([of_job(job, "work-1", node="node-0")])
    return job


def of_job(job: Json, name: str, node: str | None = None) -> build.Manifest:
    pod = build.pod(name, labels={"app": "work"}, node=node, spec={"restartPolicy": "Never"})
    pod["metadata"]["ownerReferences"] = [{**reference(job), "controller": True}]
    pod["metadata"]["annotations"] = {COMPLETION_INDEX: "0"}
    return pod


def reference(obj: Json) -> dict[str, str]:
    meta = obj["metadata"]
    kind = {key: str(obj[key]) for key in ("apiVersion", "kind")}
    return {**kind, "name": str(meta["name"]), "uid": str(meta["uid"])}


async def test_a_follower_is_ready_and_idle_until_it_leads(tmp_path: Path) -> None:
    hot = build.deployment("web", 8, cpu="100m", usage_cpu="1000m")
    paused: dict[str, Any] = {"paused": True}
    places = {"web": ["node-0"] * 8}
    async with closed_loop(tmp_path, hot, places=places) as loop, AsyncExitStack() as term:
        first = await term.enter_async_context(loop.rebalancer(**paused))
        await told(first, "leader", 1)
        async with loop.rebalancer() as second:
            await loop.cycles(first, 3)
            assert await is_ready_at(second), "its caches are warm"
            assert await figure(second, "leader") == 0
            assert await figure(second, "cycles_total") == 0
            assert loop.migrations() == []
            await term.aclose()
            await loop.until(lambda: len(loop.on("node-0")) == 6, "the follower takes over")
            assert await figure(second, "leader") == 1
    assert len(loop.witness.evicted) == 2


async def told(health: str, name: str, value: float, **labels: str) -> None:
    """Wait until a program tells a figure."""

    async def says() -> bool:
        return await figure(health, name, **labels) == value

    await eventually(says, f"{name} is {value:g}", patience_s=PATIENCE_S)


class Autoscaler:
    """Removes the emptiest node as long as the others have room, and adds one for who waits.

    It deletes pods itself, so that an eviction is always Evenkeel's.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._number = len(loop.cluster.node_names())
        self.removed = 0
        self.leaving: dict[str, float] = {}
        """Since which cycle of the rebalancer a node is to go."""
        self.now = 0.0

    def leaves_for_long(self, name: str) -> bool:
        """Tell whether the rebalancer has looked at least twice since; once may be too soon."""
        return self.now - self.leaving.get(name, self.now) >= 2

    def cycle(self, now: float) -> None:
        """Do what is to be done, in this cycle of the rebalancer."""
        self.now, loop = now, self._loop
        for name in tuple(self.leaving):
            if not loop.on(name):
                loop.store.delete(NODES, name)
                del self.leaving[name]
                self.removed += 1
        if any(not pod["spec"].get("nodeName") for pod in loop.pods()):
            self._number += 1
            loop.cluster.create([node(self._number)])
        elif not self.leaving:
            self._drain_the_emptiest()

    def _drain_the_emptiest(self) -> None:
        loop = self._loop
        counts = {name: len(loop.on(name)) for name in loop.cluster.node_names()}
        room = sum(PODS_A_NODE - count for count in counts.values())
        name = min(counts, key=lambda each: (counts[each], each))
        if room < PODS_A_NODE + 2:
            return
        self.leaving[name] = self.now
        loop.store.patch(NODES, name, {"spec": {"taints": [REMOVAL]}})
        for pod in loop.on(name):
            loop.store.delete(PODS, pod["metadata"]["name"], namespace="default")


PODS_A_NODE = 6


def node(number: int) -> build.Manifest:
    return build.node(f"node-{number}", labels={"karpenter.sh/nodepool": "general"})


FEW = 2
SIZES = {
    "auto": [(0, 20), (12, 26), (40, 14)],
    "always": [(0, 20), (12, 26)],
}
"""From which cycle on how many pods there are: first too many nodes, then one is added."""


@pytest.mark.parametrize("fill", SIZES)
async def test_a_consolidating_autoscaler_is_not_fought_unless_it_is_asked_for(
    fill: str, tmp_path: Path
) -> None:
    """Its nodes hold six pods by their requests, and a new one gets what does not fit.

    The others are alike then, so that nothing but the low node is there to be levelled.
    """
    web = build.deployment("web", 30, cpu="1300m", usage_cpu="1000m")
    async with (
        closed_loop(tmp_path, web, nodes=[node(number) for number in range(6)]) as loop,
        loop.rebalancer(
            enabledStrategies=["LoadBalancing", "ResourceOptimization"],
            reschedulingInterval="1s",
            fillLowNodes=fill,
        ) as health,
    ):
        await loop.until_ready("web", 30)
        autoscaler, towards_leaving = Autoscaler(loop), []

        def look(change: Change) -> None:
            status = change.obj.get("status") or {}
            if not status and autoscaler.leaves_for_long(change.obj["spec"]["target"]):
                towards_leaving.append(change.obj["spec"])

        loop.store.subscribe(MIGRATIONS, look)
        first = await figure(health, "cycles_total")
        wanted = deque(SIZES[fill])
        while (cycle := await figure(health, "cycles_total")) < first + CYCLES:
            if wanted and cycle >= first + wanted[0][0]:
                change = {"spec": {"replicas": wanted.popleft()[1]}}
                loop.store.patch(DEPLOYMENTS, "web", change, namespace="default")
            autoscaler.cycle(cycle)
            await SYSTEM.sleep(0.1)
        if fill == "always":
            await loop.until(lambda: len(loop.witness.evicted) > FEW, "its low node is filled")
        evicted = len(loop.witness.evicted)
        await loop.cycles(health, 5)
    assert autoscaler.removed >= 2
    assert towards_leaving == []
    assert fill == "always" or len(loop.witness.evicted) == evicted <= FEW
