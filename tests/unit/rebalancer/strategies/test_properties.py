# SPDX-License-Identifier: Apache-2.0
"""What holds of every assessment, whatever the cluster is like."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.cluster.records import NodeName
from common.config import FOR_LOAD
from rebalancer.goals import Distribute, Goal, Spread
from rebalancer.strategies import Assessment, Assessor
from tests.support.worlds.strategies import NOW_S, Scene, evictable

ALL = ["LoadBalancing", "ResourceOptimization", "NodeMaintenance"]
MAINTENANCE = "scheduler.alpha.kubernetes.io/maintenance"
LABELS: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {"team": "a"},
    {MAINTENANCE: "true"},
    {"karpenter.sh/nodepool": "x"},
)
TAINTS: tuple[list[dict[str, str]], ...] = (
    [],
    [],
    [],
    [{"key": "dedicated", "effect": "NoSchedule"}],
)

levels = st.integers(0, 120)
nodes = st.fixed_dictionaries(
    {
        "cpu": levels,
        "memory": levels,
        "ready": st.sampled_from([True, True, True, False]),
        "age": st.sampled_from([3600, 10]),
        "labels": st.sampled_from(LABELS),
        "taints": st.sampled_from(TAINTS),
    },
    optional={"unknown": st.just("NoSample")},
)
clusters = st.lists(nodes, max_size=7).map(
    lambda found: {f"n{number}": node for number, node in enumerate(found)}
)
configs = st.fixed_dictionaries(
    {
        "enabledStrategies": st.just(ALL),
        "poolLabel": st.sampled_from(["", "team"]),
        "fillLowNodes": st.sampled_from(["auto", "always", "never"]),
        "imbalanceThreshold": st.sampled_from([5.0, 20.0, 100.0]),
        "cpuThreshold": st.sampled_from([10.0, 80.0, 100.0]),
    }
)
Cluster = dict[str, dict[str, Any]]

_PLAIN: dict[str, Any] = {"ready": True, "age": 3600, "labels": {}, "taints": []}
ONE_RESOURCE_STUCK: Cluster = {
    "n1": {**_PLAIN, "cpu": 0, "memory": 82},
    "n2": {**_PLAIN, "cpu": 0, "memory": 25},
    "n3": {**_PLAIN, "cpu": 120, "memory": 0, "taints": TAINTS[3]},
}
"""The last node can receive nothing, but has to give: it is lowest in one resource only."""
LEVEL = {
    "enabledStrategies": ALL,
    "poolLabel": "",
    "fillLowNodes": "always",
    "imbalanceThreshold": 5.0,
    "cpuThreshold": 100.0,
}

few = settings(max_examples=50)
"""Each example makes a cluster, some of them many times."""


def assess(cluster: Cluster, config: dict[str, Any], *, looks: int = 0) -> Assessment:
    """Return what is said at once, or after so many samples."""
    scene = Scene(cluster, config=config)
    assessor = Assessor(scene.cluster().config)
    for number in range(looks - 1):
        assessor.assess(scene.cluster(sample_s=NOW_S - looks + number), evictable)
    return assessor.assess(scene.cluster(), evictable, at_once=not looks)


def nodes_of(goal: Goal) -> set[NodeName]:
    if isinstance(goal, Distribute):
        return set()
    return set(goal.nodes) if isinstance(goal, Spread) else {goal.node}


@few
@given(clusters, configs, st.randoms(use_true_random=False))
def test_the_order_of_nodes_never_matters(cluster: Cluster, config: Any, dice: Any) -> None:
    names = list(cluster)
    dice.shuffle(names)

    assert assess(cluster, config) == assess({name: cluster[name] for name in names}, config)


@few
@given(clusters, configs)
def test_the_same_look_gives_the_same_assessment(cluster: Cluster, config: Any) -> None:
    assert assess(cluster, config, looks=3) == assess(cluster, config, looks=3)


@few
@example(ONE_RESOURCE_STUCK, LEVEL)
@given(clusters, configs)
def test_goals_name_only_nodes_that_exist_and_take_part(cluster: Cluster, config: Any) -> None:
    found = assess(cluster, config)

    parts = found.participation
    for goal in found.goals:
        assert nodes_of(goal) <= cluster.keys()
        if isinstance(goal, Spread):
            assert not nodes_of(goal) & parts.spread_refused.keys()
            assert len(goal.nodes) >= 2
    assert set(parts.ceilings) == cluster.keys()
    assert sorted(name for pool in parts.pools.values() for name in pool) == sorted(cluster)


@few
@given(clusters, configs)
def test_what_stands_at_once_stands_after_three_equal_samples(
    cluster: Cluster, config: Any
) -> None:
    patient = assess(cluster, config, looks=3)

    assert patient.goals == assess(cluster, config).goals
    assert patient.waiting == ()


@few
@given(clusters, configs, st.integers(1, 2))
def test_fewer_samples_than_needed_state_no_goal_for_load(
    cluster: Cluster, config: Any, looks: int
) -> None:
    found = assess(cluster, config, looks=looks)

    assert FOR_LOAD.isdisjoint(goal.strategy for goal in found.goals)
    assert {goal.seen for goal in found.waiting} <= {looks}


@few
@given(clusters, configs, st.data())
def test_one_bad_sample_among_good_ones_states_nothing(
    cluster: Cluster, config: Any, data: Any
) -> None:
    calm = {name: {**node, "cpu": 5, "memory": 5} for name, node in cluster.items()}
    scene = Scene(calm, config=config)
    assessor = Assessor(scene.cluster().config)
    bad = data.draw(st.integers(0, 4))

    for number in range(5):
        spike = cluster if number == bad else None
        found = assessor.assess(scene.cluster(spike, sample_s=NOW_S + number), evictable)
        assert FOR_LOAD.isdisjoint(goal.strategy for goal in found.goals)
