# SPDX-License-Identifier: Apache-2.0
"""What rules put off takes nothing from what is carried out, and is shown beside it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner import Move, Plan
from tests.support.worlds.planner import PlannerWorld
from tests.unit.rebalancer.planner.test_rules import CEILINGS, CLOSED, LEVELING, drawn

Json = dict[str, Any]  # Any: a part of a configuration

RULES: Mapping[str, Json] = {
    "observes": {"modes": {CEILINGS: "observe", LEVELING: "observe"}},
    "closed": {"schedule": CLOSED},
}
NO_STRATEGY: Json = {"enabledStrategies": []}


def uneven(rule: Json) -> PlannerWorld:
    """Return a pool of a full and an empty node, and a node of another pool that is too full.

    What `b1` would give away fills `a2` so far that the pool of `a1` and `a2` looks level.
    """
    pool = {"name": "b", "nodeSelector": "pool=b", "cpuThreshold": 40.0, **rule}
    made = PlannerWorld(config={"mode": "act", "maxReschedulePods": 20, "pools": [pool]})
    for name in ("a1", "a2", "b1"):
        made.node(name, labels={"pool": name[0]})
    for owner, node, count, share in (
        ("x", "a1", 6, 12.5),
        ("y", "a2", 1, 12.5),
        ("z", "b1", 7, 13),
    ):
        for number in range(count):
            made.pod(f"{owner}{number}", node, (share, 5.0), owner=owner, replicas=count + 1)
    return made


def ends(moves: list[Move]) -> set[tuple[str, str]]:
    return {(move.source, move.target) for move in moves}


def carried_out(plan: Plan) -> set[tuple[str, str]]:
    return {(move.uid, move.target) for move in plan.moves if move.this_cycle}


@pytest.mark.parametrize("rule", RULES)
def test_a_pool_is_leveled_whatever_another_one_would_send_there(rule: str) -> None:
    plan = uneven(RULES[rule]).plan()
    now = [move for move in plan.moves if move.this_cycle]
    later = [move for move in plan.moves if not move.this_cycle]
    assert (ends(now), len(now)) == ({("a1", "a2")}, 2)
    assert {move.source for move in later} == {"b1"}
    assert all("pool b" in move.deferred_by for move in later)
    assert len({move.chain for move in plan.moves}) == len(plan.moves)


def test_both_are_one_plan() -> None:
    made = uneven(RULES["observes"])
    plan = made.plan()
    assert plan.goals[0] == "b1 below 40 % CPU"
    assert plan.unmet == ()
    assert plan.notes == (
        "4 planned moves are put off: ResourceOptimization only observes, by the modes of pool b.",
    )
    assert 2 <= plan.lower_bound.evictions <= len(plan.moves) <= plan.lower_bound_all.evictions + 3
    assert sum(each.pods for each in plan.staying) + len(plan.moves) == 14
    leaving = {move.uid for move in plan.moves}
    assert leaving.isdisjoint(each.uid for each in plan.refused)
    roles = {str(node.name): node.role for node in plan.nodes}
    assert roles["b1"] == "source"
    level = {str(node.name): round(node.before.cpu) for node in plan.nodes}
    assert level == {"a1": 75, "a2": 12, "b1": 91}
    after = {str(node.name): node.after.cpu for node in plan.nodes}
    for name, before in level.items():
        given_away = sum(m.cpu_milli for m in plan.moves if m.source == name)
        taken = sum(m.cpu_milli for m in plan.moves if m.target == name)
        assert after[name] == pytest.approx(before + (taken - given_away) / 100.0, abs=0.6)
    again = uneven(RULES["observes"]).plan()
    assert (again.plan_id, again.fingerprint) == (plan.plan_id, plan.fingerprint)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_a_pool_that_is_put_off_is_as_one_without_strategies(seed: int) -> None:
    dice, asked = random.Random(seed), drawn(seed)
    pools: list[Json] = [rule.given for rule in asked.pools]
    if not pools:
        return
    number, rule = dice.randrange(len(pools)), RULES[dice.choice([*RULES])]
    plans = []
    for ours in (rule, {**rule, **NO_STRATEGY}):
        changed = [*pools[:number], {**pools[number], "modes": {}, **ours}, *pools[number + 1 :]]
        asked.world.config = {**asked.config, "mode": "act", "schedule": [], "pools": changed}
        plans.append(asked.world.plan())
    assert carried_out(plans[0]) == carried_out(plans[1])
