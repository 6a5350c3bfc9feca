# SPDX-License-Identifier: Apache-2.0
"""The proven fewest moves with which the nodes of a test come together.

Solved exactly from the manifests: what pods really use, where they are, and how many replicas
of a workload one node or zone may hold. The solver does not know that two replicas may want the
same place, so no plan needs fewer moves than it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bench.exact import Status, exact
from bench.stands.real_scenario import NODE_MILLI, app_of, node_of, uid_of, use_of
from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.goals import Dimension, Spread
from rebalancer.planner.instance import Flags, Instance

SECONDS = 60.0

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


def fewest_within(
    points: float, pods: Iterable[Json], zones: Mapping[str, str], ceiling_percent: float
) -> int:
    """Return the fewest moves after which no two nodes are further apart than so many points."""
    instance = _instance(sorted(pods, key=uid_of), zones, ceiling_percent)
    goal = Spread(
        strategy=Strategy.LOAD_BALANCING,
        pool="",
        dimension=Dimension.CPU,
        points=points,
        nodes=instance.nodes,
        fill_low=True,
        message="",
    )
    found = exact(instance, [goal], seconds=SECONDS)
    assert found.status is Status.OPTIMAL, found.status
    assert found.evictions is not None
    return found.evictions


def _instance(pods: list[Json], zones: Mapping[str, str], ceiling_percent: float) -> Instance:
    nodes = sorted(zones)
    at = np.array([nodes.index(node_of(pod)) for pod in pods])
    milli = np.array([float(use_of(pod)) for pod in pods])
    load = np.zeros((len(nodes), 2))
    np.add.at(load[:, 0], at, milli)
    return Instance(
        nodes=tuple(map(NodeName, nodes)),
        capacity=np.full((len(nodes), 2), float(NODE_MILLI)),
        load=load,
        ceiling=np.full((len(nodes), 2), ceiling_percent),
        gives=np.ones(len(nodes), dtype=np.bool_),
        takes=np.ones(len(nodes), dtype=np.bool_),
        pods=tuple(PodUid(uid_of(pod)) for pod in pods),
        at=at,
        pod_load=np.stack([milli, np.zeros_like(milli)], axis=1),
        allowed=_allowed(pods, nodes, zones),
        empty=np.zeros(len(nodes), dtype=np.bool_),
    )


def _allowed(pods: list[Json], nodes: list[str], zones: Mapping[str, str]) -> Flags:
    """[P, N] where a pod may go: one replica more than an even share, and never all of them."""
    on_host = Counter((app_of(pod), node_of(pod)) for pod in pods)
    in_zone = Counter((app_of(pod), zones[node_of(pod)]) for pod in pods)
    replicas = Counter(app_of(pod) for pod in pods)
    per_host = {app: _most(count, len(nodes)) for app, count in replicas.items()}
    per_zone = {app: _most(count, len(set(zones.values()))) for app, count in replicas.items()}

    def may(pod: Json, node: str) -> bool:
        app, here, there = app_of(pod), zones[node_of(pod)], zones[node]
        return (
            node != node_of(pod)
            and on_host[app, node] < per_host[app]
            and (here == there or in_zone[app, there] < per_zone[app])
        )

    return np.array([[may(pod, node) for node in nodes] for pod in pods])


def _most(replicas: int, domains: int) -> int:
    """Return how many replicas one of several hosts or zones may hold."""
    share = -(-replicas // domains) + 1
    return min(share, replicas - 1) if replicas > 1 and domains > 1 else share
