"""In which order StatefulSets create, delete and update (pkg/controller/statefulset)."""

from __future__ import annotations

from simulator.controllers.ordinals import Action, Deed, Member, SetWish, actions

CREATE, DELETE = Deed.CREATE, Deed.DELETE
READY = Member("r1", available=True)
STARTING = Member("r1")
ENDING = Member("r1", terminating=True)


def wish(replicas: int, **more: object) -> SetWish:
    made = {"replicas": replicas, "current": "r1", "update": "r1", **more}
    return SetWish(**made)  # type: ignore[arg-type]


def test_pods_come_one_after_the_other() -> None:
    assert actions(wish(3), {}) == [Action(CREATE, 0, "r1")]
    assert actions(wish(3), {0: STARTING}) == []
    assert actions(wish(3), {0: READY}) == [Action(CREATE, 1, "r1")]


def test_in_parallel_nobody_waits() -> None:
    made = actions(wish(3, parallel=True), {0: STARTING})
    assert made == [Action(CREATE, 1, "r1"), Action(CREATE, 2, "r1")]


def test_a_gap_is_filled_before_anything_else() -> None:
    assert actions(wish(3), {0: READY, 2: READY}) == [Action(CREATE, 1, "r1")]


def test_a_pod_that_is_ending_is_not_replaced_yet() -> None:
    assert actions(wish(3), {0: READY, 1: ENDING, 2: READY}) == []
    assert actions(wish(3, parallel=True), {0: READY, 1: ENDING, 2: READY}) == []


def test_a_failed_pod_is_deleted_to_be_made_again() -> None:
    assert actions(wish(1), {0: Member("r1", over=True)}) == [Action(DELETE, 0)]


def test_the_highest_goes_first_when_there_are_too_many() -> None:
    members = dict.fromkeys(range(4), READY)
    assert actions(wish(2), members) == [Action(DELETE, 3)]
    assert actions(wish(2), {**members, 3: ENDING}) == []
    made = actions(wish(2, parallel=True), members)
    assert made == [Action(DELETE, 3), Action(DELETE, 2)]


def test_nobody_leaves_while_somebody_wanted_is_not_ready() -> None:
    assert actions(wish(1), {0: STARTING, 1: READY}) == []


def test_an_update_replaces_from_the_top_one_at_a_time() -> None:
    new = Member("r2", available=True)
    update = wish(3, update="r2")
    assert actions(update, {0: READY, 1: READY, 2: READY}) == [Action(DELETE, 2)]
    assert actions(update, {0: READY, 1: READY}) == [Action(CREATE, 2, "r2")]
    assert actions(update, {0: READY, 1: READY, 2: new}) == [Action(DELETE, 1)]
    assert actions(update, {0: READY, 1: READY, 2: Member("r2")}) == []


def test_a_partition_holds_back_the_lower_ones() -> None:
    new = Member("r2", available=True)
    update = wish(3, update="r2", partition=2)
    assert actions(update, {0: READY, 1: READY, 2: new}) == []
    assert actions(update, {0: READY, 2: new}) == [Action(CREATE, 1, "r1")]


def test_on_delete_replaces_nothing_by_itself() -> None:
    update = wish(2, update="r2", on_delete=True)
    assert actions(update, {0: READY, 1: READY}) == []
    assert actions(update, {0: READY}) == [Action(CREATE, 1, "r2")]


def test_ordinals_may_start_higher() -> None:
    assert actions(wish(2, start=5), {}) == [Action(CREATE, 5, "r1")]
