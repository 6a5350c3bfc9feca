# SPDX-License-Identifier: Apache-2.0
"""What a running rebalancer believes of nodes whose samples and pods do not tell the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.clock import SYSTEM
from common.kube import resources as kinds
from simulator import build
from tests.support.stands.once import Json, plan_of, written
from tests.support.stands.scripted_api import write_kubeconfig
from tests.support.stands.static_api import StaticApi
from tests.support.worlds.wire import owner_reference, stamped

LONG_AGO = "2026-01-01T00:00:00Z"
NODE_MILLI = 8000


def stamp(ago_s: float) -> str:
    return datetime.fromtimestamp(SYSTEM.now() - ago_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str) -> Json:
    made = stamped(build.node(name))
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}]
    return {**made, "status": {**made["status"], "conditions": conditions}}


class Cluster:
    """Objects and measurements that a test puts together."""

    def __init__(self) -> None:
        self._owners: list[Json] = []
        self._pods: list[Json] = []
        self._measured: list[Json] = []

    def workload(
        self,
        name: str,
        on: str,
        replicas: int,
        *,
        asks: str = "100m",
        uses: str | None = None,
        state: Mapping[str, Any] | None = None,
        scheduled: str = LONG_AGO,
        **metadata: Any,
    ) -> None:
        """Add pods of one ReplicaSet on a node; without `uses` nothing measures them."""
        owner = stamped(build.replica_set(name, replicas, cpu=asks))
        counts = ("replicas", "readyReplicas", "availableReplicas", "fullyLabeledReplicas")
        owner["status"] = dict.fromkeys(counts, replicas) | {"observedGeneration": 1}
        owner["metadata"]["generation"] = 1
        self._owners.append(owner)
        for number in range(replicas):
            made = build.pod(f"{name}-{number}", node=on, cpu=asks, labels={"app": name})
            made = stamped(made, ownerReferences=[owner_reference(owner)], **metadata)
            made["spec"]["schedulerName"] = "default-scheduler"
            made["status"] = _status(made, scheduled, state)
            self._pods.append(made)
            if uses is not None:
                self._measured.append(_pod_metrics(f"{name}-{number}", uses))

    @asynccontextmanager
    async def served(self, folder: Path, **levels: float) -> AsyncIterator[list[str]]:
        """Serve it with nodes that were measured at these percentages; give the flags."""
        objects = {
            kinds.NODES: [node(name) for name in levels],
            kinds.REPLICASETS: self._owners,
            kinds.PODS: self._pods,
            kinds.NODE_METRICS: [_node_metrics(name, level) for name, level in levels.items()],
            kinds.POD_METRICS: self._measured,
        }
        config = written(folder, usageSource="metrics-server")
        async with StaticApi(objects, measured=True).serving() as api:
            kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url)
            yield ["--kubeconfig", str(kubeconfig), "--config", config]


def _status(pod: Json, scheduled: str, state: Mapping[str, Any] | None) -> Json:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": scheduled}
        for kind in ("PodScheduled", "Ready")
    ]
    name = pod["spec"]["containers"][0]["name"]
    running = {"running": {"startedAt": scheduled}}
    statuses = [{"name": name, "state": running if state is None else state}]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}


def _pod_metrics(name: str, cpu: str) -> Json:
    usage = {"cpu": cpu, "memory": "100Mi"}
    metadata = {"name": name, "namespace": "default"}
    return {
        "metadata": metadata,
        "timestamp": stamp(3.0),
        "window": "15s",
        "containers": [{"name": "app", "usage": usage}],
    }


def _node_metrics(name: str, percent: float) -> Json:
    usage = {"cpu": f"{round(percent / 100 * NODE_MILLI)}m", "memory": "2Gi"}
    return {"metadata": {"name": name}, "timestamp": stamp(2.0), "window": "15s", "usage": usage}


def levels(plan: Json) -> dict[str, float]:
    return {each["name"]: round(each["before"]["cpu"]) for each in plan["nodes"]}


def reasons(plan: Json) -> set[str]:
    return {reason["name"] for each in plan["refused"] for reason in each["reasons"]}


async def test_a_node_is_what_its_sample_says_while_no_pod_is_measured(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.workload("small", "hot", 6, asks="50m")
    cluster.workload("large", "idle", 6, asks="1")
    async with cluster.served(tmp_path, hot=95.0, idle=1.0, other=1.0) as flags:
        plan = await plan_of(*flags)

    assert levels(plan) == {"hot": 95, "idle": 1, "other": 1}
    assert plan["moves"] == []
    assert "NotMeasured" in reasons(plan)
    assert any("no sample of any pod, although 12 run" in note for note in plan["notes"])


async def test_pods_that_crash_do_not_make_their_node_hot(tmp_path: Path) -> None:
    cluster = Cluster()
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    cluster.workload("broken", "n1", 6, asks="1", state=waiting)
    cluster.workload("fine", "n1", 4, uses="300m")
    async with cluster.served(tmp_path, n1=18.0, n2=5.0, n3=5.0) as flags:
        plan = await plan_of(*flags)

    assert levels(plan) == {"n1": 18, "n2": 5, "n3": 5}
    assert plan["moves"] == []


async def test_terminating_pods_have_left_for_goals(tmp_path: Path) -> None:
    cluster = Cluster()
    later = stamp(-7200.0)
    cluster.workload("going", "n1", 2, uses="800m", deletionTimestamp=later)
    cluster.workload("fine", "n1", 10, uses="590m")
    async with cluster.served(tmp_path, n1=95.0, n2=60.0, n3=60.0) as flags:
        plan = await plan_of(*flags)

    assert plan["moves"] == []
    assert plan["unmet"] == []


async def test_terminating_pods_still_take_the_room_of_a_target(tmp_path: Path) -> None:
    cluster = Cluster()
    later = stamp(-7200.0)
    cluster.workload("going", "draining", 2, uses="2200m", deletionTimestamp=later)
    cluster.workload("web", "hot", 12, uses="600m")
    async with cluster.served(tmp_path, hot=91.0, draining=77.0, free=70.0) as flags:
        plan = await plan_of(*flags)

    assert plan["moves"]
    assert {move["target"] for move in plan["moves"]} == {"free"}


async def test_a_pod_that_asks_for_everything_cannot_use_more_than_its_node(
    tmp_path: Path,
) -> None:
    cluster = Cluster()
    cluster.workload("greedy", "n1", 1, asks="1e15", scheduled=stamp(1.0))
    cluster.workload("fine", "n1", 4, uses="300m")
    async with cluster.served(tmp_path, n1=20.0, n2=20.0, n3=20.0) as flags:
        plan = await plan_of(*flags)

    assert levels(plan) == {"n1": 120, "n2": 20, "n3": 20}
