# SPDX-License-Identifier: Apache-2.0
"""What is worth its evictions: the examples of docs/strategies.md."""

from __future__ import annotations

import pytest

from tests.support.worlds.planner import PlannerWorld, everything_moves


@pytest.mark.parametrize(
    ("cores", "level", "pod_cores", "room", "evictions", "end"),
    [
        (4, 86.0, 0.2, 60.0, 2, 76.0),
        (64, 86.0, 0.4, 60.0, 10, 79.75),
        (192, 80.4, 0.1, 60.0, 0, 80.4),
        (192, 83.0, 1.0, 60.0, 6, 79.875),
        (64, 86.0, 0.4, 2.0, 0, 86.0),
        (4, 86.0, 0.2, 5.0, 1, 81.0),
    ],
)
def test_nodes_of_any_size_are_relieved_if_their_ceiling_can_be_met(
    cores: int, level: float, pod_cores: float, room: float, evictions: int, end: float
) -> None:
    share = 100.0 * pod_cores / cores
    pods = int(level / share)
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    world.node("hot", pods=3000, overhead=level - pods * share)
    world.node("other", pods=3000, overhead=80.0 - room)
    for number in range(pods):
        world.pod(f"p-{number}", "hot", share)
    plan = world.plan(judged=everything_moves)
    [hot] = [node for node in plan.nodes if node.name == "hot"]
    assert len(plan.moves) == evictions
    assert hot.after.cpu == pytest.approx(end, abs=0.01)
    assert bool(plan.unmet) is (end > 80.5)
    if plan.unmet:
        assert f"hot ends at {end:.1f} % CPU" in plan.unmet[0].why.message
