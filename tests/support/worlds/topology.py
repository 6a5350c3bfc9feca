# SPDX-License-Identifier: Apache-2.0
"""Clusters that `bench.topology` draws, to plan for without a program of its own."""

from __future__ import annotations

from collections import Counter

from bench.topology import FIRM, SETTINGS, TAINT, Drawn
from rebalancer.planner import Plan
from tests.support.worlds.planner import PlannerWorld


def world_of_drawn(drawn: Drawn) -> PlannerWorld:
    """Return a drawn cluster whose pods use next to nothing."""
    world = PlannerWorld(config=SETTINGS)
    for name, node in drawn.nodes.items():
        taints = [TAINT] if node.tainted else []
        world.node(name, size=node.cores / 10, labels=node.labels(name), taints=taints)
    replicas = Counter(pod.workload for pod in drawn.pods.values())
    for name, pod in drawn.pods.items():
        workload = drawn.workloads[pod.workload]
        world.pod(
            name,
            pod.home,
            0.01,
            owner=pod.workload,
            replicas=replicas[pod.workload],
            asks=(10 * workload.cores, 0.01),
            labels={"set": workload.shared},
            spec=workload.spec(),
            annotations=FIRM if pod.firm else None,
        )
    return world


def moves_of(plan: Plan) -> list[tuple[str, str]]:
    """Return which pod goes where, in order."""
    return [(move.pod.partition("/")[2], str(move.target)) for move in plan.moves]
