# SPDX-License-Identifier: Apache-2.0
"""What each strategy states about one look."""

from __future__ import annotations

from typing import Any

import pytest

from common.cluster.records import NodeName
from common.config import REPAIRS, ConfigError, RebalancerConfiguration, Strategy, load_config
from rebalancer.goals import AtMost, Spread
from rebalancer.strategies import STRATEGIES, Assessment, Assessor
from tests.support.worlds.strategies import Case, Scene, evictable, load_cases, scene_of, told

ALL = [str(name) for name in Strategy if name not in {*REPAIRS, Strategy.CONSOLIDATION}]


def assess(scene: Scene) -> Assessment:
    cluster = scene.cluster()
    return Assessor(cluster.config).assess(cluster, evictable, at_once=True)


@pytest.mark.parametrize("case", load_cases("strategies"), ids=str)
def test_strategies_state_goals_and_say_why_not(case: Case) -> None:
    scene = scene_of(case.row)
    scene.config = {"enabledStrategies": ALL, **scene.config}

    found = assess(scene)

    assert told(found.goals) == case.row["goals"]
    assert found.waiting == ()
    for words in case.row.get("notes", []):
        assert any(words in note for note in found.notes), found.notes
    assert not (case.row.get("silent") and found.notes)
    for name, reason in case.row.get("spread", {}).items():
        refusals = found.participation.spread_refused[NodeName(name)]
        assert [refusal.name for refusal in refusals] == [reason]


def test_every_strategy_of_the_configuration_exists_once() -> None:
    assert sorted(strategy.name for strategy in STRATEGIES) == sorted(Strategy)


def test_goals_have_words_for_people() -> None:
    nodes: dict[str, dict[str, Any]] = {
        "n1": {"cpu": 92, "memory": 85},
        "n2": {"cpu": 30, "memory": 70},
        "n3": {"labels": {"scheduler.alpha.kubernetes.io/maintenance": "true"}},
    }
    found = assess(Scene(nodes, config={"enabledStrategies": ALL}))

    assert [goal.message for goal in found.goals] == [
        "n3 is under maintenance",
        "n1 uses 92 % CPU (allowed 80 %, cpuThreshold) and 85 % memory (allowed 80 %, "
        "memoryThreshold)",
        "n1 uses 92 % CPU and n2 30 %: 62 points apart (allowed 20, imbalanceThreshold)",
    ]


def test_a_spread_without_filling_is_told_from_the_mean() -> None:
    nodes: dict[str, dict[str, Any]] = {
        name: {"cpu": cpu, "labels": {"team": "a"}}
        for name, cpu in {"n1": 75, "n2": 50, "n3": 40}.items()
    }
    found = assess(Scene(nodes, config={"fillLowNodes": "never", "poolLabel": "team"}))

    assert [goal.message for goal in found.goals] == [
        "n1 uses 75 % CPU: 30 points above the mean of the others of pool a "
        "(allowed 20, imbalanceThreshold)"
    ]


def test_any_node_under_its_ceiling_may_receive() -> None:
    found = assess(Scene({"n1": {"cpu": 95}, "n2": {"cpu": 79}, "n3": {"cpu": 79}}))

    assert told(found.goals) == ["AtMost n1 cpu"]
    assert found.participation.targets_refused == {}


def test_many_nodes_that_are_left_alone_are_named_in_short() -> None:
    control_plane = {"node-role.kubernetes.io/control-plane": ""}
    nodes: dict[str, dict[str, Any]] = {
        f"n{i}": {"cpu": 95, "labels": control_plane} for i in range(1, 6)
    }
    found = assess(Scene({**nodes, "w1": {}}))

    assert found.notes == (
        "Above the ceiling, but not relieved: n1, n2, n3 and 2 more, because it is a control-plane "
        "node.",
    )


def test_a_high_node_without_movable_pods_is_refused_as_a_source_too() -> None:
    nodes: dict[str, dict[str, Any]] = {"n1": {"cpu": 75}, "n2": {"cpu": 50}, "n3": {"cpu": 40}}
    found = assess(Scene(nodes, {"web": {"at": "n2"}}, crowded=False))

    assert [r.name for r in found.participation.sources_refused[NodeName("n1")]] == [
        "NoEvictablePod"
    ]


def test_the_least_choosy_pods_are_tried_first() -> None:
    choosy = {"spec": {"nodeSelector": {"disk": "ssd"}}}
    pods = {f"a{i:03}": {"at": "n1", **choosy} for i in range(200)}
    nodes: dict[str, dict[str, Any]] = {"n1": {"cpu": 75}, "n2": {"cpu": 40}}

    found = assess(Scene(nodes, {**pods, "web": {"at": "n1"}}, crowded=False))

    assert told(found.goals) == ["Spread cpu n1 n2"]


def test_goals_carry_what_the_planner_needs() -> None:
    found = assess(Scene({"n1": {"cpu": 92}, "n2": {"cpu": 30}}, config={"cpuThreshold": 85.0}))

    ceiling, spread = found.goals
    assert isinstance(ceiling, AtMost)
    assert isinstance(spread, Spread)
    assert (ceiling.ceiling.cpu_percent, ceiling.ceiling.mem_percent) == (85.0, 80.0)
    assert (spread.points, spread.strategy) == (20.0, Strategy.LOAD_BALANCING)


@pytest.mark.parametrize("key", ["cpuThreshold", "memoryThreshold", "imbalanceThreshold"])
@pytest.mark.parametrize("value", ["0", "0.0", "-5", "100.5", "1000", ".nan", ".inf"])
def test_thresholds_that_make_no_sense_are_refused_by_name(
    key: str, value: str, tmp_path: Any
) -> None:
    file = tmp_path / "config.yaml"
    head = "apiVersion: evenkeel.io/v1alpha1\nkind: RebalancerConfiguration\n"
    file.write_text(f"{head}{key}: {value}\n")

    with pytest.raises(ConfigError, match=key):
        load_config(str(file), RebalancerConfiguration)
