# SPDX-License-Identifier: Apache-2.0
"""In which order StatefulSets create, delete and update (pkg/controller/statefulset)."""

from __future__ import annotations

from simulator.controllers.ordinals import Action, ActionType, DesiredSet, Member, actions

CREATE, DELETE = ActionType.CREATE, ActionType.DELETE
READY = Member("r1", available=True)
STARTING = Member("r1")
ENDING = Member("r1", terminating=True)


def desired(replicas: int, **more: object) -> DesiredSet:
    made = {"replicas": replicas, "current": "r1", "update": "r1", **more}
    return DesiredSet(**made)  # type: ignore[arg-type]


def test_pods_come_one_after_the_other() -> None:
    assert actions(desired(3), {}) == [Action(CREATE, 0, "r1")]
    assert actions(desired(3), {0: STARTING}) == []
    assert actions(desired(3), {0: READY}) == [Action(CREATE, 1, "r1")]


def test_in_parallel_nobody_waits() -> None:
    made = actions(desired(3, parallel=True), {0: STARTING})
    assert made == [Action(CREATE, 1, "r1"), Action(CREATE, 2, "r1")]


def test_a_gap_is_filled_before_anything_else() -> None:
    assert actions(desired(3), {0: READY, 2: READY}) == [Action(CREATE, 1, "r1")]


def test_a_pod_that_is_ending_is_not_replaced_yet() -> None:
    assert actions(desired(3), {0: READY, 1: ENDING, 2: READY}) == []
    assert actions(desired(3, parallel=True), {0: READY, 1: ENDING, 2: READY}) == []


def test_a_failed_pod_is_deleted_to_be_made_again() -> None:
    assert actions(desired(1), {0: Member("r1", over=True)}) == [Action(DELETE, 0)]


def test_the_highest_goes_first_when_there_are_too_many() -> None:
    members = dict.fromkeys(range(4), READY)
    assert actions(desired(2), members) == [Action(DELETE, 3)]
    assert actions(desired(2), {**members, 3: ENDING}) == []
    made = actions(desired(2, parallel=True), members)
    assert made == [Action(DELETE, 3), Action(DELETE, 2)]


def test_nobody_leaves_while_somebody_wanted_is_not_ready() -> None:
    assert actions(desired(1), {0: STARTING, 1: READY}) == []


def test_an_update_replaces_from_the_top_one_at_a_time() -> None:
    new = Member("r2", available=True)
    update = desired(3, update="r2")
    assert actions(update, {0: READY, 1: READY, 2: READY}) == [Action(DELETE, 2)]
    assert actions(update, {0: READY, 1: READY}) == [Action(CREATE, 2, "r2")]
    assert actions(update, {0: READY, 1: READY, 2: new}) == [Action(DELETE, 1)]
    assert actions(update, {0: READY, 1: READY, 2: Member("r2")}) == []


def test_a_partition_holds_back_the_lower_ones() -> None:
    new = Member("r2", available=True)
    update = desired(3, update="r2", partition=2)
    assert actions(update, {0: READY, 1: READY, 2: new}) == []
    assert actions(update, {0: READY, 2: new}) == [Action(CREATE, 1, "r1")]


def test_on_delete_replaces_nothing_by_itself() -> None:
    update = desired(2, update="r2", on_delete=True)
    assert actions(update, {0: READY, 1: READY}) == []
    assert actions(update, {0: READY}) == [Action(CREATE, 1, "r2")]


def test_ordinals_may_start_higher() -> None:
    assert actions(desired(2, start=5), {}) == [Action(CREATE, 5, "r1")]
