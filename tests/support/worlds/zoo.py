# SPDX-License-Identifier: Apache-2.0
"""Plans for clusters of the zoo without a process: the same objects, read by the real parts."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from bench.zoo.cluster import ZooCluster
from bench.zoo.program import Planned
from common.cache.reader import CACHED_KINDS
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from common.config import RebalancerConfiguration
from common.load import LoadTracker
from common.usage.source import Sample, Usage
from rebalancer.highs.solve import solve
from rebalancer.planner import Demand, make_plan
from rebalancer.report import as_json
from tests.support.worlds.planner import NOW_S, demand_of, view_of
from tests.support.worlds.wire import wire


def zoo_demand(cluster: ZooCluster) -> Demand:
    """Return what a cluster of the zoo asks of the planner."""
    state = ClusterState()
    for kind in CACHED_KINDS:
        for made in cluster.objects.get(kind.resource.plural, []):
            kind.table(state).upsert(wire(kind.type_, made))
    snapshot, tracker = state.snapshot(), LoadTracker()
    tracker.observe(_sample(cluster), snapshot, NOW_S)
    config = RebalancerConfiguration.model_validate(cluster.settings)
    return demand_of(view_of(snapshot, tracker.view(snapshot, NOW_S), config))


def zoo_plan(cluster: ZooCluster) -> Planned:
    """Return the plan as the program would print it, with its solver in this process."""
    plan = make_plan(replace(zoo_demand(cluster), solve=solve))
    return Planned(msgspec.json.decode(as_json(plan)), 0.0)


def _sample(cluster: ZooCluster) -> Sample:
    used = {NodeName(name): cluster.used(name) for name in cluster.overhead}
    return Sample(
        nodes={n: Usage(u.cpu_milli, u.mem_bytes, NOW_S, 15.0) for n, u in used.items()},
        pods={
            f"default/{name}": Usage(use.cpu_milli, use.mem_bytes, NOW_S, 15.0)
            for name, use in cluster.use.items()
        },
    )
