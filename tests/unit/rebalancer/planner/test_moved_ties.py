# SPDX-License-Identifier: Apache-2.0
"""Where a pod with ties may run is asked again exactly when moves can have changed it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebalancer.planner.draft import DraftFactory
from rebalancer.planner.problem import Problem
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.planner_dice import HOST, random_world

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_the_first_answer_holds_where_it_is_not_asked_again(seed: int) -> None:
    problem = Problem(random_world(seed).demand())
    drafts, dice = DraftFactory(problem), random.Random(seed)
    pods = [m for row in range(len(problem.nodes)) for m in problem.judged(row)]
    # The draft itself keeps count of the slots for pods.
    views = problem.snapshot.nodes
    roomy = np.array(
        [views[name].node.max_pods > len(views[name].pods) + 4 for name in problem.nodes]
    )
    draft = drafts.draft()
    draft.exact = True
    for m in dice.sample(pods, min(4, len(pods))):
        draft.put(m, dice.randrange(len(problem.nodes)))
        for q in pods:
            if q not in draft.moves and draft.fitting.has_ties(q):
                fits, soft = draft.fitting.now(q, draft.changes())
                assert (draft.possible(q) == fits)[roomy].all()
                asked = draft.spreads_no_worse(q)
                assert (asked is None) is (soft is None)
                assert asked is None or soft is None or (asked == soft).all()


def apart(labels: dict[str, str]) -> dict[str, object]:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


@pytest.mark.parametrize(
    ("spec", "other", "allowed"),
    [
        (apart({"app": "other"}), {}, False),
        ({}, apart({"app": "web"}), False),
        (apart({"app": "web"}), {}, True),
    ],
)
def test_a_pod_that_has_come_keeps_another_away(
    spec: dict[str, object], other: dict[str, object], *, allowed: bool
) -> None:
    world = PlannerWorld(config={"enabledStrategies": ["ResourceOptimization"]})
    for name in ("n0", "n1", "n2"):
        world.node(name)
    world.pod("web-0", "n0", (90.0, 10.0), owner="web", replicas=1, spec=spec)
    world.pod("other-0", "n1", (10.0, 10.0), owner="other", replicas=1, spec=other)
    problem = Problem(world.demand())
    draft = DraftFactory(problem).draft()
    draft.exact = True
    (web,), (moved,) = problem.judged(0), problem.judged(1)
    assert draft.possible(web)[2]
    draft.put(moved, 2)
    assert bool(draft.possible(web)[2]) is allowed
    draft.take_out(moved)
    assert draft.possible(web)[2]
