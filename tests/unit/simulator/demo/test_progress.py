# SPDX-License-Identifier: Apache-2.0
"""How far a demo is, when it is over, and its results."""

from __future__ import annotations

import pytest

from common.api.migrations import Step
from simulator.demo.progress import Progress, Stage
from simulator.demo.text import move_state, plan_head, plan_reasons, stage_line, summary, verdict
from simulator.figures import Figures, Tally, Utilization, tally
from tests.support.worlds.demo import HOT, LEVEL, landed, move, observation, plan, unmet, waiting_at


def begin(nodes: int = 3) -> Progress:
    return Progress(points=20.0, nodes=nodes, sample_cycles=0.0)


def test_the_stages_follow_the_api() -> None:
    progress = begin()
    assert progress.update(observation(HOT)) is Stage.HEATING
    assert progress.update(observation(HOT, plan=plan(0, 0))) is Stage.WATCHING
    assert progress.update(observation(HOT, plan=plan())) is Stage.PLANNED
    assert progress.update(observation(HOT, [move()], plan=plan())) is Stage.MOVING
    # The plan is still shown while the next one is made, but its moves are over.
    assert progress.update(observation(HOT, [landed()], plan=plan())) is Stage.WATCHING
    assert progress.update(observation(LEVEL, [landed()], plan=plan(0, 0, "plan-2"))) is Stage.LEVEL


def test_a_level_cluster_must_stay_level_for_some_cycles() -> None:
    progress = begin()
    over = []
    for cycle in range(1, 6):
        progress.update(observation(LEVEL, [landed()], plan=plan(0, 0), cycles=cycle))
        over.append(progress.over)
    assert over == [False, False, True, True, True]


def test_a_cluster_that_cannot_be_leveled_ends_later() -> None:
    progress = begin()
    for cycle in range(1, 9):
        assert not progress.over
        progress.update(observation(HOT, plan=plan(0, 0), cycles=cycle))
    assert progress.over


def test_a_node_that_is_to_join_is_waited_for() -> None:
    progress = begin(nodes=4)
    for cycle in range(1, 20):
        progress.update(observation(LEVEL, plan=plan(0, 0), cycles=cycle))
    assert not progress.over


def test_pods_that_do_not_run_are_waited_for() -> None:
    progress = begin()
    for cycle in range(1, 20):
        progress.update(observation(LEVEL, plan=plan(0, 0), cycles=cycle, ready=8))
    assert not progress.over


def test_before_is_the_last_observation_before_the_first_move() -> None:
    progress = begin()
    progress.update(observation({"node-1": 1.0, "node-2": 1.0, "node-10": 1.0}))
    progress.update(observation(HOT, plan=plan(), lower_bound=2))
    progress.update(observation(LEVEL, [landed()], plan=plan(0, 0), lower_bound=1))
    found = progress.figures(12.34).json()
    assert (found["hotBefore"], found["hotAfter"]) == (1, 0)
    assert (found["spreadBefore"], found["spreadAfter"]) == (42.0, 14.0)
    assert found["lowerBound"] == 2
    assert found["seconds"] == 12.3


def test_the_plan_that_moved_pods_stays_on_screen() -> None:
    progress = begin()
    progress.update(observation(HOT, plan=plan()))
    progress.update(observation(LEVEL, [landed()], plan=plan(0, 0, "plan-2")))
    assert progress.plan is not None
    assert progress.plan.plan_id == "plan-1"


def test_moves_are_counted_from_their_migrations() -> None:
    moves = [
        landed(1),
        landed(2, "Alternative"),
        landed(3, "BackOnSource"),
        landed(4, "NotReplaced"),
        landed(5, pod_uid="new-1"),
        move(6),
        move(7, phase="Failed"),
        move(8, phase="Failed", evicted_s=1.0),
    ]
    assert tally(moves) == Tally(
        evictions=6, as_planned=2, elsewhere=2, not_replaced=1, failed=2, again=1, under_way=1
    )


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (landed(), "as planned"),
        (landed(outcome="Elsewhere"), "elsewhere"),
        (move(phase="Failed", message="DeadlineExceeded: too late"), "failed: DeadlineExceeded"),
        (waiting_at(Step.BUDGET_CHECKED), "checking PDB"),
        (waiting_at(Step.BUDGET_CHECKED, "Canary"), "waiting"),
        (waiting_at(Step.ACKNOWLEDGED), "intent sent"),
        (waiting_at(Step.READY), "starting"),
    ],
)
def test_a_move_shows_how_far_it_is(found: object, text: str) -> None:
    assert move_state(found).startswith(text)  # type: ignore[arg-type]  # of the table


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (observation({}, pods=5, nodes=3), "has placed 5 pods. No usage measured yet."),
        (observation(HOT), "considers only requests: 1 node is above 80 % CPU."),
        (observation(HOT, plan=plan(0, 0)), "samples must agree before any pod moves"),
        (observation(HOT, plan=plan()), "Plan: 2 evictions, the proven minimum."),
        (observation(HOT, [move(), landed(2)], plan=plan()), "Moving pods: 1 of 2 done."),
        (observation(LEVEL, plan=plan(0, 0)), "The cluster is level. There is nothing to do."),
        (
            observation(LEVEL, [landed()], plan=plan(0, 0)),
            "The cluster is level. Checking that it stays that way.",
        ),
    ],
)
def test_the_stage_is_shown_in_one_line(seen: object, text: str) -> None:
    progress = begin()
    progress.update(seen)  # type: ignore[arg-type]  # of the table
    assert text in stage_line(progress, seen)  # type: ignore[arg-type]


def test_a_plan_shows_its_evictions_and_reasons() -> None:
    assert plan_head(plan(3, 2)) == "3 evictions; at least 2 are needed"
    assert plan_head(plan(1, 1)) == "1 eviction, the proven minimum"
    assert plan_reasons(plan(2)) == ["node-1 uses 94 % CPU (allowed 80 %): 2 moves"]


def figures(after: dict[str, float], **counts: int) -> Figures:
    before, counted = Utilization(HOT, 3), Tally(**counts)
    return Figures(
        before=before, after=Utilization(after, 3), tally=counted, lower_bound=2, seconds=9
    )


def test_the_summary_names_evictions_beside_the_bound() -> None:
    rows = dict(summary(figures(LEVEL, evictions=3, as_planned=2, elsewhere=1, failed=1), "none"))
    assert rows["evictions"] == "3, at least 2 were needed"
    assert rows["landed"] == "2 as planned, 1 elsewhere"
    assert rows["hot nodes"].startswith("1 → 0")
    assert rows["failed"] == "1 move, 0 not replaced"
    assert dict(summary(figures(LEVEL), ""))["evictions"] == "none"
    assert dict(summary(figures(LEVEL, evictions=2), ""))["evictions"] == "2, the proven minimum"


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (observation(LEVEL, [landed()], plan=plan(0, 0)), "The cluster is level."),
        (observation(LEVEL, plan=plan(0, 0)), "The cluster was level. No pod was moved."),
        (
            observation(HOT, plan=plan(0, 0, unmet=(unmet(),))),
            "Goal not met: node-1 at most 80 % (no pod may move).",
        ),
        (observation(HOT, plan=plan(0, 0)), "Not level yet: time is up."),
    ],
)
def test_the_result_is_stated_as_it_is(seen: object, text: str) -> None:
    progress = begin()
    progress.update(seen)  # type: ignore[arg-type]  # of the table
    assert text in verdict(progress.figures(1.0), progress)
