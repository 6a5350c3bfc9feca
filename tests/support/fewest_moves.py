"""The proven fewest moves with which the nodes of a test come together.

Solved exactly from the manifests: what pods really use, where they are, and that no move may
raise the largest number of a workload's replicas on one node or in one zone. The solver does
not know that two replicas may want the same place, so no plan needs fewer moves than it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from rebalancer.goals import Dimension, Spread
from rebalancer.planner.exact import Status, exact
from rebalancer.planner.instance import Flags, Instance
from tests.support.real_scenario import NODE_MILLI, app_of, node_of, uid_of, use_of

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
        words="",
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
    """[P, N] where a pod may go without its workload being piled up more than before."""
    on_host = Counter((app_of(pod), node_of(pod)) for pod in pods)
    in_zone = Counter((app_of(pod), zones[node_of(pod)]) for pod in pods)
    most_on_host, most_in_zone = _most(on_host), _most(in_zone)

    def may(pod: Json, node: str) -> bool:
        app, here, there = app_of(pod), zones[node_of(pod)], zones[node]
        return (
            node != node_of(pod)
            and on_host[app, node] < most_on_host[app]
            and (here == there or in_zone[app, there] < most_in_zone[app])
        )

    return np.array([[may(pod, node) for node in nodes] for pod in pods])


def _most(counted: Counter[tuple[str, str]]) -> dict[str, int]:
    """Return the largest number of each workload in one place."""
    found: dict[str, int] = {}
    for (app, _), count in counted.items():
        found[app] = max(count, found.get(app, 0))
    return found
