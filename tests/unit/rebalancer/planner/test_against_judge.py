# SPDX-License-Identifier: Apache-2.0
"""Plans for small clusters with all kinds of rules, beside an exact judge that shares no code."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.zoo.__main__ import judged, replayed, steps_of, too_important
from bench.zoo.cluster import Use, ZooCluster
from bench.zoo.families import drawn_cluster
from bench.zoo.hard_families import mixture
from bench.zoo.judge import judge
from bench.zoo.model import Model
from bench.zoo.program import Planned
from bench.zoo.replay import Replay, Step
from tests.support.worlds.zoo import zoo_plan

JUDGE_S = 10.0
NOT_FOUND = ("NoCombination", "NoOrder", "NotWorthIt", "WorstNodeWorse")
"""Reasons that say what a search did not find, or what a rule about gains forbids."""


@given(st.integers(0, 10**6))
@settings(max_examples=12)
def test_a_plan_keeps_every_rule_and_needs_at_most_one_eviction_more(seed: int) -> None:
    model, plan = drawn(seed)
    broken, missed = replayed(model, plan)
    assert broken == []
    assert untrue(model, plan) == []
    verdict = judge(model, seconds=JUDGE_S)
    if not verdict.proven or verdict.evictions is None or verdict.order_blocked:
        return
    assert plan.plan["lowerBoundAll"] <= verdict.evictions
    if not missed:
        assert plan.plan["lowerBound"] <= verdict.evictions
        # The judge does not count how often it makes use of the last resort.
        saved = resorts(model, verdict.steps) - resorts(model, steps_of(model, plan))
        assert len(plan.moves) <= verdict.evictions + 1 + max(0, saved)
        assert verdict.opened is None or too_important(model, plan, verdict.opened) == []


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        # The first half of an exchange, and it has to wait for another pod that leaves.
        ("need-each-other", 9),
        # What a search without success gave up is right beside other moves.
        ("host-ports", 32),
        # Pods of low priority are enough, but only in exchanges that need a solver.
        ("unimportant-helpers", 2),
        # Another pod has to make room for the one that has to leave.
        ("labels-changed", 8),
        # Memory is level, and a drain must not make it uneven.
        ("all-at-once", 2),
        # No pod gains a point by itself.
        ("level-tiny-pods", 6),
        ("level-large-nodes", 4),
    ],
)
def test_what_is_hard_to_find_is_found(family: str, seed: int) -> None:
    cluster = drawn_cluster(family, seed)
    found = judged(family, seed, Model(cluster), zoo_plan(cluster), JUDGE_S)
    assert (found.solvable, found.broken, found.unmet) == (True, (), ())
    assert found.evictions == found.fewest


def resorts(model: Model, steps: Sequence[Step]) -> int:
    """Count the moves of a drain that go where they should not."""
    replay, found = Replay(model), 0
    for step in steps:
        found += bool(replay.objections(step))
        replay.move(step)
    return found


def drawn(seed: int) -> tuple[Model, Planned]:
    cluster = mixture(random.Random(seed))
    return Model(cluster), zoo_plan(cluster)


def untrue(model: Model, plan: Planned) -> list[str]:
    """Return the reasons of unmet goals that the judge's own figures contradict."""
    replay = Replay(model)
    for step in steps_of(model, plan):
        replay.move(step)
    found = []
    for unmet in plan.plan["unmet"]:
        check = CHECKS.get(unmet["reason"]["name"], _left_out)
        words = unmet["goal"].split()
        row = next(r for r, name in enumerate(model.nodes) if name in words)
        # A goal of a single pod begins with its name.
        why = unmet["why"].replace("left for it:", f"left for {words[0]}:")
        if not check(replay, row, why):
            found.append(f"{unmet['goal']}: {unmet['why']}")
    return found


def _movable_at(replay: Replay, row: int) -> list[int]:
    pods = replay.model.pods
    return [p for p, at in enumerate(replay.at) if at == row == pods[p].home and pods[p].movable]


def _too_few(replay: Replay, row: int, _: str) -> bool:
    model = replay.model
    left = replay.load[row] - sum(model.pods[p].load for p in _movable_at(replay, row))
    return bool((model.percent(replay.load)[row] > model.ceiling[row]).any()) and bool(
        (100.0 * left / model.capacity[row] > model.ceiling[row]).any()
    )


def _none_movable(replay: Replay, row: int, _: str) -> bool:
    return _movable_at(replay, row) == []


def _larger_than_any_room(replay: Replay, row: int, _: str) -> bool:
    return all(not _room_for(replay, p).any() for p in _movable_at(replay, row))


def _no_target(replay: Replay, row: int, _: str) -> bool:
    model = replay.model
    return not any(r != row for r in np.flatnonzero(~(model.closed | model.emptied)))


def _left_out(replay: Replay, row: int, why: str) -> bool:
    """Check that no node is left for the pod that a reason names."""
    names = [p.name for p in replay.model.pods]
    named = [
        p for p in _movable_at(replay, row) if f"no node is left for default/{names[p]}:" in why
    ]
    return len(named) == 1 and not any(
        _room_for(replay, named[0])[r] and not replay.objections((named[0], r))
        for r in range(len(replay.model.nodes))
        if r != row
    )


def _room_for(replay: Replay, pod: int) -> Any:
    model = replay.model
    after = 100.0 * (replay.load + model.pods[pod].load) / model.capacity
    room = (after <= model.ceiling).all(axis=1) & ~(model.closed | model.emptied)
    room[model.pods[pod].home] = False
    return room


CHECKS: dict[str, Callable[[Replay, int, str], bool]] = {
    "MovablePodsTooFew": _too_few,
    "NoMovablePod": _none_movable,
    "LargerThanAnyRoom": _larger_than_any_room,
    "NoTarget": _no_target,
    **dict.fromkeys(NOT_FOUND, lambda *_: True),
}


def unreachable(kind: str) -> ZooCluster:
    """Return a cluster whose goal is out of reach for one reason."""
    cluster = ZooCluster({"enabledStrategies": ["ResourceOptimization"]})
    names = [cluster.node(f"n{i}") for i in range(1 if kind == "NoTarget" else 3)]
    stay = {"scheduler.alpha.kubernetes.io/rescheduling": "disabled"}
    fixed: dict[str, Any] = {"labels": {"app": "fixed", **stay}}
    base = {"NoMovablePod": 7000, "MovablePodsTooFew": 6800}.get(kind, 3000)
    cluster.workload("fixed", [names[0]] * 2, [Use(base, 1), Use(1, 1)], **fixed)
    if kind != "NoMovablePod":
        size = 300 if kind == "MovablePodsTooFew" else 2100
        spec = {"nodeSelector": {"disk": "none"}} if kind == "DoesNotFit" else {}
        cluster.workload("web", [names[0]] * 2, [Use(size, 1), Use(size, 1)], spec=spec)
    if kind == "LargerThanAnyRoom":
        others: dict[str, Any] = {"labels": {"app": "others", **stay}}
        cluster.workload("others", names[1:], [Use(5000, 1)] * 2, **others)
    return cluster


@pytest.mark.parametrize(
    "kind",
    ["MovablePodsTooFew", "NoMovablePod", "LargerThanAnyRoom", "NoTarget", "DoesNotFit"],
)
def test_every_kind_of_reason_is_true(kind: str) -> None:
    cluster = unreachable(kind)
    model, plan = Model(cluster), zoo_plan(cluster)
    assert [unmet["reason"]["name"] for unmet in plan.plan["unmet"]] == [kind]
    assert untrue(model, plan) == []
    assert judge(model, seconds=JUDGE_S).solvable is False
