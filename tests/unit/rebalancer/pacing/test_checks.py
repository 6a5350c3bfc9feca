# SPDX-License-Identifier: Apache-2.0
"""Every check and limit by name, passing and failing, for load and for maintenance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from common.api.migrations import Phase
from common.cluster.migrations import MigrationRecord
from rebalancer import rules
from rebalancer.limits import LIMITS, at_once
from rebalancer.pacing import checks
from rebalancer.pacing.checks import CHECKS, LATE_CHECKS, against, ahead_of, switched_off
from rebalancer.refusals import Reason
from tests.support.worlds.pacing import PacingCase, PacingWorld, load_cases, record_of

CASES = load_cases("checks")
PLAIN = PacingWorld({"config": {"maxReschedulePods": 6, "maxInboundPerNode": 3}})


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_stands_against_a_move(case: PacingCase) -> None:
    found = against(PacingWorld(case.row).start())
    assert {reason.name: reason.message for reason in found} == case.words
    assert {reason.name for reason in found if reason.permanent} == case.for_good


def test_every_reason_stands_in_the_table() -> None:
    source = Path(checks.__file__).read_text() + Path(rules.__file__).read_text()
    reasons = {Reason[name] for name in re.findall(r"Reason\.(\w+)\.refusal", source)}
    reasons |= {limit.reason for limit in LIMITS}
    assert {name for case in CASES for name in case.words} == reasons


def test_what_stops_a_move_right_before_its_eviction() -> None:
    starts = [PacingWorld(case.row).start() for case in CASES]
    found = {stopped.name for start in starts if (stopped := switched_off(start)) is not None}
    assert found == {"Paused", "Observing", "StrategyOff", "MaintenanceEnded", "PodGroupMinimum"}
    assert switched_off(PLAIN.start()) is None


GANG = {"schedulingGroup": {"podGroupName": "train"}}


@pytest.mark.parametrize(("minimum", "created", "refused"), [(1, 61, 0), (2, 59, 0), (2, 61, 1)])
def test_a_gang_keeps_its_minimum_when_the_eviction_is_sent(
    minimum: int, created: int, refused: int
) -> None:
    """An older move that has begun goes first, whatever was spare when this one began."""
    world = PacingWorld(
        {
            "pod": {"spec": GANG},
            "siblings": {"web-b": {"spec": GANG}, "web-c": {"spec": GANG}},
            "pod_groups": {"train": {"schedulingPolicy": {"gang": {"minCount": minimum}}}},
            "migration": {"phase": "InProgress", "created": 60},
            "migrations": [{"moves": "web-b", "phase": "InProgress", "created": created}],
        }
    )
    found = switched_off(world.start())
    assert [each.name for each in (found,) if each] == ["PodGroupMinimum"] * refused


def test_every_check_refuses_something_and_lets_something_pass() -> None:
    starts = [PacingWorld(case.row).start() for case in CASES]
    for check in (*CHECKS, *LATE_CHECKS):
        assert {check(start) is None for start in starts} == {True, False}, check.__name__


def test_every_limit_refuses_something_and_lets_something_pass() -> None:
    found = [{each.name for each in against(PacingWorld(case.row).start())} for case in CASES]
    for limit in LIMITS:
        assert {limit.reason in names for names in found} == {True, False}, limit.name


@pytest.mark.parametrize(
    ("replicas", "allowed"),
    [(0, 1), (1, 1), (3, 1), (4, 2), (10, 2), (29, 2), (30, 3), (100, 10)],
)
def test_how_many_pods_of_a_workload_move_at_once(replicas: int, allowed: int) -> None:
    assert at_once(replicas) == allowed


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 3),
    ).filter(lambda move: move[0] != move[1]),
    min_size=1,
    max_size=14,
)


def migrations_of(moves: list[tuple[str, str, str, int]]) -> list[MigrationRecord]:
    return [
        record_of(
            {"pod": f"p{number}", "source": source, "target": target, "created": 60.0 - age}
            | {"workload": f"d-{workload}", "kind": "StatefulSet" if workload == "c" else "Job"}
            | {"controller": f"rs-{workload}"}
        )
        for number, (source, target, workload, age) in enumerate(moves)
    ]


def refused(mine: MigrationRecord, others: list[MigrationRecord]) -> set[str]:
    plain = PLAIN.start()
    start = replace(plain, migration=mine, others=others, ahead=ahead_of(mine, others))
    return {reason.name for reason in against(start)} - {"NotOnSource", "OtherOwner"}


@given(MOVES, st.data())
def test_never_more_is_under_way_than_allowed_in_any_order(
    moves: list[tuple[str, str, str, int]], data: st.DataObject
) -> None:
    known = {m.name: m for m in migrations_of(moves)}
    for name in data.draw(st.lists(st.sampled_from(sorted(known)), max_size=40)):
        mine = known[name]
        if mine.phase == Phase.IN_PROGRESS and data.draw(st.booleans()):
            known[name] = replace(mine, phase="Completed", finished_s=mine.created_s)
        elif mine.phase == Phase.PENDING:
            others = [m for m in known.values() if m is not mine]
            if not refused(mine, others):
                known[name] = replace(mine, phase="InProgress")
        running = [m for m in known.values() if m.phase == Phase.IN_PROGRESS]
        moved = [m for m in known.values() if m.phase != Phase.PENDING]
        assert len(moved) <= 6
        for node in ("n1", "n2", "n3"):
            assert sum(m.source == node for m in running) <= 2
            assert sum(m.target == node for m in running) <= 3
        for workload in ("d-a", "d-b", "d-c"):
            assert sum(m.workload_uid == workload for m in running) <= 1
        # Whatever runs may go on: no two moves wait for each other.
        for mine in running:
            assert not refused(mine, [m for m in known.values() if m is not mine])


@given(MOVES)
def test_when_a_limit_is_lowered_the_eldest_go_on(moves: list[tuple[str, str, str, int]]) -> None:
    running = [replace(m, phase="InProgress") for m in migrations_of(moves)]
    eldest = min(running, key=lambda m: (m.created_s, m.name))
    going_on = [m for m in running if not refused(m, [o for o in running if o is not m])]
    assert eldest in going_on
    for node in ("n1", "n2", "n3"):
        assert sum(m.source == node for m in going_on) <= 2
