# SPDX-License-Identifier: Apache-2.0
"""What our own moves have promised, and how long that counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from common.api.contract import PREDICTED_USE
from common.api.migrations import Migration, NodeUse, PodRef, Uses
from rebalancer.strategies import Assessor
from tests.support.worlds.migrations import START, migration, spec_of
from tests.support.worlds.strategies import NOW_S, Scene, evictable, told


def moved(source: NodeUse | None, target: NodeUse | None, *, minutes: int = 0) -> Migration:
    """Return a move from n1 to n2 with what it predicted of them."""
    pod = PodRef(namespace="default", name=f"p-{minutes}", uid=f"u-{minutes}")
    made = migration(
        spec_of(pod=pod, source="n1", target="n2"), created=START + timedelta(minutes=minutes)
    )
    uses = Uses(source=source, target=target)
    made.metadata.annotations = {PREDICTED_USE: msgspec.json.encode(uses).decode()}
    return made


def use(cpu: float, memory: float = 50.0) -> NodeUse:
    return NodeUse(cpu_percent=cpu, memory_percent=memory)


def wanted(nodes: dict[str, dict[str, Any]], *moves: Migration, **config: Any) -> list[str]:
    scene = Scene(nodes, config=config)
    for move in moves:
        scene.state.migrations.upsert(move)
    cluster = scene.cluster()
    return told(Assessor(cluster.config).assess(cluster, evictable, at_once=True).goals)


CEILINGS = {"enabledStrategies": ["ResourceOptimization"]}


@pytest.mark.parametrize(
    ("cpu", "predicted", "goals"),
    [
        (80.3, 80.0, []),
        (80.3, None, []),
        (80.5, 80.0, []),
        (80.6, 80.0, ["AtMost n1 cpu"]),
        (80.6, None, ["AtMost n1 cpu"]),
        (80.3, 79.7, []),
        (80.6, 80.4, ["AtMost n1 cpu"]),
        (79.9, 80.4, []),
    ],
)
def test_a_ceiling_is_a_goal_beyond_the_margin_whatever_was_promised(
    cpu: float, predicted: float | None, goals: list[str]
) -> None:
    promise = use(predicted) if predicted is not None else None
    nodes: dict[str, dict[str, Any]] = {"n1": {"cpu": cpu}, "n2": {}}
    assert wanted(nodes, moved(promise, None), **CEILINGS) == goals


SPREAD = {"enabledStrategies": ["LoadBalancing"], "imbalanceThreshold": 20.0}


@pytest.mark.parametrize(
    ("levels", "high", "low", "goals"),
    [
        ((70.3, 49.7), 70.0, 50.0, []),
        ((70.3, 50.0), 70.0, None, []),
        ((70.0, 49.6), 70.0, None, []),
        ((70.0, 49.6), None, None, ["Spread cpu n1 n2"]),
        ((70.0, 49.4), 70.0, None, ["Spread cpu n1 n2"]),
        ((70.3, 49.7), 70.0, 49.9, ["Spread cpu n1 n2"]),
        ((69.8, 50.0), 70.2, 50.0, []),
    ],
)
def test_a_pool_counts_as_promised_at_both_ends(
    levels: tuple[float, float], high: float | None, low: float | None, goals: list[str]
) -> None:
    predicted = [use(level) if level is not None else None for level in (high, low)]
    nodes: dict[str, dict[str, Any]] = {"n1": {"cpu": levels[0]}, "n2": {"cpu": levels[1]}}
    assert wanted(nodes, moved(*predicted), **SPREAD) == goals


def test_the_last_promise_counts() -> None:
    nodes: dict[str, dict[str, Any]] = {"n1": {"cpu": 70.3}, "n2": {"cpu": 50.0}}
    early, late = moved(use(70.0), None), moved(use(60.0), None, minutes=5)
    assert wanted(nodes, late, early, **SPREAD) == ["Spread cpu n1 n2"]


def test_a_promise_holds_sample_after_sample() -> None:
    scene = Scene({"n1": {"cpu": 70.4}, "n2": {"cpu": 50.0}}, config=SPREAD)
    scene.state.migrations.upsert(moved(use(70.0), None))
    assessor = Assessor(scene.cluster().config)
    for sample in range(4):
        cluster = scene.cluster({"n2": {"cpu": 49.8}}, sample_s=NOW_S + sample)
        found = assessor.assess(cluster, evictable)
        assert (found.goals, found.waiting) == ((), ())
    for sample in range(4, 8):
        cluster = scene.cluster({"n1": {"cpu": 71.0}}, sample_s=NOW_S + sample)
        found = assessor.assess(cluster, evictable)
    assert told(found.goals) == ["Spread cpu n1 n2"]
