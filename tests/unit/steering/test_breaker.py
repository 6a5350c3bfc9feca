"""Every rule of the breaker, and that it comes out the same however it is rebuilt."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from common.cluster.migrations import MigrationCondition, MigrationRecord
from common.cluster.objects import Deployment, ReplicaSet
from common.config import Breaker
from rebalancer.breaker import (
    ALARMS,
    CLOSED,
    LONGEST_S,
    TRYING,
    BreakerState,
    Signs,
    alarmed,
    blocks,
    breaker_of,
)
from rebalancer.evictability import Purpose
from simulator import build
from tests.support.evict_tables import NOW
from tests.support.steering_world import (
    MAINTENANCE,
    SteeringCase,
    SteeringWorld,
    load_cases,
    record_of,
)
from tests.support.wire import owner_reference, stamped, wire, wire_pod

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
}


def finished(kind: str, number: int, minute: float, **other: Any) -> MigrationRecord:
    return record_of({"pod": f"p{number}", **KINDS[kind], "finished": -minute * MINUTE_S, **other})


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
        words=row["words"],
    )


@pytest.mark.parametrize("case", load_cases("breaker"), ids=str)
def test_the_state_that_finished_moves_lead_to(case: SteeringCase) -> None:
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


def test_copies_of_a_maintenance_that_was_called_off_are_no_bad_moves() -> None:
    ended = MigrationCondition(
        type="Ready", status="False", reason="MaintenanceEnded", last_transition_time=NOW
    )
    failed = [finished("c", number, number, **MAINTENANCE) for number in range(6)]
    called_off = [replace(found, conditions=(ended,)) for found in failed]
    now_s = BASE_S + 6 * MINUTE_S
    assert breaker_of(failed, Breaker(), now_s, Purpose.MAINTENANCE).open
    assert breaker_of(called_off, Breaker(), now_s, Purpose.MAINTENANCE) == CLOSED


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
    assert state.rests_on_the_past(until_s + LONGEST_S - 1)
    assert not state.rests_on_the_past(until_s + LONGEST_S)
    assert not CLOSED.rests_on_the_past(BASE_S)


@pytest.mark.parametrize(
    ("state", "another", "name", "words"),
    [
        (CLOSED, True, None, ""),
        (BreakerState(half_open=True, until_s=BASE_S, words="bad"), False, None, ""),
        (
            BreakerState(half_open=True, until_s=BASE_S, words="bad"),
            True,
            "BreakerHalfOpen",
            "bad; one move at a time tries whether it is well again",
        ),
        (
            BreakerState(open=True, until_s=BASE_S + 90, words="bad"),
            False,
            "BreakerOpen",
            "nothing is moved: bad; one may try in 90s",
        ),
        (BreakerState(open=True, words="bad"), False, "BreakerOpen", "nothing is moved: bad"),
    ],
)
def test_what_the_state_means_for_a_move(
    state: BreakerState, another: bool, name: str | None, words: str
) -> None:
    found = blocks(state, BASE_S, another=another)
    assert (found.name if found else None) == name
    assert (found.words if found else "") == words
    assert found is None or not found.for_good


def world(count: int, *, moved: dict[str, Any] | None = None, why: str = "") -> Signs:
    """Return a cluster where pods of Deployment `api`, which was moved, find no node."""
    found = SteeringWorld({})
    above = build.deployment("api", 3, labels={"app": "api"})
    below = build.replica_set("api-1", 3, labels={"app": "api"})
    references = [owner_reference(above)]
    found.state.deployments.upsert(wire(Deployment, stamped(above)))
    found.state.replica_sets.upsert(wire(ReplicaSet, stamped(below, ownerReferences=references)))
    workload = stamped(above)["metadata"]["uid"]
    found.add({"pod": "api-0", "workload": workload, **KINDS["g"], **(moved or {"evicted": 500})})
    condition = {"type": "PodScheduled", "status": "False", "reason": why or "Unschedulable"}
    for number in range(count):
        stuck = build.pod(f"api-{number}", labels={"app": "api"})
        pod = wire_pod(stuck, owner=below, status={"conditions": [condition]})
        found.state.pods.upsert(pod)
    snapshot = found.state.snapshot()
    return Signs(
        snapshot=snapshot,
        migrations=list(snapshot.migrations.values()),
        purpose=Purpose.LOAD,
        now_s=BASE_S,
        resting=False,
    )


def test_too_many_stranded_pods_of_moved_workloads_open_it() -> None:
    state = alarmed(world(3))
    words = "3 pods of workloads that were moved in the last 10 minutes find no node"
    assert state == BreakerState(open=True, words=words)


@pytest.mark.parametrize(
    "quiet",
    [
        world(2),
        world(3, moved={"evicted": 601}),
        world(3, moved={"evicted": None, "phase": "Failed", "outcome": "", "finished": 5}),
        world(3, why="SchedulerError"),
        replace(world(3), purpose=Purpose.MAINTENANCE),
        world(3, moved={"evicted": 5, "workload": "another"}),
    ],
    ids=["few", "long-ago", "not-moved", "not-tried", "other-purpose", "other-workload"],
)
def test_stranded_pods_that_say_nothing(quiet: Signs) -> None:
    assert alarmed(quiet) is None


def test_stranded_pods_of_an_emptied_node_open_the_breaker_of_maintenance() -> None:
    found = world(3, moved={"evicted": 5, **MAINTENANCE})
    assert alarmed(replace(found, purpose=Purpose.MAINTENANCE)) is not None
    assert alarmed(found) is None


def test_without_measurements_nothing_is_moved_for_load() -> None:
    resting = replace(world(0), resting=True)
    assert alarmed(resting) == BreakerState(open=True, words="the load of too few nodes is known")
    assert alarmed(replace(resting, purpose=Purpose.MAINTENANCE)) is None


def test_every_alarm_has_its_say() -> None:
    both = replace(world(3), resting=True)
    assert all(alarm(both) for alarm in ALARMS)


def tried(found: MigrationRecord) -> MigrationRecord:
    trying = MigrationCondition(
        type="BudgetChecked", status="True", reason=TRYING, last_transition_time=NOW
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
