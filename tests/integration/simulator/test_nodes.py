# SPDX-License-Identifier: Apache-2.0
"""Kubelets: starting, ending, refusing pods; nodes that fail, and what becomes of their pods."""

from __future__ import annotations

from common.kube.resources import NODES, PODS
from simulator import build
from simulator.api import Json
from simulator.cluster import SimulatedCluster
from simulator.faults import ImagePulls, NodeDeath, NodeNotReady, RejectPods
from simulator.nodes import node_status
from simulator.nodes.fleet import Delays
from tests.support.clock import FakeClock
from tests.support.stands.simulated_cluster import (
    History,
    cluster_of,
    condition,
    events,
    pass_time,
    pods_of,
    ready,
    until,
)

SLOW = Delays(start_s=(10.0, 10.0))


async def test_a_pod_starts_after_its_delay() -> None:
    clock = FakeClock()
    async with cluster_of(1, build.pod("web"), clock=clock, speed=1, delays=SLOW) as cluster:
        await pass_time(clock, 9)
        pod = cluster.store.get(PODS, "web", "default")
        assert pod["status"]["phase"] == "Pending"
        assert pod["status"]["startTime"]
        waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting["reason"] == "ContainerCreating"
        assert condition(pod, "Ready")["reason"] == "ContainersNotReady"
        await pass_time(clock, 2)
        assert ready(cluster, "web")


async def test_speed_makes_starts_faster_but_not_stamps() -> None:
    clock = FakeClock()
    async with cluster_of(1, build.pod("web"), clock=clock, speed=10, delays=SLOW) as cluster:
        await pass_time(clock, 2, step_s=0.1)
        (pod,) = ready(cluster, "web")
        assert pod["status"]["startTime"] <= condition(pod, "Ready")["lastTransitionTime"]


async def ending_takes(clock: FakeClock, *, grace: int, stop_after: str) -> tuple[float, Json]:
    """Delete a pod; return after how long it was gone, and its last state."""
    pod = build.pod(
        "web",
        annotations={build.STOP_AFTER: stop_after},
        spec={"terminationGracePeriodSeconds": grace},
    )
    async with cluster_of(1, pod, clock=clock, speed=1) as cluster:
        await pass_time(clock, 10)
        assert ready(cluster, "web")
        history = History(cluster)
        cluster.store.delete(PODS, "web", namespace="default")
        for tenths in range(1, 1000):
            await clock.advance(0.1)
            if not cluster.pods():
                return tenths / 10, history.changes[-1].obj
    raise AssertionError("it is still there")


async def test_a_pod_that_heeds_the_signal_is_gone_before_its_grace_is_over() -> None:
    took, last = await ending_takes(FakeClock(), grace=30, stop_after="5s")
    assert 4.8 <= took <= 5.3
    assert last["status"]["phase"] == "Succeeded"


async def test_a_pod_that_does_not_is_killed_when_it_is() -> None:
    took, last = await ending_takes(FakeClock(), grace=20, stop_after="1h")
    assert 19.8 <= took <= 20.3
    assert last["status"]["phase"] == "Failed"


async def test_other_changes_do_not_prolong_the_end() -> None:
    clock = FakeClock()
    pod = build.pod(
        "web", annotations={build.STOP_AFTER: "10s"}, spec={"terminationGracePeriodSeconds": 60}
    )
    async with cluster_of(1, pod, clock=clock, speed=1) as cluster:
        await pass_time(clock, 10)
        cluster.store.delete(PODS, "web", namespace="default")
        await pass_time(clock, 6)
        cluster.store.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
        await pass_time(clock, 5)
        assert not cluster.pods()


async def test_a_kubelet_refuses_what_does_not_fit() -> None:
    pods = [build.pod("first", cpu="1500m", node="only"), build.pod("second", cpu="1", node="only")]
    async with cluster_of([build.node("only", cpu="2")], *pods) as cluster:
        await until(cluster, lambda: ready(cluster, "first"))
        await until(cluster, lambda: _phase(cluster, "second") == "Failed")
        status = cluster.store.get(PODS, "second", "default")["status"]
    assert status["reason"] == "OutOfcpu"
    assert "requested: 1000, used: 1500, capacity: 2000" in status["message"]


async def test_a_refused_replica_is_replaced() -> None:
    async with cluster_of(2) as cluster:
        number = cluster.faults.inject(RejectPods(node="node-0"))
        cluster.create([build.deployment("web", 2)])
        await until(cluster, lambda: events(cluster, "UnexpectedAdmissionError"))
        cluster.faults.withdraw(number)
        await until(cluster, lambda: len(ready(cluster, "web")) == 2)


async def test_an_image_that_cannot_be_pulled_keeps_a_pod_waiting() -> None:
    async with cluster_of(1) as cluster:
        number = cluster.faults.inject(ImagePulls(node="node-0", image=build.IMAGE))
        cluster.create([build.pod("p", node="node-0")])

        def waits() -> bool:
            status = cluster.store.get(PODS, "p", "default")["status"]
            states = [each["state"] for each in status.get("containerStatuses") or ()]
            return any(s.get("waiting", {}).get("reason") == "ImagePullBackOff" for s in states)

        await until(cluster, waits)
        assert _phase(cluster, "p") == "Pending"
        cluster.faults.withdraw(number)
        await until(cluster, lambda: _phase(cluster, "p") == "Running")


