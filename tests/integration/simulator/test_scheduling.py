# SPDX-License-Identifier: Apache-2.0
"""Where pods go, why they wait, and what wakes them."""

from __future__ import annotations

import pytest

from common.kube.resources import NODES, PODS
from simulator import build
from simulator.cluster import Settings, simulate
from simulator.scenarios import load_scenario, stage
from simulator.scheduler import SchedulerConfig
from simulator.scheduler.config import Profile
from simulator.serve import scenario_of
from tests.support.clock import FakeClock
from tests.support.repository import SCHEDULER_CONFIG
from tests.support.stands.simulated_cluster import (
    cluster_of,
    condition,
    events,
    pass_time,
    pods_of,
    ready,
    until,
)


async def test_a_pod_that_fits_nowhere_is_told_why() -> None:
    nodes = [
        build.node("small", cpu="1"),
        build.node("closed", unschedulable=True),
        build.node("tainted", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]),
    ]
    async with cluster_of(nodes, build.pod("big", cpu="4")) as cluster:
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        pod = cluster.store.get(PODS, "big", "default")
        event = events(cluster, "FailedScheduling")[0]
    told = condition(pod, "PodScheduled")
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"] == event["note"]
    assert told["message"] == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable. no new claims to deallocate, preemption: "
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")
    assert event["reportingController"] == "default-scheduler"


async def test_a_burst_of_pods_fills_nodes_and_no_more() -> None:
    nodes = [build.node(f"node-{number}", cpu="2") for number in range(2)]
    pods = [build.pod(f"web-{number}", cpu="500m", labels={"app": "web"}) for number in range(10)]
    async with cluster_of(nodes, *pods) as cluster:
        await until(cluster, lambda: len(ready(cluster, "web")) == 8)
        await until(cluster, lambda: len(events(cluster, "FailedScheduling")) == 2)
        taken = [pod["spec"].get("nodeName") for pod in pods_of(cluster, "web")]
        phases = {pod["status"]["phase"] for pod in pods_of(cluster, "web")}
    assert (taken.count("node-0"), taken.count("node-1"), taken.count(None)) == (4, 4, 2)
    assert phases == {"Running", "Pending"}


async def test_a_placed_pod_has_an_event_and_a_condition() -> None:
    async with cluster_of(1, build.pod("web")) as cluster:
        await until(cluster, lambda: events(cluster, "Scheduled"))
        event = events(cluster, "Scheduled")[0]
        pod = cluster.store.get(PODS, "web", "default")
    assert event["note"] == "Successfully assigned default/web to node-0"
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert condition(pod, "PodScheduled")["status"] == "True"


async def test_a_new_node_wakes_a_waiting_pod() -> None:
    async with cluster_of([build.node("small", cpu="1")], build.pod("big", cpu="4")) as cluster:
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        cluster.create([build.node("large", cpu="8")])
        await until(
            cluster, lambda: cluster.store.get(PODS, "big", "default")["spec"].get("nodeName")
        )


async def test_a_lifted_cordon_wakes_a_waiting_pod() -> None:
    node = build.node("only", unschedulable=True)
    async with cluster_of([node], build.pod("web")) as cluster:
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        assert not cluster.store.get(PODS, "web", "default")["spec"].get("nodeName")
        cluster.store.patch(NODES, "only", {"spec": {"unschedulable": None}})
        await until(cluster, lambda: ready(cluster, "web"))


async def test_an_unrelated_event_does_not() -> None:
    clock = FakeClock()
    async with cluster_of(
        [build.node("only", cpu="1")], build.pod("big", cpu="4"), clock=clock, speed=1
    ) as cluster:
        await pass_time(clock, 5)
        attempts = [pod.attempts for pod in cluster.scheduler.queue]
        cluster.store.patch(NODES, "only", {"metadata": {"labels": {"colour": "red"}}})
        await pass_time(clock, 60)
        assert [pod.attempts for pod in cluster.scheduler.queue] == attempts == [1]
        await pass_time(clock, 300, step_s=10)
        assert [pod.attempts for pod in cluster.scheduler.queue] == [2]


async def test_without_nodes_pods_wait_and_come_back_by_themselves() -> None:
    async with cluster_of(0, build.pod("web")) as cluster:
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        assert (
            events(cluster, "FailedScheduling")[0]["note"] == "no nodes available to schedule pods"
        )
        cluster.create([build.node("first")])
        await until(cluster, lambda: ready(cluster, "web"))


async def test_gated_pods_and_those_of_other_schedulers_are_left_alone() -> None:
    gated = build.pod("gated", spec={"schedulingGates": [{"name": "example.com/wait"}]})
    foreign = build.pod("foreign", spec={"schedulerName": "somebody-else"})
    async with cluster_of(1, gated, foreign, build.pod("mine")) as cluster:
        await until(cluster, lambda: ready(cluster, "mine"))
        assert len(cluster.scheduler.queue) == 0
        cluster.store.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, namespace="default")
        await until(cluster, lambda: ready(cluster, "gated"))
        assert not cluster.store.get(PODS, "foreign", "default")["spec"].get("nodeName")


