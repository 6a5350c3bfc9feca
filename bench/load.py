# SPDX-License-Identifier: Apache-2.0
"""The cost of the load model at 5,000 nodes and 150,000 pods.

    python -m bench.load [--nodes 5000] [--per-node 30]

Prints time, CPU time and megabytes, with the default figures and with those that reach back
furthest.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from common.api.objects import Node, Pod
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from common.config import LoadSettings
from common.load import LoadTracker
from common.usage.source import Sample, Usage

K = TypeVar("K", bound=str)

START_S = 1_800_000_000.0
SCHEDULED = "2026-11-16T08:00:00Z"
REPLICAS = 10


def fill(state: ClusterState, nodes: int, pods: int) -> None:
    """Fill the state with nodes and pods, as watches would."""
    for i in range(nodes):
        state.nodes.upsert(msgspec.convert(_node(i), Node))
        for j in range(pods):
            state.pods.upsert(msgspec.convert(_pod(i, i * pods + j), Pod))


def _node(index: int) -> dict[str, Any]:
    return {
        "metadata": {"name": f"node-{index}", "uid": f"node-uid-{index:08}"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }


def _pod(node: int, index: int) -> dict[str, Any]:
    workload = f"web-{index // REPLICAS}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "controller": True}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": SCHEDULED}
    return {
        "metadata": {
            "namespace": f"team-{index % 50}",
            "name": f"{workload}-{index:06}",
            "uid": f"6b1f6f1c-0000-4000-8000-{index:012}",
            "ownerReferences": [{**owner, "uid": f"owner-{workload}"}],
        },
        "spec": {
            "nodeName": f"node-{node}",
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}],
        },
        "status": {"phase": "Running", "conditions": [scheduled]},
    }


def sample(state: ClusterState, end_s: float) -> Sample:
    """Return a sample in which every value is a new object, as if decoded."""
    snapshot = state.snapshot()
    return Sample(
        nodes={
            NodeName(name): Usage(3000.0 + i % 500, 9e9 + i, end_s + i % 10, 60.0)
            for i, name in enumerate(snapshot.nodes)
        },
        pods={
            pod.key: Usage(80.0 + i % 90, 2e8 + i, end_s + i % 10, 60.0)
            for i, pod in enumerate(snapshot.pods.values())
        },
    )


def timed(words: str, work: Callable[[], Any], times: int = 1) -> None:
    """Print the fastest of several runs: wall-clock and CPU time."""
    gc.collect()
    best = min(_seconds(work) for _ in range(times))
    print(f"  {words:<46} {best[0] * 1000:9.1f} ms {best[1] * 1000:9.1f} ms CPU")


def _seconds(work: Callable[[], Any]) -> tuple[float, float]:
    began, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - busy


def print_memory(state: ClusterState, rounds: Sequence[Sample], settings: LoadSettings) -> None:
    """Print what the tracker itself holds after two samples, and with a view that is kept."""
    snapshot = state.snapshot()
    tracemalloc.start()
    tracker = LoadTracker(settings)
    tracker.observe(rounds[0], snapshot, START_S)
    tracker.observe(rounds[1], snapshot, START_S + 60)
    print(f"  {'memory of the tracker':<46} {tracemalloc.get_traced_memory()[0] / 1e6:9.1f} MB")
    view = tracker.view(snapshot, START_S + 60)
    print(f"  {'  with a view':<46} {tracemalloc.get_traced_memory()[0] / 1e6:9.1f} MB")
    print(f"  {'  at most meanwhile':<46} {tracemalloc.get_traced_memory()[1] / 1e6:9.1f} MB")
    tracemalloc.stop()
    del view


def print_aggregated(state: ClusterState, rounds: Sequence[Sample]) -> None:
    """Print what figures over a window cost, those that reach back furthest."""
    figure = {"type": "p95", "window": "60m"}
    mean = {"type": "mean", "window": "60m"}
    aggregation = {"ceilings": figure, "targets": mean}
    settings = LoadSettings.model_validate({"load": {"aggregation": aggregation}})
    print("load.aggregation: p95 for ceilings, mean for targets, of 60m")
    tracker, snapshot = LoadTracker(settings), state.snapshot()
    for number in range(1, 35):
        found, now_s = rounds[number % len(rounds)], START_S + 120 * number
        news = Sample(nodes=_later(found.nodes, now_s), pods=_later(found.pods, now_s))
        if number < 33:
            tracker.observe(news, snapshot, now_s)
            continue
        observe = partial(tracker.observe, news, snapshot, now_s)
        timed("observe a full sample, all slots filled", observe)
        timed("view after it", partial(tracker.view, snapshot, now_s))
    print_memory(state, rounds, settings)


def _later(usages: Mapping[K, Usage], end_s: float) -> dict[K, Usage]:
    return {k: Usage(u.cpu_milli, u.mem_bytes, end_s, u.window_s) for k, u in usages.items()}


def main(nodes: int, pods: int) -> None:
    state = ClusterState()
    fill(state, nodes, pods)
    gc.freeze()
    rounds = [sample(state, START_S + 60 * i) for i in range(4)]
    tracker = LoadTracker()
    print(f"{nodes} nodes, {nodes * pods} pods")
    snapshot = state.snapshot()
    for number, found in enumerate(rounds, 1):
        now_s = START_S + 60 * number
        timed(f"observe a full sample ({number})", partial(tracker.observe, found, snapshot, now_s))
        timed("view after it", partial(tracker.view, snapshot, now_s))
    timed("view, nothing changed", lambda: tracker.view(snapshot, now_s + 1), 20)
    timed("observe the same sample again", lambda: tracker.observe(rounds[-1], snapshot, now_s))
    _change(state, 1)
    after = state.snapshot()
    timed("view after one new pod", lambda: tracker.view(after, now_s))
    _change(state, 1000)
    later = state.snapshot()
    timed("view after 1,000 new pods", lambda: tracker.view(later, now_s))
    view = tracker.view(later, now_s)
    uids = list(later.pods)
    timed("load of every pod, one by one", lambda: [view.pod_load(uid) for uid in uids])
    timed("view when every sample is stale", lambda: tracker.view(later, now_s + 1000))
    print_memory(state, rounds, LoadSettings())
    print_aggregated(state, rounds)


def _change(state: ClusterState, pods: int) -> None:
    base = 10_000_000 + pods
    for index in range(pods):
        state.pods.upsert(msgspec.convert(_pod(index, base + index), Pod))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--per-node", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    main(options.nodes, options.per_node)
