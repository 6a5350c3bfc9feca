# SPDX-License-Identifier: Apache-2.0
"""Moves by surge: the replacement is available before the pod goes, whatever others do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import DELETION_COST, MAINTENANCE_LABEL, OWN_DELETION_COST, RANKED_BY
from common.kube.resources import (
    AUTOSCALERS,
    DEPLOYMENTS,
    MIGRATIONS,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
)
from simulator import build
from simulator.api import Json
from simulator.faults import ImagePulls
from tests.support.oracles.availability import Availability, replicas
from tests.support.stands.closed_loop import Loop, closed_loop, ending

ALWAYS: dict[str, Any] = {"surge": "Always"}
ZONES = {"node-0": "a", "node-1": "a", "node-2": "b"}


def notes(pod: Json) -> dict[str, str]:
    return dict(pod["metadata"].get("annotations") or {})


async def test_the_only_replica_leaves_a_node_that_is_emptied_without_a_gap(
    tmp_path: Path,
) -> None:
    """Planned by the rebalancer itself, with a PDB that forbids the eviction of the only one."""
    web = build.deployment("web", 1, cpu="100m")
    pdb = build.pdb("web", match={"app": "web"}, min_available=1)
    async with closed_loop(tmp_path, web, pdb, places={"web": ["node-0"]}) as loop:
        await loop.until_ready("web", 1)
        seen = Availability(loop.store, {"web": 1})
        loop.store.patch(NODES, "node-0", {"metadata": {"labels": {MAINTENANCE_LABEL: "true"}}})
        async with loop.rebalancer(enabledStrategies=["NodeMaintenance"]):
            await loop.until(lambda: not loop.on("node-0", "web"), "node-0 is empty")
            await loop.until(lambda: len(loop.pods("web")) == 1, "one replica is left")
            await loop.settled()
    assert (seen.gaps, seen.most["web"], replicas(loop, "web")) == ([], 2, 1)
    assert loop.witness.evicted == []


async def test_without_surge_the_only_replica_stays(tmp_path: Path) -> None:
    web = build.deployment("web", 1, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        async with loop.rebalancer(surge="Never"):
            names = [loop.plan(pod, "node-1", surge=True)]
            [status] = await loop.until_ended(*names)
    assert status["message"].startswith("SurgeOff")
    assert [pod["spec"]["nodeName"] for pod in loop.ready("web")] == ["node-0"]


async def test_without_surge_an_only_replica_that_may_move_leaves_a_gap(tmp_path: Path) -> None:
    web = build.deployment("web", 1, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        seen = Availability(loop.store, {"web": 1})
        async with loop.rebalancer(surge="Never", singleReplica="allow"):
            await loop.until_ended(loop.plan(pod, "node-1"))
    assert seen.gaps


async def test_a_user_keeps_the_deletion_cost_of_a_pod_that_stays(tmp_path: Path) -> None:
    web = build.deployment("web", 2, cpu="100m", annotations={DELETION_COST: "7"})
    async with closed_loop(tmp_path, web, places={"web": ["node-0", "node-1"]}) as loop:
        [pod, _] = await loop.until_ready("web", 2)
        seen = Availability(loop.store, {"web": 2})
        name = loop.plan(pod, "node-2", surge=True)
        # The surge is called off after the cost was set; it may be too late for that.
        loop.when_done(name, "Ranked", lambda: loop.store.delete(MIGRATIONS, name))
        async with loop.rebalancer(**ALWAYS):
            await loop.until(lambda: not loop.migrations(), "the Migration is gone")
            await loop.until(lambda: len(loop.pods("web")) == 2, "two replicas are left")
    assert (seen.gaps, replicas(loop, "web")) == ([], 2)
    assert {notes(each)[DELETION_COST] for each in loop.pods("web")} == {"7"}
    kept = {key for each in loop.pods("web") for key in notes(each)}
    assert kept.isdisjoint({RANKED_BY, OWN_DELETION_COST})


def scaled(loop: Loop, count: int) -> None:
    loop.store.patch(DEPLOYMENTS, "web", {"spec": {"replicas": count}}, namespace="default")


def rolled_out(loop: Loop) -> None:
    template = {"metadata": {"annotations": {"example.com/version": "2"}}}
    loop.store.patch(DEPLOYMENTS, "web", {"spec": {"template": template}}, namespace="default")


@pytest.mark.parametrize("step", ["Raised", "Replaced", "Ready"])
@pytest.mark.parametrize(
    ("act", "reason", "count"),
    [
        (lambda loop: scaled(loop, 2), "RaiseReverted", 2),
        (lambda loop: scaled(loop, 5), "CountChanged", 5),
        (lambda loop: scaled(loop, 1), "CountChanged", 1),
        (rolled_out, "WorkloadChanged", 2),
    ],
    ids=["reverted", "more", "fewer", "rollout"],
)
async def test_what_others_do_meanwhile_stands(
    step: str, act: Callable[[Loop], None], reason: str, count: int, tmp_path: Path
) -> None:
    web = build.deployment("web", 2, cpu="100m")
    web["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    async with closed_loop(tmp_path, web, places={"web": ["node-0", "node-1"]}) as loop:
        [pod, _] = await loop.until_ready("web", 2)
        seen = Availability(loop.store, {"web": min(2, count)})
        name = loop.plan(pod, "node-2", surge=True)
        loop.when_done(name, step, lambda: act(loop))
        async with loop.rebalancer(**ALWAYS):
            [status] = await loop.until_ended(name)
            await loop.until(lambda: len(loop.ready("web")) == count, "the count is theirs")
            await loop.until(lambda: len(loop.pods("web")) == count, "none is too many")
    assert status["message"].startswith(reason)
    assert (seen.gaps, replicas(loop, "web")) == ([], count)
    assert not any(RANKED_BY in notes(each) for each in loop.pods("web"))


async def test_a_pod_that_someone_else_removes_leaves_no_replica_too_many(tmp_path: Path) -> None:
    web = build.deployment("web", 2, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0", "node-1"]}) as loop:
        [pod, _] = await loop.until_ready("web", 2)
        name = loop.plan(pod, "node-2", surge=True)
        gone = pod["metadata"]["name"]
        loop.when_done(name, "Replaced", lambda: loop.store.delete(PODS, gone, namespace="default"))
        async with loop.rebalancer(**ALWAYS):
            await loop.until_ended(name)
            await loop.until(lambda: len(loop.pods("web")) == 2, "two replicas are left")
            await loop.until_ready("web", 2)
    assert [ending(each) for each in loop.migrations()] == ["PodGone"]
    assert replicas(loop, "web") == 2


async def test_a_replacement_that_never_starts_is_taken_back(tmp_path: Path) -> None:
    web = build.deployment("web", 1, cpu="100m")
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        seen = Availability(loop.store, {"web": 1})
        loop.cluster.faults.inject(ImagePulls(node="node-1"))
        name = loop.plan(pod, "node-1", surge=True)
        async with loop.rebalancer(migrationDeadline="30s"):
            await loop.until_ended(name)
            await loop.until(lambda: len(loop.pods("web")) == 1, "one replica is left")
    assert [ending(each) for each in loop.migrations()] == ["DeadlineExceeded"]
    assert (seen.gaps, replicas(loop, "web")) == ([], 1)


async def test_a_workload_with_an_autoscaler_gets_no_surge(tmp_path: Path) -> None:
    web = build.deployment("web", 1, cpu="100m")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 3},
    }
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        loop.store.create(AUTOSCALERS, hpa)
        name = loop.plan(pod, "node-1", surge=True)
        async with loop.rebalancer():
            [status] = await loop.until_ended(name)
    assert status["message"].startswith("Autoscaled")
    assert replicas(loop, "web") == 1


@pytest.mark.parametrize(
    ("hard", "used", "words"),
    [
        ({"pods": "3"}, {"pods": "3"}, "AtQuota: ResourceQuota small has no pods left"),
        ({"requests.cpu": "1"}, {"requests.cpu": "950m"}, "AtQuota: ResourceQuota small has no re"),
        ({"pods": "3", "requests.cpu": "1"}, {"pods": "2", "requests.cpu": "900m"}, ""),
    ],
)
async def test_a_quota_without_room_is_named_before_anything_is_changed(
    tmp_path: Path, hard: Json, used: Json, words: str
) -> None:
    web = build.deployment("web", 1, cpu="100m")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"hard": hard},
    }
    async with closed_loop(tmp_path, web, places={"web": ["node-0"]}) as loop:
        [pod] = await loop.until_ready("web", 1)
        loop.store.create(RESOURCE_QUOTAS, quota)
        counted = {"status": {"hard": hard, "used": used}}
        loop.store.patch(RESOURCE_QUOTAS, "small", counted, namespace="default", status=True)
        seen = Availability(loop.store, {"web": 1})
        name = loop.plan(pod, "node-1", surge=True)
        async with loop.rebalancer():
            [ended] = await loop.until_ended(name)
    assert ended["message"].startswith(words)
    assert seen.most["web"] == (1 if words else 2)
    assert replicas(loop, "web") == 1


async def test_a_workload_that_lost_another_pod_instead_says_so(tmp_path: Path) -> None:
    """Someone deletes another replica in the moment in which the count is lowered."""
    web = build.deployment("web", 2, cpu="100m", annotations={DELETION_COST: "7"})
    async with closed_loop(tmp_path, web, places={"web": ["node-0", "node-1"]}) as loop:
        [pod, other] = await loop.until_ready("web", 2)
        first = loop.store.get(DEPLOYMENTS, "web", namespace="default")["metadata"]["generation"]
        loop.when(
            DEPLOYMENTS,
            lambda found: found["metadata"]["generation"] == first + 2,
            lambda: loop.store.delete(PODS, other["metadata"]["name"], namespace="default"),
        )
        name = loop.plan(pod, "node-2", surge=True)
        async with loop.rebalancer(**ALWAYS):
            [status] = await loop.until_ended(name)
            await loop.until(lambda: len(loop.ready("web")) == 2, "two replicas are left")
    assert status["message"].startswith("WrongPodRemoved: ReplicaSet")
    assert replicas(loop, "web") == 2
    assert {notes(each)[DELETION_COST] for each in loop.pods("web")} == {"7"}


async def test_a_budget_that_appears_in_the_middle_keeps_the_pod(tmp_path: Path) -> None:
    """A ReplicaSet deletes without asking a PDB, so the rebalancer asks it before it lowers."""
    web = build.deployment("web", 2, cpu="100m")
    strict = build.pdb("web", match={"app": "web"}, max_unavailable=0)
    async with closed_loop(tmp_path, web, places={"web": ["node-0", "node-1"]}) as loop:
        [pod, _] = await loop.until_ready("web", 2)
        seen = Availability(loop.store, {"web": 2})
        name = loop.plan(pod, "node-2", surge=True)
        loop.when_done(name, "Ranked", lambda: loop.cluster.create([strict]))
        async with loop.rebalancer(**ALWAYS, migrationDeadline="60s"):
            [status] = await loop.until_ended(name)
            await loop.until(lambda: len(loop.pods("web")) == 2, "two replicas are left")
    assert status["message"].startswith("PdbExhausted")
    assert pod["metadata"]["uid"] in {each["metadata"]["uid"] for each in loop.pods("web")}
    assert (seen.gaps, seen.most["web"], replicas(loop, "web")) == ([], 3, 2)


def spread_by_zone(replicas: int) -> Json:
    apart = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    web = build.deployment("web", replicas, cpu="500m")
    web["spec"]["template"]["spec"]["topologySpreadConstraints"] = [apart]
    return web


async def test_a_surge_is_judged_as_the_cluster_will_be_without_the_pod_too(
    tmp_path: Path,
) -> None:
    """With three replicas in two zones of two the next may go anywhere, with two it may not."""
    nodes = [build.node(name, zone=zone) for name, zone in ZONES.items()]
    places = {"web": ["node-0", "node-2"]}
    async with closed_loop(tmp_path, spread_by_zone(2), nodes=nodes, places=places) as loop:
        await loop.until_ready("web", 2)
        full = build.pod("full", cpu="7800m", node="node-1")
        loop.cluster.create([full, build.node("node-3", zone="b")])
        loop.store.patch(NODES, "node-0", {"metadata": {"labels": {MAINTENANCE_LABEL: "true"}}})
        async with loop.rebalancer(enabledStrategies=["NodeMaintenance"], **ALWAYS) as health:
            await loop.cycles(health, 5)
            assert loop.migrations() == []
            loop.store.delete(PODS, "full", namespace="default")
            await loop.until(lambda: not loop.on("node-0", "web"), "it moves inside its zone")
    assert len(loop.on("node-1", "web")) == 1


@pytest.mark.parametrize(
    ("settings", "lands"),
    [({}, []), ({"surge": "Never", "singleReplica": "allow"}, ["node-1"])],
    ids=["by surge", "by eviction"],
)
async def test_a_surge_is_judged_with_the_pod_still_there(
    settings: dict[str, Any], lands: list[str], tmp_path: Path
) -> None:
    """Two pods may not share a zone, and the other zone is full: only after the pod has gone."""
    nodes = [build.node(name, cpu="4", zone=zone) for name, zone in ZONES.items()]
    web = spread_by_zone(1)
    full = build.pod("full", cpu="3800m", node="node-2")
    places = {"web": ["node-0"]}
    async with closed_loop(tmp_path, web, full, nodes=nodes, places=places) as loop:
        await loop.until_ready("web", 1)
        loop.store.patch(NODES, "node-0", {"metadata": {"labels": {MAINTENANCE_LABEL: "true"}}})
        async with loop.rebalancer(enabledStrategies=["NodeMaintenance"], **settings) as health:
            await loop.cycles(health, 5)
    assert [each["status"]["replacement"]["node"] for each in loop.migrations()] == lands