def _phase(cluster: SimulatedCluster, name: str) -> str:
    return str(cluster.store.get(PODS, name, "default")["status"].get("phase"))


def taints(cluster: SimulatedCluster, node: str) -> set[tuple[str, str]]:
    found = cluster.store.get(NODES, node)["spec"].get("taints") or ()
    return {(taint["key"].rpartition("/")[2], taint["effect"]) for taint in found}


async def test_a_dead_node_is_noticed_tainted_and_its_pods_replaced() -> None:
    clock = FakeClock()
    web = build.deployment(
        "web",
        2,
        spec={
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 20,
                }
                for key in ("unreachable", "not-ready")
            ]
        },
    )
    async with cluster_of(3, web, clock=clock, speed=1) as cluster:
        await pass_time(clock, 10)
        (first, _) = ready(cluster, "web")
        dead = first["spec"]["nodeName"]
        number = cluster.faults.inject(NodeDeath(node=dead))
        await pass_time(clock, 30)
        assert node_status.ready_status(cluster.store.get(NODES, dead)) == "True"
        await pass_time(clock, 20)
        assert node_status.ready_status(cluster.store.get(NODES, dead)) == "Unknown"
        assert taints(cluster, dead) == {
            ("unreachable", "NoSchedule"),
            ("unreachable", "NoExecute"),
        }
        old = cluster.store.get(PODS, first["metadata"]["name"], "default")
        assert condition(old, "Ready")["status"] == "False"
        assert "deletionTimestamp" not in old["metadata"]
        await pass_time(clock, 25)
        assert len(ready(cluster, "web")) == 2
        assert dead not in {pod["spec"]["nodeName"] for pod in ready(cluster, "web")}
        # No one is there to confirm the end of the old pod, until the node comes back.
        old = cluster.store.get(PODS, first["metadata"]["name"], "default")
        assert condition(old, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        cluster.faults.withdraw(number)
        await pass_time(clock, 10)
        assert not taints(cluster, dead)
        assert cluster.store.find(PODS, first["metadata"]["name"], "default") is None


async def test_a_node_that_comes_back_in_time_keeps_its_pods() -> None:
    clock = FakeClock()
    async with cluster_of(1, build.deployment("web", 1), clock=clock, speed=1) as cluster:
        await pass_time(clock, 10)
        (before,) = ready(cluster, "web")
        number = cluster.faults.inject(NodeDeath(node="node-0"))
        await pass_time(clock, 60)
        assert not ready(cluster, "web")
        cluster.faults.withdraw(number)
        await pass_time(clock, 5)
        (after,) = ready(cluster, "web")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        await pass_time(clock, 400, step_s=10)
        assert len(pods_of(cluster, "web")) == 1


async def test_an_unready_node_is_tainted_so() -> None:
    async with cluster_of(2) as cluster:
        cluster.faults.inject(NodeNotReady(node="node-1"))
        await until(cluster, lambda: ("not-ready", "NoExecute") in taints(cluster, "node-1"))
        cluster.faults.clear()
        await until(cluster, lambda: not taints(cluster, "node-1"))


async def test_a_cordon_is_a_taint_too() -> None:
    async with cluster_of(1) as cluster:
        cluster.store.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
        await until(cluster, lambda: taints(cluster, "node-0") == {("unschedulable", "NoSchedule")})
        cluster.store.patch(NODES, "node-0", {"spec": {"unschedulable": None}})
        await until(cluster, lambda: not taints(cluster, "node-0"))


async def test_a_taint_that_evicts_does_so_at_once_or_not_at_all() -> None:
    tolerant = build.pod("tolerant", spec={"tolerations": [{"key": "drain", "operator": "Exists"}]})
    async with cluster_of(1, tolerant, build.pod("other")) as cluster:
        await until(cluster, lambda: ready(cluster, "tolerant") and ready(cluster, "other"))
        patch = {"spec": {"taints": [{"key": "drain", "effect": "NoExecute"}]}}
        cluster.store.patch(NODES, "node-0", patch)
        await until(cluster, lambda: cluster.store.find(PODS, "other", "default") is None)
        assert ready(cluster, "tolerant")


async def test_pods_of_a_deleted_node_are_removed() -> None:
    clock = FakeClock()
    async with cluster_of(2, build.deployment("web", 4), clock=clock, speed=1) as cluster:
        await pass_time(clock, 10)
        cluster.store.delete(NODES, "node-1")
        await pass_time(clock, 60)
        assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"node-0"}
        assert len(ready(cluster, "web")) == 4


async def test_a_node_made_by_hand_becomes_ready() -> None:
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    async with cluster_of([bare], build.pod("web")) as cluster:
        await until(cluster, lambda: ready(cluster, "web"))
        node = cluster.store.get(NODES, "bare")
    assert node["status"]["allocatable"]["cpu"] == "8"
    assert {c["type"] for c in node["status"]["conditions"]} >= {"Ready", "MemoryPressure"}
