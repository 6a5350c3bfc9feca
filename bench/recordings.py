# SPDX-License-Identifier: Apache-2.0
"""How well the load estimate predicts the next sample, on recordings of real kubelets.

`python -m bench.recordings FILE...` plays each file: one JSON line per reading with `t`, `nodes`
and `pods` (the items of the metrics API) and `objs` ([pod, node, time of scheduling]). Each new
sample of a node is compared with the estimate before it. It prints per minute and node the worst
and the mean difference in points of allocatable. A sample whose window contains the start of a
pod is the mean of two different loads, which no estimate can match: these are printed separately.

Recordings have no requests of pods; `--request MILLI` sets them.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from common.api.objects import Node, Pod
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from common.load import LoadTracker, NodeLoad
from common.usage.metrics_server import read_node, read_pod
from common.usage.source import Sample, Usage

ALLOCATABLE_MILLI = 500
MEMORY = "2Gi"
SETTLED_S = 120.0


class Step(NamedTuple):
    """A new sample of a node, and the estimate just before it."""

    node: str
    at_s: float
    believed: NodeLoad
    measured: Usage
    mixed: bool
    """A pod started inside the window."""

    @property
    def cpu_points(self) -> float:
        return 100.0 * (self.believed.cpu_milli - self.measured.cpu_milli) / ALLOCATABLE_MILLI

    @property
    def mem_points(self) -> float:
        offered = self.believed.offered.mem_bytes
        return 100.0 * (self.believed.mem_bytes - self.measured.mem_bytes) / offered


def steps(rows: list[dict[str, Any]], request_milli: int) -> Iterator[Step]:
    """Play a recording; yield each new sample of a node with the estimate before it."""
    state, tracker = ClusterState(), LoadTracker()
    newest: dict[NodeName, float] = {}
    began_s = rows[0]["t"]
    pods: dict[str, Pod] = {}
    for row in rows:
        _take_objects(state, pods, row.get("objs") or (), request_milli)
        sample = Sample(
            nodes=dict(read_node(_raw(item)) for item in row["nodes"] or ()),
            pods=dict(read_pod(_raw(item)) for item in row["pods"] or ()),
        )
        for name in sample.nodes:
            state.nodes.upsert(_node(name))
        believed = tracker.view(state.snapshot(), row["t"]).nodes
        for name, usage in sample.nodes.items():
            if usage.end_s > newest.get(name, 0.0):
                if name in newest:
                    there = state.snapshot().nodes[name].pods.values()
                    mixed = any((pod.scheduled_s or 0.0) > usage.start_s - 1.0 for pod in there)
                    yield Step(name, row["t"] - began_s, believed[name], usage, mixed)
                newest[name] = usage.end_s
        tracker.observe(sample, state.snapshot(), row["t"])


def _raw(item: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(item))


def _node(name: str) -> Node:
    resources = {"cpu": f"{ALLOCATABLE_MILLI}m", "memory": MEMORY, "pods": "30"}
    manifest = {"metadata": {"name": name, "uid": name}, "status": {"allocatable": resources}}
    return msgspec.convert(manifest, Node)


def _take_objects(
    state: ClusterState, pods: dict[str, Pod], objects: Any, request_milli: int
) -> None:
    here = {name for name, _, _ in objects}
    for name in [name for name in pods if name not in here]:
        state.pods.delete(pods.pop(name))
    for name, node, scheduled in objects:
        pods[name] = made = _pod(name, node, scheduled, request_milli)
        state.pods.upsert(made)


def _pod(name: str, node: str, scheduled: str, request_milli: int) -> Pod:
    workload = name.rsplit("-", 1)[0]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": workload, "controller": True}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled}
    requests = {"cpu": f"{request_milli}m", "memory": "4Mi"}
    manifest = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [{**owner, "uid": workload}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "app", "resources": {"requests": requests}}],
        },
        "status": {"phase": "Running", "conditions": [condition]},
    }
    return msgspec.convert(manifest, Pod)


def show(path: Path, request_milli: int) -> None:
    """Print a recording per minute, and the worst step after two minutes."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = list(steps(rows, request_milli))
    begun = datetime.fromtimestamp(rows[0]["t"], UTC)
    print(f"{path.name}: {len(rows)} readings from {begun:%H:%M:%S}, {len(found)} new node samples")
    minutes: dict[tuple[int, str], list[Step]] = defaultdict(list)
    for step in found:
        minutes[int(step.at_s // 60), step.node].append(step)
    print("  minute  node     measured  believed   worst    mean   memory  (points of allocatable)")
    for (minute, node), some in sorted(minutes.items()):
        last, cpu = some[-1], [abs(step.cpu_points) for step in some]
        print(
            f"  {minute:6}  {node:8} {last.measured.cpu_milli:7.1f}m"
            f" {last.believed.cpu_milli:8.1f}m {max(cpu):7.2f} {fmean(cpu):7.2f}"
            f" {max(abs(step.mem_points) for step in some):8.2f}"
        )
    late = [step for step in found if step.at_s >= SETTLED_S]
    for title, some in (
        ("after two minutes", [step for step in late if not step.mixed]),
        ("windows in which a pod started", [step for step in late if step.mixed]),
    ):
        if some:
            worst = max(some, key=lambda step: abs(step.cpu_points))
            print(
                f"  {title}: {len(some)} samples, worst {abs(worst.cpu_points):.2f} points of CPU "
                f"({worst.node} at {worst.at_s:.0f} s), "
                f"{max(abs(s.mem_points) for s in some):.2f} of memory"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, help="recordings, one JSON line per look")
    parser.add_argument("--request", type=int, default=141, help="CPU request of each pod, milli")
    options = parser.parse_args()
    for path in options.files:
        show(path, options.request)


if __name__ == "__main__":
    main()
