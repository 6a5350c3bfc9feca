# SPDX-License-Identifier: Apache-2.0
"""Goals for load stand only when several samples in a row call for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from common.cluster.records import NodeName
from common.config import Strategy
from rebalancer.goals import AtMost, Ceiling, Goal
from rebalancer.strategies import Assessor, assessment
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.resource_optimization import above
from tests.support.worlds.strategies import (
    NOW_S,
    Case,
    Scene,
    evictable,
    load_cases,
    scene_of,
    told,
)

ALL = ["LoadBalancing", "ResourceOptimization", "NodeMaintenance"]


@pytest.mark.parametrize("case", load_cases("observations"), ids=str)
def test_goals_stand_after_enough_samples(case: Case) -> None:
    scene = scene_of(case.row)
    scene.config = {"enabledStrategies": ALL, **scene.config}
    assessor = Assessor(scene.cluster().config)
    sample_s = NOW_S

    for number, step in enumerate(case.row["looks"], 1):
        sample_s += 0 if step.get("again") else 60
        assessor.moved([NodeName(name) for name in step.get("moved", [])])
        for name in step.get("gone", []):
            scene.remove(name)
        measured = None if case.row.get("requests") else sample_s
        cluster = scene.cluster(step.get("levels"), sample_s=measured, now_s=sample_s)
        found = assessor.assess(cluster, evictable)

        assert told(found.goals) == step.get("goals", []), f"look {number}"
        waiting = [goal.message for goal in found.waiting]
        assert waiting == step.get("waiting", []), f"look {number}"


def test_a_node_that_comes_back_under_its_name_starts_from_nothing() -> None:
    scene = Scene({"n1": {"cpu": 90}, "n2": {"cpu": 75}})
    assessor = Assessor(scene.cluster().config)
    for number in (1, 2):
        assessor.assess(scene.cluster(sample_s=NOW_S + number), evictable)
    scene.remove("n1")
    assessor.assess(scene.cluster(sample_s=NOW_S + 3), evictable)

    again = Scene(scene.nodes).cluster(sample_s=NOW_S + 4)
    found = assessor.assess(again, evictable)

    assert [(goal.seen, goal.needed) for goal in found.waiting] == [(1, 3)]


def test_nodes_that_are_far_off_for_the_first_time_are_told_so() -> None:
    scene = Scene({"n1": {"cpu": 70}, "n2": {"cpu": 60}, "n3": {"cpu": 40}})
    found = Assessor(scene.cluster().config).assess(scene.cluster(), evictable)

    refused = found.participation.spread_refused
    assert {name: [r.name for r in why] for name, why in refused.items()} == {
        "n1": ["SeenTooRarely"],
        "n3": ["SeenTooRarely"],
    }


def test_judging_at_once_counts_nothing() -> None:
    scene = Scene({"n1": {"cpu": 90}, "n2": {"cpu": 75}})
    assessor = Assessor(scene.cluster().config)
    for number in range(3):
        assessor.assess(scene.cluster(sample_s=NOW_S + number), evictable, at_once=True)

    found = assessor.assess(scene.cluster(sample_s=NOW_S + 3), evictable)

    assert [goal.seen for goal in found.waiting] == [1]


class Frugal:
    """A strategy of someone else: no node may use more than half."""

    name: ClassVar[Strategy] = Strategy.LOAD_BALANCING
    for_load: ClassVar[bool] = True

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        half = Ceiling(50.0, 50.0)
        return [
            AtMost(strategy=self.name, node=n, ceiling=half, broken=broken, message="mine")
            for n, load in cluster.load.nodes.items()
            if (broken := above(load, half))
        ]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        return ()


def test_goals_keep_the_name_of_whoever_stated_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assessment, "STRATEGIES", (Frugal(),))
    scene = Scene({"n1": {"cpu": 60, "memory": 45}})
    assessor = Assessor(scene.cluster().config)
    for number in range(2):
        assessor.assess(scene.cluster(sample_s=NOW_S + number), evictable)
    [part] = assessor.assess(
        scene.cluster({"n1": {"cpu": 60, "memory": 55}}, sample_s=NOW_S + 2), evictable
    ).goals
    for number in range(3, 5):
        cluster = scene.cluster({"n1": {"cpu": 60, "memory": 55}}, sample_s=NOW_S + number)
        [whole] = assessor.assess(cluster, evictable).goals

    assert (part.strategy, told([part])) == (Frugal.name, ["AtMost n1 cpu"])
    assert (whole.strategy, whole.message) == (Frugal.name, "mine")
