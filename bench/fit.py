# SPDX-License-Identifier: Apache-2.0
"""The cost of fit checks at 5,000 nodes and 150,000 pods.

Prints wall-clock milliseconds, the best and the median of several runs, and the gain of the
vectorized form. `python bench/fit.py [NODES] [PODS_PER_NODE]` changes the size.
Budgets: one pod against all nodes 5 ms, a what-if of ten moves 20 ms.
"""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from common.api.objects import (
    Node,
    Pod,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
)
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodRecord, PodUid
from common.fit import Arrive, Candidate, FitIndex, Terminate, World
from simulator.scheduler.scores import totals

REPLICAS = 30
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
DRIVER = "csi.example.com"
Json = dict[str, Any]


def fill(state: ClusterState, nodes: int, pods: int) -> None:
    """Fill the state with nodes and pods of many workloads."""
    for i in range(nodes):
        state.nodes.upsert(msgspec.convert(_node(i), Node))
        state.csi_nodes.upsert(msgspec.convert(_csi_node(i), CSINode))
    for number in range(nodes * pods):
        # Consecutive numbers are replicas of one workload, on different nodes.
        state.pods.upsert(msgspec.convert(_pod(number, number % nodes), Pod))
        if _kind(number // REPLICAS) == "claim":
            state.volumes.upsert(msgspec.convert(_volume(number), PersistentVolume))
            state.claims.upsert(msgspec.convert(_claim(number), PersistentVolumeClaim))


def _kind(workload: int) -> str:
    kinds = ("plain",) * 4 + ("anti-affinity",) * 2 + ("spread",) * 2 + ("affinity", "claim")
    return kinds[workload % len(kinds)]


def _node(number: int) -> Json:
    name = f"node-{number}"
    labels = {HOSTNAME: name, ZONE: f"zone-{number % 3}", "disk": ("ssd", "hdd")[number % 2]}
    taints = [{"key": "team", "value": "gpu", "effect": "NoSchedule"}] if number % 20 == 0 else []
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}},
    }


def _csi_node(number: int) -> Json:
    driver = {"name": DRIVER, "nodeID": str(number), "allocatable": {"count": 25}}
    return {"metadata": {"name": f"node-{number}"}, "spec": {"drivers": [driver]}}


def _pod(number: int, node: int | None = None) -> Json:
    workload = number // REPLICAS
    spec: Json = {"containers": [_container()], **_rules(workload, number)}
    if node is not None:
        spec["nodeName"] = f"node-{node}"
    return {
        "metadata": {
            "namespace": f"team-{workload % 50}",
            "name": f"web-{workload}-{number}",
            "uid": f"uid-{number:08}",
            "labels": {"app": f"web-{workload}", "pod-template-hash": "5d9f"},
        },
        "spec": spec,
        "status": {"phase": "Running"},
    }


def _container() -> Json:
    return {"name": "app", "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}}


def _rules(workload: int, number: int) -> Json:
    mine = {"matchLabels": {"app": f"web-{workload}"}}
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    kind = _kind(workload)
    if kind == "anti-affinity":
        term = {"topologyKey": HOSTNAME, "labelSelector": mine}
        return {"affinity": {"podAntiAffinity": {rule: [term]}}}
    if kind == "affinity":
        term = {"topologyKey": ZONE, "labelSelector": mine}
        return {"affinity": {"podAffinity": {rule: [term]}}}
    if kind == "spread":
        each = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": mine}
        keys = (ZONE, HOSTNAME)
        return {"topologySpreadConstraints": [{**each, "topologyKey": key} for key in keys]}
    if kind == "claim":
        claim = {"claimName": f"claim-{number}"}
        return {"volumes": [{"name": "data", "persistentVolumeClaim": claim}]}
    return {}


def _volume(number: int) -> Json:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [f"zone-{number % 3}"]}]}
    return {
        "metadata": {"name": f"pv-{number}", "uid": f"pv-{number}"},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": f"pv-{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def _claim(number: int) -> Json:
    namespace = f"team-{number // REPLICAS % 50}"
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    name = f"claim-{number}"
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "annotations": done},
        "spec": {"volumeName": f"pv-{number}", "accessModes": ["ReadWriteOnce"]},
    }


