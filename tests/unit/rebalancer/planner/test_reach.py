# SPDX-License-Identifier: Apache-2.0
"""Volumes keep pods on the nodes that they reach, and the bound knows it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.problems import Shape, draw
from bench.zoo.cluster import ZooCluster
from bench.zoo.drawing import CEILINGS, DEFAULT, Drawn, fill, group
from bench.zoo.judge import judge
from bench.zoo.model import Model
from common.api.storage import PersistentVolume, PersistentVolumeClaim
from common.config import Strategy
from rebalancer.planner import make_plan
from rebalancer.planner.bounds import lower_bound
from tests.support.oracles.plan_checker import faults
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.wire import wire
from tests.support.worlds.zoo import zoo_plan

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
JUDGE_S = 10.0


def reached_from(key: str, *values: str) -> dict[str, Any]:
    """Return the node affinity of a volume."""
    term = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}}


def claim(
    world: PlannerWorld,
    spec: dict[str, Any],
    *,
    name: str = "data",
    bound: bool = True,
    found: bool = True,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Add a claim with its volume; return the spec of a pod that mounts it."""
    volume = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "default", "name": name},
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        **spec,
    }
    meta = {"name": f"pv-{name}", "labels": labels or {}}
    if found:
        made = {"metadata": meta, "spec": volume, "status": {"phase": "Bound"}}
        world.state.volumes.upsert(wire(PersistentVolume, made))
    done = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    made = {
        "metadata": {"name": name, "namespace": "default", "annotations": done},
        "spec": {**asked, "volumeName": f"pv-{name}"} if bound else asked,
        "status": {"phase": "Bound" if bound else "Pending"},
    }
    world.state.claims.upsert(wire(PersistentVolumeClaim, made))
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def hot_world(zones: str) -> PlannerWorld:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    for number, zone in enumerate(zones):
        world.node(f"n{number}", zone=zone)
    for number in range(8):
        world.pod(f"small-{number}", "n0", 6)
    return world


@pytest.mark.parametrize(
    ("zones", "spec", "given", "bound"),
    [
        ("abc", reached_from(ZONE, "a"), {}, 2),
        ("abc", reached_from(HOST, "n0"), {}, 2),
        ("abc", {}, {"labels": {ZONE: "a"}}, 2),
        ("aba", reached_from(ZONE, "a"), {}, 1),
        ("abc", reached_from(ZONE, "a", "c"), {}, 1),
        ("abc", {}, {}, 1),
        ("abc", reached_from(ZONE, "a"), {"bound": False}, 1),
        ("abc", reached_from(ZONE, "a"), {"found": False}, 1),
    ],
    ids=[
        "only its zone",
        "only its node",
        "a zone in its labels",
        "another node in its zone",
        "two zones",
        "any node",
        "not bound",
        "no such volume",
    ],
)
def test_a_pod_whose_volume_reaches_no_other_node_does_not_count(
    zones: str, spec: dict[str, Any], given: dict[str, Any], bound: int
) -> None:
    """The node is above its ceiling by less than its large pod, or by two of its small ones."""
    world = hot_world(zones)
    world.pod("large", "n0", 40, spec=claim(world, spec, **given))
    demand = world.demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert (plan.lower_bound.evictions, plan.unmet) == (bound, ())
    assert len(plan.moves) >= bound


@pytest.mark.parametrize(("pinned", "bound"), [(False, 1), (True, 3)])
def test_a_pod_does_not_fill_a_node_that_its_volume_does_not_reach(
    pinned: bool, bound: int
) -> None:
    """A large pod alone would level the two zones, or several small ones."""
    world = PlannerWorld(
        config={"enabledStrategies": ["LoadBalancing"], "fillLowNodes": "always", "minGain": 0.0}
    )
    for name, zone in (("a0", "a"), ("a1", "a"), ("b0", "b")):
        world.node(name, zone=zone)
    spec = claim(world, reached_from(ZONE, "a")) if pinned else None
    world.pod("large", "a0", 30, spec=spec)
    for number in range(10):
        world.pod(f"small-{number}", "a0", 3)
    for number in range(15):
        world.pod(f"other-{number}", "a1", 3)
    world.pod("low", "b0", 10)
    demand = world.demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert plan.unmet == ()
    assert plan.lower_bound.evictions == bound <= len(plan.moves)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=10)
def test_no_bound_with_volumes_exceeds_the_optimum(seed: int, level: bool) -> None:
    cluster = zonal(random.Random(seed), dict(DEFAULT if level else CEILINGS))
    plan, verdict = zoo_plan(cluster), judge(Model(cluster), seconds=JUDGE_S)
    if verdict.evictions is not None and not verdict.order_blocked:
        assert plan.plan["lowerBoundAll"] <= verdict.evictions
        assert plan.plan["unmet"] or plan.plan["lowerBound"] <= verdict.evictions


def zonal(rng: random.Random, config: dict[str, Any]) -> ZooCluster:
    """Return three zones, one of which has a single node, and volumes in most pods."""
    cluster, drawn = ZooCluster(config), list[Drawn]()
    zone_of = {cluster.node(name, zone=name[0]): name[0] for name in ("a0", "b0", "b1", "c0")}
    for name in zone_of:
        target = rng.uniform(83, 95) if name in ("a0", "b0") else rng.uniform(35, 60)
        drawn += fill(rng, name, 8000, target, (300, 2000))
    for name, node in group(cluster, rng, drawn, replicas=(2, 3)).items():
        if rng.random() < 0.7:
            cluster.zonal_claim(name, zone_of[node])
    return cluster


@given(st.integers(0, 10**6), st.data())
@settings(max_examples=30)
def test_pods_that_share_a_row_of_flags_have_the_same_bound(seed: int, data: st.DataObject) -> None:
    problem = draw(seed, Shape(nodes=5, pods=25, hot=2))
    goals = problem.demand(tuple(Strategy)[:2]).assessment.goals
    instance = problem.instance()
    few = data.draw(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1))
    picked = data.draw(
        st.lists(st.integers(0, len(few) - 1), min_size=len(instance.at), max_size=len(instance.at))
    )
    flags, kinds = np.array(few, dtype=np.bool_), np.array(picked, dtype=np.int64)
    each = flags[kinds]
    each[np.arange(len(instance.at)), instance.at] = False
    apart = replace(instance, allowed=each)
    shared = replace(instance, allowed=flags, kinds=kinds)
    assert lower_bound(shared, goals) == lower_bound(apart, goals)
