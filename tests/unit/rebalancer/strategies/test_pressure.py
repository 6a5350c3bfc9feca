# SPDX-License-Identifier: Apache-2.0
"""A node whose tasks wait is relieved step by step, each after a window of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from common.api.migrations import MigrationStatus, Phase
from common.cluster.records import NodeName
from rebalancer.goals import AtMost, Dimension
from rebalancer.strategies.participation import participation
from rebalancer.strategies.resource_optimization import ResourceOptimization
from tests.support.worlds.migrations import migration, spec_of
from tests.support.worlds.strategies import NOW_S, Scene, evictable

WINDOW_S = 120.0
CONFIG: dict[str, Any] = {
    "usageSource": "prometheus",
    "prometheus": {"url": "http://prometheus:9090", "window": "2m"},
    "pressure": {"cpu": 20.0, "memory": 10.0},
}


def scene(**n1: Any) -> Scene:
    calm = {"pressure": {"cpu": 1.0, "memory": 0.0}}
    return Scene({"n1": {"cpu": 30, "memory": 40, **n1}, "n2": calm}, config=dict(CONFIG))


def goals(made: Scene) -> list[AtMost]:
    cluster = made.cluster()
    stated = ResourceOptimization().goals(cluster, participation(cluster, evictable))
    return [goal for goal in stated if isinstance(goal, AtMost)]


def test_a_node_under_pressure_gives_a_tenth_of_what_it_uses() -> None:
    [goal] = goals(scene(pressure={"cpu": 45.0, "memory": 0.0}))
    assert (goal.node, goal.broken) == ("n1", (Dimension.CPU,))
    assert goal.ceiling.cpu_percent == pytest.approx(27.0)
    assert goal.ceiling.mem_percent == 80.0
    assert goal.message == "n1 has 45 % CPU pressure (allowed 20 %, pressure.cpu)"


def test_pressure_and_use_are_both_named() -> None:
    [goal] = goals(scene(cpu=93, pressure={"cpu": 0.0, "memory": 12.0}))
    assert set(goal.broken) == {Dimension.CPU, Dimension.MEMORY}
    assert goal.ceiling.mem_percent == pytest.approx(36.0)
    assert goal.message == (
        "n1 uses 93 % CPU (allowed 80 %, cpuThreshold) and "
        "has 12 % memory pressure (allowed 10 %, pressure.memory)"
    )


def test_both_are_named_of_one_resource_if_the_threshold_asks_for_more() -> None:
    """A tenth of 95 % is not enough to come below 80 %."""
    [goal] = goals(scene(cpu=95, pressure={"cpu": 45.0, "memory": 0.0}))
    assert goal.ceiling.cpu_percent == 80.0
    assert goal.message == (
        "n1 uses 95 % CPU (allowed 80 %, cpuThreshold) and "
        "has 45 % CPU pressure (allowed 20 %, pressure.cpu)"
    )


def test_while_it_settles_only_its_use_is_named() -> None:
    [goal] = goals(scene(cpu=90, leaving=5, pressure={"cpu": 45.0, "memory": 0.0}))
    assert goal.message == "n1 uses 85 % CPU (allowed 80 %, cpuThreshold)"


def test_at_the_threshold_nothing_is_wanted() -> None:
    assert goals(scene(pressure={"cpu": 20.0, "memory": 10.0})) == []


def move(*, ended_s: float | None, source: str = "n1", target: str = "n2") -> Any:
    def at(moment_s: float | None) -> datetime | None:
        return None if moment_s is None else datetime.fromtimestamp(moment_s, UTC)

    made = migration(spec_of(source=source, target=target))
    phase = Phase.IN_PROGRESS if ended_s is None else Phase.COMPLETED
    made.status = MigrationStatus(phase=phase, evicted_at=at(ended_s), finished_at=at(ended_s))
    return made


@pytest.mark.parametrize(
    ("ended_s", "relieved"),
    [
        (None, False),
        (NOW_S - 10.0, False),
        (NOW_S - WINDOW_S, False),
        (NOW_S - WINDOW_S - 61.0, True),
    ],
)
@pytest.mark.parametrize("ends", [("n1", "n2"), ("n2", "n1")])
def test_after_a_move_the_window_has_to_pass(
    ended_s: float | None, ends: tuple[str, str], *, relieved: bool
) -> None:
    """Until then the pressure is that of the pod that left; n1 would be relieved again for it."""
    made = scene(pressure={"cpu": 45.0, "memory": 0.0})
    made.state.migrations.upsert(move(ended_s=ended_s, source=ends[0], target=ends[1]))
    assert [goal.node for goal in goals(made)] == ([NodeName("n1")] if relieved else [])


def test_while_a_pod_drains_its_pressure_calls_for_no_other() -> None:
    assert goals(scene(leaving=5, pressure={"cpu": 45.0, "memory": 0.0})) == []


def test_it_takes_nothing_meanwhile() -> None:
    made = scene(leaving=5, pressure={"cpu": 45.0, "memory": 0.0})
    refused = participation(made.cluster(), evictable).targets_refused
    assert [refusal.name for refusal in refused[NodeName("n1")]] == ["UnderPressure"]


def test_a_pressure_that_is_not_known_is_noted() -> None:
    cluster = scene().cluster()
    found = ResourceOptimization().notes(cluster, participation(cluster, evictable))
    assert list(found) == [
        "The CPU pressure of n1 is not known, so only usage is judged there.",
        "The memory pressure of n1 is not known, so only usage is judged there.",
    ]