async def test_a_profile_serves_its_own_name() -> None:
    config = SchedulerConfig(profiles=(Profile(scheduler_name="mine"),))
    pods = [build.pod("a", spec={"schedulerName": "mine"}), build.pod("b")]
    async with cluster_of(1, *pods, scheduler=config) as cluster:
        await until(cluster, lambda: ready(cluster, "a"))
        assert not cluster.store.get(PODS, "b", "default")["spec"].get("nodeName")


def priority_class(name: str, value: int, **more: str) -> dict[str, object]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **more,
    }


async def test_an_important_pod_displaces_a_lesser_one() -> None:
    first = [build.node("only", cpu="2"), priority_class("high", 1000)]
    lesser = [build.pod(f"lesser-{i}", cpu="900m") for i in range(2)]
    async with cluster_of(first, *lesser) as cluster:
        await until(
            cluster, lambda: sum(map(len, (ready(cluster, f"lesser-{i}") for i in (0, 1)))) == 2
        )
        cluster.create([build.pod("vip", cpu="900m", spec={"priorityClassName": "high"})])
        await until(cluster, lambda: ready(cluster, "vip"))
        left = [pod["metadata"]["name"] for pod in cluster.pods()]
        told = events(cluster, "Preempted")
    assert len(left) == 2
    assert "vip" in left
    assert len(told) == 1
    assert "Preempted by pod" in told[0]["note"]


async def test_a_pod_that_never_preempts_waits() -> None:
    first = [build.node("only", cpu="2"), priority_class("meek", 1000, preemptionPolicy="Never")]
    async with cluster_of(first, build.pod("lesser", cpu="1500m")) as cluster:
        await until(cluster, lambda: ready(cluster, "lesser"))
        cluster.create([build.pod("meek", cpu="1500m", spec={"priorityClassName": "meek"})])
        await until(cluster, lambda: events(cluster, "FailedScheduling"))
        assert "preemptionPolicy=Never" in events(cluster, "FailedScheduling")[0]["note"]
        assert ready(cluster, "lesser")


async def placements(seed: int, name: str) -> dict[str, str]:
    scenario = load_scenario(name).model_copy(update={"load": ()})
    settings = Settings(seed=seed, speed=200)
    async with simulate(settings, clock=FakeClock(), build=lambda c: stage(scenario, c)) as cluster:
        await until(cluster, lambda: all(p["spec"].get("nodeName") for p in cluster.pods()))
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in cluster.pods()}


async def test_the_same_seed_gives_the_same_placements() -> None:
    first = await placements(3, "new-empty-node")
    assert first == await placements(3, "new-empty-node")
    assert first != await placements(4, "new-empty-node")


@pytest.mark.parametrize("name", ["hot-spots", "requests-mislead"])
async def test_hot_spots_are_there_from_the_start(name: str) -> None:
    scenario = load_scenario(name)
    async with simulate(
        Settings(seed=5), clock=FakeClock(), build=lambda c: stage(scenario, c)
    ) as cluster:
        percent = sorted(
            (kubelet.overhead.cpu_milli + sum(p.load.cpu_milli for p in kubelet.pods.values())) / 80
            for kubelet in cluster.fleet.kubelets.values()
        )
    assert all(50 <= each <= 60 for each in percent[:16])
    assert all(83 <= each <= 99 for each in percent[16:])


async def staged(nodes: int | None) -> tuple[dict[str, float], dict[str, str]]:
    """Return the CPU utilization of nodes and the nodes of pods at the start, as `serve` has."""
    scenario = scenario_of("hot-spots", nodes)
    async with simulate(
        Settings(seed=5), clock=FakeClock(), build=lambda c: stage(scenario, c)
    ) as cluster:
        kubelets = cluster.fleet.kubelets.items()
        percent = {
            name: (k.overhead.cpu_milli + sum(p.load.cpu_milli for p in k.pods.values())) / 80
            for name, k in kubelets
        }
        return percent, {p["metadata"]["name"]: p["spec"]["nodeName"] for p in cluster.pods()}


@pytest.mark.parametrize("nodes", [5, 60])
async def test_a_scaled_scenario_is_as_hot_as_its_own(nodes: int) -> None:
    percent, pods = await staged(nodes)
    assert len(percent) == nodes
    levels = sorted(percent.values())
    assert all(49 <= each <= 61 for each in levels[: nodes * 4 // 5])
    assert all(82 <= each <= 99 for each in levels[nodes * 4 // 5 :])
    assert (percent, pods) == await staged(nodes)


async def test_the_own_number_of_nodes_gives_the_very_same_cluster() -> None:
    assert await staged(20) == await staged(None)


async def test_the_shipped_configuration_looks_at_all_nodes() -> None:
    from simulator.scheduler import read_config

    config = read_config(SCHEDULER_CONFIG)
    async with cluster_of(1, build.deployment("web", 2), scheduler=config) as cluster:
        await until(cluster, lambda: len(pods_of(cluster, "web")) == 2)
        assert cluster.scheduler.config.percentage("default-scheduler") == 100
