"""Where a demo is in its story, when it is over, and what it came to."""

from __future__ import annotations

import pytest

from common.cluster.migrations import Step
from simulator.demo.story import Stage, Story
from simulator.demo.words import move_state, plan_head, plan_reasons, stage_line, summary, verdict
from simulator.figures import Figures, Look, Tally, tally
from tests.support.demo_scenes import HOT, LEVEL, landed, move, plan, sight, unmet, waiting_at


def story(nodes: int = 3) -> Story:
    return Story(points=20.0, nodes=nodes, sample_cycles=0.0)


def test_the_stages_follow_what_the_api_says() -> None:
    told = story()
    assert told.take(sight(HOT)) is Stage.HEATING
    assert told.take(sight(HOT, plan=plan(0, 0))) is Stage.WATCHING
    assert told.take(sight(HOT, plan=plan())) is Stage.PLANNED
    assert told.take(sight(HOT, [move()], plan=plan())) is Stage.MOVING
    # The plan is still shown while the next one is made, but its moves are over.
    assert told.take(sight(HOT, [landed()], plan=plan())) is Stage.WATCHING
    assert told.take(sight(LEVEL, [landed()], plan=plan(0, 0, "plan-2"))) is Stage.LEVEL


def test_a_level_cluster_must_stay_so_for_some_cycles() -> None:
    told = story()
    over = []
    for cycle in range(1, 6):
        told.take(sight(LEVEL, [landed()], plan=plan(0, 0), cycles=cycle))
        over.append(told.over)
    assert over == [False, False, True, True, True]


def test_what_cannot_be_made_level_is_given_up_later() -> None:
    told = story()
    for cycle in range(1, 9):
        assert not told.over
        told.take(sight(HOT, plan=plan(0, 0), cycles=cycle))
    assert told.over


def test_a_node_that_is_to_join_is_waited_for() -> None:
    told = story(nodes=4)
    for cycle in range(1, 20):
        told.take(sight(LEVEL, plan=plan(0, 0), cycles=cycle))
    assert not told.over


def test_pods_that_do_not_run_are_waited_for() -> None:
    told = story()
    for cycle in range(1, 20):
        told.take(sight(LEVEL, plan=plan(0, 0), cycles=cycle, ready=8))
    assert not told.over


def test_before_is_the_last_look_before_the_first_move() -> None:
    told = story()
    told.take(sight({"node-1": 1.0, "node-2": 1.0, "node-10": 1.0}))
    told.take(sight(HOT, plan=plan(), lower_bound=2))
    told.take(sight(LEVEL, [landed()], plan=plan(0, 0), lower_bound=1))
    found = told.figures(12.34).json()
    assert (found["hotBefore"], found["hotAfter"]) == (1, 0)
    assert (found["spreadBefore"], found["spreadAfter"]) == (42.0, 14.0)
    assert found["lowerBound"] == 2
    assert found["seconds"] == 12.3


def test_the_plan_that_moved_something_stays_on_show() -> None:
    told = story()
    told.take(sight(HOT, plan=plan()))
    told.take(sight(LEVEL, [landed()], plan=plan(0, 0, "plan-2")))
    assert told.plan is not None
    assert told.plan.plan_id == "plan-1"


def test_moves_are_counted_by_what_their_migrations_say() -> None:
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
    ("found", "words"),
    [
        (landed(), "as planned"),
        (landed(outcome="Elsewhere"), "elsewhere"),
        (move(phase="Failed", message="DeadlineExceeded: too late"), "given up: DeadlineExceeded"),
        (waiting_at(Step.BUDGET_CHECKED), "asks budgets"),
        (waiting_at(Step.BUDGET_CHECKED, "Canary"), "waits"),
        (waiting_at(Step.ACKNOWLEDGED), "sends intent"),
        (waiting_at(Step.READY), "starts"),
    ],
)
def test_a_move_says_how_far_it_is(found: object, words: str) -> None:
    assert move_state(found).startswith(words)  # type: ignore[arg-type]  # of the table


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (sight({}, pods=5, nodes=3), "has placed 5 pods; nothing is measured"),
        (sight(HOT), "1 node is above the ceiling"),
        (sight(HOT, plan=plan(0, 0)), "new samples must agree"),
        (sight(HOT, plan=plan()), "2 evictions, proven to be the fewest"),
        (sight(HOT, [move(), landed(2)], plan=plan()), "1 of 2 are done"),
        (sight(LEVEL, plan=plan(0, 0)), "there is nothing to do"),
        (sight(LEVEL, [landed()], plan=plan(0, 0)), "level; it is watched"),
    ],
)
def test_the_stage_is_told_in_one_line(seen: object, words: str) -> None:
    told = story()
    told.take(seen)  # type: ignore[arg-type]  # of the table
    assert words in stage_line(told, seen)  # type: ignore[arg-type]


def test_a_plan_says_how_many_evictions_it_has_and_why() -> None:
    assert plan_head(plan(3, 2)) == "3 evictions; 2 at least are proven to be needed"
    assert plan_head(plan(1, 1)) == "1 eviction, proven to be the fewest"
    assert plan_reasons(plan(2)) == ["node-1 uses 94 % CPU (allowed 80 %): 2 moves"]


def figures(after: dict[str, float], **counts: int) -> Figures:
    before, counted = Look(HOT, 3), Tally(**counts)
    return Figures(before=before, after=Look(after, 3), tally=counted, lower_bound=2, seconds=9)


def test_the_summary_names_evictions_beside_the_bound() -> None:
    rows = dict(summary(figures(LEVEL, evictions=3, as_planned=2, elsewhere=1, failed=1), "none"))
    assert rows["evictions"] == "3; 2 at least were needed"
    assert rows["landed"] == "2 as planned, 1 elsewhere"
    assert rows["hot nodes"].startswith("1 → 0")
    assert rows["given up"].startswith("1 moves")
    assert dict(summary(figures(LEVEL), ""))["evictions"] == "none"
    assert "fewest" in dict(summary(figures(LEVEL, evictions=2), ""))["evictions"]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (sight(LEVEL, [landed()], plan=plan(0, 0)), "The cluster is level."),
        (sight(LEVEL, plan=plan(0, 0)), "nothing was done"),
        (sight(HOT, plan=plan(0, 0, unmet=(unmet(),))), "because no pod may move"),
        (sight(HOT, plan=plan(0, 0)), "the time is over"),
    ],
)
def test_the_end_is_told_as_it_is(seen: object, words: str) -> None:
    told = story()
    told.take(seen)  # type: ignore[arg-type]  # of the table
    assert words in verdict(told.figures(1.0), told)
