# SPDX-License-Identifier: Apache-2.0
"""Every rule of the breaker, and that it comes out the same however it is rebuilt."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from common.api.migrations import MigrationCondition, Purpose
from common.api.objects import Deployment, ReplicaSet
from common.cluster.migrations import MigrationRecord
from common.config import Breaker
from rebalancer.pacing.breaker import Breakers, blocks, quarantine
from rebalancer.pacing.history import CLOSED, LONGEST_S, BreakerState, Histories
from rebalancer.pacing.replay import history_of
from rebalancer.pacing.signs import ALARMS, Signs, alarmed
from rebalancer.pacing.votes import TRYING, TRYING_NAMESPACE, TRYING_WORKLOAD, workload_of
from simulator import build
from tests.support.worlds.evictability import NOW
from tests.support.worlds.pacing import (
    MAINTENANCE,
    PacingCase,
    PacingWorld,
    load_cases,
    record_of,
)
from tests.support.worlds.wire import owner_reference, stamped, wire, wire_pod

MINUTE_S = 60.0
BASE_S = NOW.timestamp()
KINDS: dict[str, dict[str, Any]] = {
    "g": {"phase": "Completed", "outcome": "AsPlanned", "evicted": 0},
    "b": {"phase": "Completed", "outcome": "BackOnSource", "evicted": 0},
    "f": {"phase": "Failed", "evicted": 0},
    "c": {"phase": "Failed", "kind": "", "replacement": "copy"},
    "u": {"phase": "Completed", "outcome": "Unguided", "evicted": 0},
    "n": {"phase": "Completed", "outcome": "NotReplaced", "evicted": 0},
    "e": {"phase": "Failed"},
    "m": {"phase": "Completed", "outcome": "Elsewhere", "evicted": 0},
}


def finished(kind: str, number: int, minute: float, **other: Any) -> MigrationRecord:
    return record_of({"pod": f"p{number}", **KINDS[kind], "finished": -minute * MINUTE_S, **other})


def breaker_of(
    migrations: Iterable[MigrationRecord],
    settings: Breaker,
    now_s: float,
    purpose: Purpose,
    *,
    guidance: bool = True,
) -> BreakerState:
    """Return whether anything may move, if only the namespaces of these moves have pods."""
    past = history_of(migrations, settings, purpose, guidance=guidance)
    breakers = Breakers(past=past, now_s=now_s, try_s=settings.half_open_after.seconds)
    return breakers.shown(lambda: ())


def history(row: dict[str, Any]) -> list[MigrationRecord]:
    made_for = row.get("made_for", row.get("purpose", "load"))
    other = MAINTENANCE if made_for == "maintenance" else {}
    times = row.get("at", range(len(row["moves"])))
    moves = enumerate(zip(row["moves"], times, strict=True))
    return [finished(kind, number, minute, **other) for number, (kind, minute) in moves]


def expected(row: dict[str, Any]) -> BreakerState:
    if row.get("closed"):
        return CLOSED
    until: float = row["open_until"] if "open_until" in row else row["half_open_until"]
    return BreakerState(
        open="open_until" in row,
        half_open="half_open_until" in row,
        until_s=BASE_S + until * MINUTE_S,
        cause=row["words"],
    )


@pytest.mark.parametrize("case", load_cases("breaker"), ids=str)
def test_the_state_that_finished_moves_lead_to(case: PacingCase) -> None:
    row = case.row
    state = breaker_of(
        history(row),
        Breaker.model_validate(row.get("config", {})),
        BASE_S + row["now"] * MINUTE_S,
        Purpose(row.get("purpose", "load")),
        guidance=row.get("guidance", True),
    )
    assert state == expected(row)


def test_moves_that_are_not_finished_say_nothing() -> None:
    under_way = [
        record_of({"pod": f"p{n}", "phase": "InProgress", "outcome": "Unguided", "evicted": 0})
        for n in range(6)
    ]
    assert breaker_of(under_way, Breaker(), BASE_S, Purpose.LOAD) == CLOSED


@pytest.mark.parametrize("reason", ["MaintenanceEnded", "StrategyOff"])
def test_copies_for_moves_that_were_called_off_are_no_bad_moves(reason: str) -> None:
    ended = MigrationCondition(
        type="Ready", status="False", reason=reason, last_transition_time=NOW
    )
    failed = [finished("c", number, number, **MAINTENANCE) for number in range(6)]
    called_off = [replace(found, conditions=(ended,)) for found in failed]
    now_s = BASE_S + 6 * MINUTE_S
    assert breaker_of(failed, Breaker(), now_s, Purpose.MAINTENANCE).open
    assert breaker_of(called_off, Breaker(), now_s, Purpose.MAINTENANCE) == CLOSED


@pytest.mark.parametrize("step", ["Evicted", "Lowered"])
def test_copies_whose_original_could_not_leave_in_time_are_no_bad_moves(step: str) -> None:
    late = MigrationCondition(
        type=step, status="False", reason="DeadlineExceeded", last_transition_time=NOW
    )
    failed = [finished("c", number, number) for number in range(6)]
    kept = [replace(found, conditions=(late,), evicted_s=None) for found in failed]
    gone = [replace(found, conditions=(late,), evicted_s=BASE_S) for found in failed]
    now_s = BASE_S + 6 * MINUTE_S
    assert breaker_of(kept, Breaker(), now_s, Purpose.LOAD) == CLOSED
    assert breaker_of(gone, Breaker(), now_s, Purpose.LOAD).open


HISTORIES = st.lists(
    st.tuples(st.sampled_from("ggggbfune"), st.floats(0.0, 30.0, allow_nan=False)), max_size=60
)


def timeline(steps: list[tuple[str, float]]) -> list[MigrationRecord]:
    minute, found = 0.0, []
    for number, (kind, pause) in enumerate(steps):
        minute += pause
        found.append(finished(kind, number, round(minute, 3)))
    return found


@given(HISTORIES, st.integers(0, 2**32), st.floats(0.0, 2000.0, allow_nan=False))
def test_a_restart_comes_to_the_same_state(
    steps: list[tuple[str, float]], seed: int, minute: float
) -> None:
    moves, now_s = timeline(steps), BASE_S + minute * MINUTE_S
    shuffled = random.Random(seed).sample(moves, len(moves))
    first = breaker_of(moves, Breaker(), now_s, Purpose.LOAD)
    assert breaker_of(shuffled, Breaker(), now_s, Purpose.LOAD) == first


@given(HISTORIES)
def test_it_is_never_open_for_longer_than_an_hour_after_the_last_move(
    steps: list[tuple[str, float]],
) -> None:
    moves = timeline(steps)
    last_s = max((m.finished_s or 0.0 for m in moves), default=BASE_S)
    state = breaker_of(moves, Breaker(), last_s + LONGEST_S, Purpose.LOAD)
    assert not state.open


@given(HISTORIES)
def test_it_opens_only_where_something_went_wrong_and_closes_after_good_tries(
    steps: list[tuple[str, float]],
) -> None:
    moves = timeline(steps)
    last_s = max((m.finished_s or 0.0 for m in moves), default=BASE_S)
    state = breaker_of(moves, Breaker(), last_s, Purpose.LOAD)
    if not any(kind in "bfu" for kind, _ in steps):
        assert state == CLOSED
    later = (last_s + LONGEST_S - BASE_S) / MINUTE_S
    tried = [*moves, finished("g", 99, later)]
    assert not breaker_of(tried, Breaker(), last_s + LONGEST_S, Purpose.LOAD).half_open


def test_the_past_is_needed_while_it_is_not_closed_and_an_hour_beyond() -> None:
    until_s = BASE_S + 600.0
    state = breaker_of([finished("u", 0, 0.0)], Breaker(), BASE_S, Purpose.LOAD)
    assert state.until_s == until_s
    assert state.depends_on_the_past(until_s + LONGEST_S - 1)
    assert not state.depends_on_the_past(until_s + LONGEST_S)
    assert not CLOSED.depends_on_the_past(BASE_S)


@pytest.mark.parametrize(
    ("state", "another", "name", "words"),
    [
        (CLOSED, True, None, ""),
        (BreakerState(half_open=True, until_s=BASE_S, cause="bad"), False, None, ""),
        (
            BreakerState(half_open=True, until_s=BASE_S, cause="bad"),
            True,
            "BreakerHalfOpen",
            "bad; one move at a time tests whether it works again",
        ),
        (
            BreakerState(open=True, until_s=BASE_S + 90, cause="bad"),
            False,
            "BreakerOpen",
            "nothing is moved: bad; one may try in 90s",
        ),
        (BreakerState(open=True, cause="bad"), False, "BreakerOpen", "nothing is moved: bad"),
    ],
)
def test_what_the_state_means_for_a_move(
    state: BreakerState, another: bool, name: str | None, words: str
) -> None:
    found = blocks(state, BASE_S, another=another)
    assert (found.name if found else None) == name
    assert (found.message if found else "") == words
    assert found is None or not found.permanent


APPS = ("api", "web")


def world(
    count: int,
    *,
    moved: dict[str, Any] | None = None,
    moves: int = 3,
    why: str = "",
    made_s: float = 400,
    apps: tuple[str, ...] = APPS,
) -> Signs:
    """Return a cluster where so many pods of each moved Deployment fit on no node.

    Each Deployment has a namespace of its own name; its pods were made so long ago.
    """
    found = PacingWorld({})
    for app in apps:
        above = build.deployment(app, 3, namespace=app)
        below = build.replica_set(f"{app}-1", 3, namespace=app)
        references = [owner_reference(above)]
        found.state.deployments.upsert(wire(Deployment, stamped(above)))
        found.state.replica_sets.upsert(
            wire(ReplicaSet, stamped(below, ownerReferences=references))
        )
        workload = stamped(above)["metadata"]["uid"]
        given = {
            "workload": workload,
            "namespace": app,
            **KINDS["g"],
            **(moved or {"evicted": 500}),
        }
        for number in range(moves):
            found.add({"pod": f"{app}-{number}", **given})
        condition = {"type": "PodScheduled", "status": "False", "reason": why or "Unschedulable"}
        made = datetime.fromtimestamp(BASE_S - made_s, UTC).isoformat()
        for number in range(count):
            stuck = build.pod(f"{app}-{number}", namespace=app)
            status = {"conditions": [condition]}
            pod = wire_pod(stuck, owner=below, status=status, creationTimestamp=made)
            found.state.pods.upsert(pod)
    snapshot = found.state.snapshot()
    return Signs(
        snapshot=snapshot,
        migrations=list(snapshot.migrations.values()),
        purpose=Purpose.LOAD,
        now_s=BASE_S,
        resting=False,
    )


def breakers(signs: Signs) -> Breakers:
    return Breakers.of(Histories(), signs, Breaker())


STRANDED = "{} pods of workloads that were moved in the last 10 minutes fit on no node"


def test_too_many_stranded_pods_of_moved_workloads_open_it() -> None:
    assert alarmed(world(3)) == BreakerState(open=True, cause=STRANDED.format(6))


def test_stranded_pods_of_one_namespace_stop_that_namespace_alone() -> None:
    found = breakers(world(3, apps=("api",)))
    assert found.cluster() is CLOSED
    assert found.shown(lambda: ["api"]) == found.namespace("api"), "there is nothing else"
    assert found.shown(lambda: ["api", "web"]) is CLOSED
    assert found.namespace("api") == BreakerState(open=True, cause=STRANDED.format(3))
    assert found.namespace("web") is CLOSED
    assert [name for name, _ in found.stopped_namespaces()] == ["api"]


@pytest.mark.parametrize(
    "quiet",
    [
        world(2),
        world(3, moved={"evicted": 601}),
        world(3, moved={"evicted": None, "phase": "Failed", "outcome": "", "finished": 5}),
        world(3, why="SchedulerError"),
        replace(world(3), purpose=Purpose.MAINTENANCE),
        world(3, moved={"evicted": 5, "workload": "another"}),
        world(9, made_s=501.5),
        world(9, moves=2),
    ],
    ids=[
        "few",
        "long-ago",
        "not-moved",
        "not-tried",
        "other-purpose",
        "other-workload",
        "older-than-the-moves",
        "more-than-were-moved",
    ],
)
def test_stranded_pods_that_say_nothing(quiet: Signs) -> None:
    assert alarmed(quiet) is None
    assert not list(breakers(quiet).stopped_namespaces())


def test_stranded_pods_of_an_emptied_node_open_the_breaker_of_maintenance() -> None:
    found = world(3, moved={"evicted": 500, **MAINTENANCE})
    assert alarmed(replace(found, purpose=Purpose.MAINTENANCE)) is not None
    assert alarmed(found) is None


def test_without_measurements_nothing_is_moved_for_load() -> None:
    resting = replace(world(0), resting=True)
    assert alarmed(resting) == BreakerState(open=True, cause="the load of too few nodes is known")
    assert alarmed(replace(resting, purpose=Purpose.MAINTENANCE)) is None


def test_every_alarm_has_its_say() -> None:
    both = replace(world(3), resting=True)
    assert all(alarm(both) for alarm in ALARMS)


def tried(found: MigrationRecord, reason: str = TRYING) -> MigrationRecord:
    trying = MigrationCondition(
        type="BudgetChecked", status="True", reason=reason, last_transition_time=NOW
    )
    return replace(found, conditions=(trying,))


def test_a_good_try_ends_what_came_before_also_if_that_is_forgotten() -> None:
    bad = [finished("b", number, number) for number in range(5)]
    moves = [*bad, tried(finished("g", 5, 20)), finished("g", 6, 21)]
    now_s = BASE_S + 61 * MINUTE_S
    for forgotten in range(len(bad) + 1):
        assert breaker_of(moves[forgotten:], Breaker(), now_s, Purpose.LOAD) == CLOSED


def test_a_bad_try_opens_it_also_if_what_came_before_is_forgotten() -> None:
    alone = [tried(finished("b", 5, 20))]
    assert breaker_of(alone, Breaker(), BASE_S + 21 * MINUTE_S, Purpose.LOAD).open


def moves_of(*told: str) -> list[MigrationRecord]:
    """Return moves a minute apart: kind, namespace and workload, such as `b shop web`."""
    found = []
    for minute, each in enumerate(told):
        kind, namespace, workload = each.split()
        other = {"namespace": namespace, "controller": workload, "workload": f"d-{workload}"}
        found.append(finished(kind, minute, minute, **other))
    return found


def states(
    moves: list[MigrationRecord], minute: float | None = None, **settings: Any
) -> dict[str, BreakerState]:
    """Return what is not closed, by namespace, namespace/workload or as `all`."""
    now_s = BASE_S + (len(moves) if minute is None else minute) * MINUTE_S
    past = history_of(moves, Breaker.model_validate(settings), Purpose.LOAD)
    found = {"all": past.cluster.at(now_s)}
    found |= {name: history.at(now_s) for name, history in past.namespaces.items()}
    for move in moves:
        name = f"{move.namespace}/{move.controller_uid}"
        found[name] = past.workload(workload_of(move)).at(now_s)
    return {name: state for name, state in found.items() if state is not CLOSED}


def test_a_move_that_goes_wrong_quarantines_its_workload_and_stops_no_other() -> None:
    found = states(moves_of("f shop web", "g shop api"))
    assert set(found) == {"shop/web"}
    assert found["shop/web"].open
    refusal = quarantine(found["shop/web"], BASE_S + 2 * MINUTE_S, another=False)
    assert refusal is not None
    assert refusal.name == "WorkloadQuarantined"
    assert refusal.message == (
        "its workload is not moved: the move of shop/p0 failed; one may try in 480s"
    )


def test_a_workload_has_one_vote_however_many_of_its_moves_go_wrong() -> None:
    moves = moves_of("g shop a", "g shop b", "g shop c", "g shop d", *["b shop web"] * 20)
    assert set(states(moves)) == {"shop/web"}


def test_the_latest_move_of_a_workload_is_its_vote() -> None:
    good_again = tried(moves_of(*["g shop a"] * 9, "g shop web")[-1], TRYING_WORKLOAD)
    bad = moves_of("b shop web", "g shop a", "g shop b", "g shop c")
    more = finished("b", 20, 20, namespace="shop", controller="d", workload="d-d")
    assert "shop" in states([*bad, more], 21)
    assert "shop" not in states([*bad, good_again, more], 21)


def test_a_namespace_stops_itself_and_no_other() -> None:
    moves = moves_of(*(f"b thief w{n}" for n in range(30)), *(f"g shop w{n}" for n in range(3)))
    found = states(moves, 30)
    assert found["thief"].open
    assert "all" not in found
    assert "shop" not in found
    state = breaker_of(moves, Breaker(), BASE_S + 30 * MINUTE_S, Purpose.LOAD)
    assert state is CLOSED, "something may move"


def test_a_namespace_stops_no_other_by_what_went_wrong_there_by_chance() -> None:
    """One bad vote of the other is not enough, however many bad ones are added."""
    honest = [*(f"g shop w{n}" for n in range(3)), "b shop w4"]
    moves = moves_of(*honest, *(f"b thief w{n}" for n in range(16)))
    assert "all" not in states(moves)


def test_what_goes_wrong_everywhere_stops_everything() -> None:
    found = states(moves_of("b a w", "b b w", "g c w", "g d w", "g e w", "b f w"))
    assert found["all"].open
    assert found["all"].cause == "3 of the last 6 moves went wrong, in several namespaces"
    refusal = blocks(found["all"], BASE_S + 6 * MINUTE_S, another=False)
    assert refusal is not None
    assert refusal.message.startswith("nothing is moved: 3 of the last 6")


def test_too_few_moves_stop_nothing_but_their_own_workloads() -> None:
    """Without any one of these namespaces there are fewer votes than `minimum`."""
    assert set(states(moves_of("f a w", "f b w", "f c w", "f d w", "f e w"))) == {
        "a/w",
        "b/w",
        "c/w",
        "d/w",
        "e/w",
    }


def test_a_namespace_does_not_make_up_the_number_of_votes_that_others_lack() -> None:
    moves = moves_of("b shop w", "b desk w", *(f"b thief w{n}" for n in range(16)))
    assert {name.partition("/")[0] for name in states(moves)} == {"thief"}


def test_a_namespace_with_many_workloads_pushes_no_votes_of_others_out_of_sight() -> None:
    good = [f"g shop w{n}" for n in range(18)]
    moves = moves_of(*good, "b shop x", "b shop y", *(f"b thief w{n}" for n in range(40)))
    for minute in range(len(moves) + 1):
        assert {name.partition("/")[0] for name in states(moves[:minute])} <= {"thief"}


def test_a_window_holds_the_latest_votes_of_a_namespace() -> None:
    bad, good = [f"b shop x{n}" for n in range(4)], [f"g shop w{n}" for n in range(20)]
    late = [f"b shop y{n}" for n in range(5)]
    assert "shop" not in states(moves_of(*bad[:1], *good, *late[:4]))
    assert states(moves_of(*bad[:1], *good, *late))["shop"].cause == (
        "5 of the last 20 moves went wrong"
    )


def test_unguided_moves_stop_their_namespaces_and_in_three_of_them_all() -> None:
    """One of them may be forged and one be chance: an extender that was just started again."""
    assert set(states(moves_of("u thief w"))) == {"thief", "thief/w"}
    many = moves_of(*(f"u thief w{n}" for n in range(9)))
    assert "all" not in states(many)
    two = moves_of("u shop w", *(f"u thief w{n}" for n in range(30)))
    assert {name.partition("/")[0] for name in states(two)} == {"shop", "thief"}
    assert states(moves_of("u thief w", "u shop w", "u desk w"))["all"].cause == (
        "the replacement of desk/p2 was placed without guidance, like some in 2 other namespaces"
    )


def test_a_miss_is_chance_and_a_second_one_of_the_workload_is_bad() -> None:
    assert not states(moves_of("m shop web"))
    assert not states(moves_of("m shop web", "g shop web", "m shop web"))
    found = states(moves_of("m shop web", "m shop web"))
    assert found["shop/web"].cause == (
        "its last two replacements, including that of shop/p1, missed their target"
    )


def test_coming_back_to_the_source_twice_quarantines_a_workload() -> None:
    assert not states(moves_of("b shop web"))
    assert not states(moves_of("b shop web", "g shop web", "b shop web"))
    for twice in (("b", "b"), ("b", "m"), ("m", "b")):
        assert set(states(moves_of(*(f"{kind} shop web" for kind in twice)))) == {"shop/web"}


def test_misses_of_several_workloads_are_bad_votes() -> None:
    assert not states(moves_of("g shop a", "g shop b", "g shop c", "g shop d", "m shop e"))
    assert "shop" in states(moves_of("g shop a", "g shop b", "g shop c", "m shop d", "m shop e"))


@pytest.mark.parametrize("without", [{"guidance": False}, {"misses": False}])
def test_misses_count_only_where_targets_are_to_be_reached(without: dict[str, bool]) -> None:
    moves = moves_of(*["m shop web"] * 9)
    past = history_of(moves, Breaker(), Purpose.LOAD, **without)
    assert past.workload(workload_of(moves[0])).until_s is None


def test_a_bad_try_of_one_namespace_stops_it_and_lets_another_one_try() -> None:
    opened = moves_of("b a w", "b b w", "b c w", "b d w", "b e w", "b f w")
    thief = finished("b", 20, 20, namespace="thief", controller="x", workload="d-x")
    other = finished("b", 21, 21, namespace="other", controller="x", workload="d-x")
    found = states([*opened, tried(thief)], 20.5)
    assert found["all"].half_open, "the next one may try"
    assert found["thief"].open
    again = finished("b", 22, 22, namespace="thief", controller="y", workload="d-y")
    assert states([*opened, tried(thief), tried(again)], 22.5)["all"].half_open
    found = states([*opened, tried(thief), tried(other)], 21.5)
    assert found["all"].open
    assert found["all"].until_s == BASE_S + 41 * MINUTE_S


def test_a_try_for_a_workload_or_a_namespace_decides_nothing_for_others() -> None:
    opened = moves_of("f a w", "f b w", "f c w", "f d w", "f e w", "f f w")
    for reason in (TRYING_WORKLOAD, TRYING_NAMESPACE):
        good = tried(finished("g", 9, 8, namespace="a", controller="w", workload="d-w"), reason)
        found = states([*opened, good], 8.5)
        assert found["all"].open
        assert "a/w" not in found


def test_what_a_move_tries_for_is_the_widest_that_is_half_open() -> None:
    moves = moves_of("f a w", "f b w", "f c w", "f d w", "f e w", "f f w")
    past = history_of(moves, Breaker(), Purpose.LOAD)

    def trying(minute: float, move: MigrationRecord) -> str:
        now_s = BASE_S + minute * MINUTE_S
        return Breakers(past=past, now_s=now_s, try_s=600.0).trying(move)

    fresh = record_of({"pod": "x", "namespace": "g", "controller": "x", "workload": "d-x"})
    assert trying(14.5, fresh) == ""
    assert trying(14.5, moves[0]) == TRYING_WORKLOAD
    assert trying(15, fresh) == TRYING
    bad = history_of(moves_of("u a w"), Breaker(), Purpose.LOAD)
    near = record_of({"pod": "x", "namespace": "a", "controller": "x", "workload": "d-x"})
    now_s = BASE_S + 10 * MINUTE_S
    assert Breakers(past=bad, now_s=now_s, try_s=600.0).trying(near) == TRYING_NAMESPACE


def test_a_try_that_takes_long_keeps_others_from_trying_for_a_while_only() -> None:
    moves = moves_of("b a w", "b b w", "b c w", "b d w", "b e w", "b f w")
    past = history_of(moves, Breaker(), Purpose.LOAD)
    mine = record_of({"pod": "x", "namespace": "g", "controller": "x", "workload": "d-x"})
    slow = record_of({"pod": "y", "namespace": "thief", "phase": "InProgress", "created": 0})
    for minute, refused in ((15, ["BreakerHalfOpen"]), (24.9, ["BreakerHalfOpen"]), (25, [])):
        now_s = BASE_S + minute * MINUTE_S
        began = replace(slow, created_s=BASE_S + 15 * MINUTE_S)
        found = Breakers(past=past, now_s=now_s, try_s=600.0).against(mine, [began])
        assert [refusal.name for refusal in found] == refused


@given(st.lists(st.tuples(st.sampled_from("gbfum"), st.integers(0, 9)), max_size=60))
def test_no_moves_of_one_namespace_ever_stop_others(steps: list[tuple[str, int]]) -> None:
    moves = moves_of(*(f"{kind} thief w{number}" for kind, number in steps), "g shop web")
    for minute in range(0, len(moves) + 1, 7):
        found = states(moves, minute)
        assert {name.partition("/")[0] for name in found} <= {"thief"}


SEVERAL = st.lists(
    st.tuples(st.sampled_from("gggbfum"), st.sampled_from("abc"), st.integers(0, 5)), max_size=60
)


@given(SEVERAL, st.integers(0, 2**32))
def test_a_restart_comes_to_the_same_states_of_all_breakers(
    steps: list[tuple[str, str, int]], seed: int
) -> None:
    moves = moves_of(*(f"{kind} {space} w{number}" for kind, space, number in steps))
    shuffled = random.Random(seed).sample(moves, len(moves))
    whole = history_of(moves, Breaker(), Purpose.LOAD)
    assert history_of(shuffled, Breaker(), Purpose.LOAD) == whole


@given(SEVERAL)
def test_all_breakers_let_one_try_an_hour_after_the_last_move(
    steps: list[tuple[str, str, int]],
) -> None:
    moves = moves_of(*(f"{kind} {space} w{number}" for kind, space, number in steps))
    assert not any(state.open for state in states(moves, len(moves) + 60).values())
