# SPDX-License-Identifier: Apache-2.0
"""Level domains of a hard spread keep replicas where they are, and the bound knows it."""

from __future__ import annotations

from typing import Any

import pytest

from rebalancer.planner import make_plan
from tests.support.oracles.plan_checker import faults
from tests.support.worlds.planner import PlannerWorld

CONFIG = {"enabledStrategies": ["ResourceOptimization"]}
ZONE = "topology.kubernetes.io/zone"


def spread(**more: Any) -> dict[str, Any]:
    """Return a hard constraint for zones."""
    chosen = {"matchLabels": {"app": "web"}}
    stated = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**stated, "labelSelector": chosen, **more}]}


def world_of(
    spec: dict[str, Any], *, zones: str = "abc", at: tuple[str, ...] = ("n0", "n1", "n2")
) -> PlannerWorld:
    """Return a hot node with one large replica, and eight small pods of which two would do."""
    world = PlannerWorld(config=CONFIG)
    for number, zone in enumerate(zones):
        world.node(f"n{number}", zone=zone)
    for number, node in enumerate(at):
        world.pod(f"web-{number}", node, 40 if node == "n0" else 5, owner="web", spec=spec)
    for number in range(8):
        world.pod(f"small-{number}", "n0", 6)
    return world


@pytest.mark.parametrize(
    ("world", "bound"),
    [
        (world_of(spread()), 2),
        (world_of(spread(), zones="abca"), 1),
        (world_of(spread(maxSkew=2)), 1),
        (world_of(spread(whenUnsatisfiable="ScheduleAnyway")), 1),
        (world_of(spread(), at=("n0", "n1", "n1")), 1),
        (world_of({}), 1),
        (world_of(spread(minDomains=5)), 1),
    ],
    ids=["level", "room in its zone", "skew of two", "soft", "uneven", "none", "too few domains"],
)
def test_a_replica_that_cannot_leave_its_zone_does_not_count(
    world: PlannerWorld, bound: int
) -> None:
    demand = world.demand()
    plan = make_plan(demand)
    assert faults(demand, plan) == []
    assert (plan.lower_bound.evictions, plan.unmet) == (bound, ())
    assert len(plan.moves) >= bound


def test_another_pod_that_is_counted_could_move_first() -> None:
    """A pod without the constraint has the labels: once it goes, the zones are uneven."""
    world = world_of(spread(), at=("n0", "n1"))
    world.pod("stray", "n2", 5, labels={"app": "web"})
    assert make_plan(world.demand()).lower_bound.evictions == 1