def replica_of(snapshot: Snapshot, kind: str) -> PodRecord:
    """Return a pod of the first workload of a kind."""
    workload = next(w for w in range(10) if _kind(w) == kind)
    return snapshot.pods[PodUid(f"uid-{workload * REPLICAS:08}")]


def selective(pod: PodRecord) -> Candidate:
    """Return a pod that also selects a kind of node."""
    shape = msgspec.structs.replace(
        pod.shape, node_selector=(("disk", "ssd"), (ZONE, "zone-1")), priority=1
    )
    return msgspec.structs.replace(Candidate.of(pod), shape=shape)


def ten_moves(world: World, start: int) -> World:
    """Return the world after ten pods have moved to other nodes."""
    names = list(world.snapshot.nodes)
    pods = [
        world.snapshot.pods[PodUid(f"uid-{(start + i) * 97 % len(world.snapshot.pods):08}")]
        for i in range(10)
    ]
    changes = [
        change
        for i, pod in enumerate(pods)
        for change in (
            Terminate(pod.uid),
            Arrive(
                msgspec.structs.replace(Candidate.of(pod), uid=PodUid(f"new-{start}-{i}")),
                NodeName(names[(start + i * 31) % len(names)]),
            ),
        )
    ]
    return world.after(*changes)


def timed(words: str, work: Callable[[int], Any], times: int = 30) -> float:
    """Print the best and the median of several runs; return the median in ms."""
    gc.collect()
    spent = []
    for run in range(times):
        start = time.perf_counter()
        work(run)
        spent.append((time.perf_counter() - start) * 1000)
    middle = statistics.median(spent)
    print(f"{words:<58} best {min(spent):9.3f} ms   median {middle:9.3f} ms")
    return middle


def main(nodes: int = 5000, pods: int = 30) -> None:
    state = ClusterState()
    fill(state, nodes, pods)
    snapshot = state.snapshot()
    gc.collect()
    before = _resident_mb()
    index = FitIndex()
    world = World(snapshot, index)
    print(f"{nodes} nodes, {len(snapshot.pods)} pods")
    timed("index from nothing", lambda _: index.seek(snapshot, ()), times=1)
    print(f"{'its memory':<58} {_resident_mb() - before:8.0f} MB")
    _measure_questions(world)
    _measure_moves(state, world)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def _measure_questions(world: World) -> None:
    kinds = ("plain", "anti-affinity", "affinity", "spread", "claim")
    for kind in kinds:
        pod = replica_of(world.snapshot, kind)
        without = world.after(Terminate(pod.uid))
        candidate = Candidate.of(pod)
        without.mask(candidate)
        timed(f"one pod against all nodes: {kind}", partial(_judge, without, candidate))
    pod = replica_of(world.snapshot, "spread")
    timed("… and its scores", lambda _: totals(world.ask(Candidate.of(pod))))
    candidate = selective(pod)
    many = timed("… spread, on some nodes only", lambda _: world.mask(candidate))
    one = timed("the same, node by node, with reasons", lambda _: _one_by_one(world, candidate), 3)
    print(f"{'vectorized is faster by':<58} {one / many:8.0f} x")


def _judge(world: World, candidate: Candidate, _: int) -> None:
    world.mask(candidate)


def _one_by_one(world: World, candidate: Candidate) -> int:
    question = world.ask(candidate)
    return sum(not question.rejections(name) for name in world.snapshot.nodes)


def _measure_moves(state: ClusterState, world: World) -> None:
    candidate = Candidate.of(replica_of(world.snapshot, "spread"))
    timed(
        "what-if of ten moves, then one pod against all nodes",
        lambda run: ten_moves(world, run).mask(candidate),
    )
    later = ten_moves(world, 1000)
    later.mask(candidate)
    timed(
        "one more move on top of ten",
        lambda run: later.after(Terminate(PodUid(f"uid-{run * 31 + 7:08}"))).mask(candidate),
    )
    timed(
        "snapshot after one event, then one pod against all nodes",
        lambda run: _after_event(state, world, run).mask(candidate),
    )


def _after_event(state: ClusterState, world: World, run: int) -> World:
    moved = _pod(run, 4000 % len(world.snapshot.nodes) + run)
    state.pods.upsert(msgspec.convert(moved, Pod))
    return World(state.snapshot(), world.index)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
