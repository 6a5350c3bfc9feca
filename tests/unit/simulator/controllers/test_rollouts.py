# SPDX-License-Identifier: Apache-2.0
"""How Deployments move from one ReplicaSet to the next (pkg/controller/deployment)."""

from __future__ import annotations

import pytest

from simulator.controllers.rollouts import (
    Rollout,
    SetView,
    fenceposts,
    first_size,
    next_sizes,
    proportional,
)


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas", "expected"),
    [
        ("25%", "25%", 4, (1, 1)),
        ("25%", "25%", 10, (3, 2)),
        (2, 0, 10, (2, 0)),
        (0, "10%", 5, (0, 1)),  # both come out as 0, which would block for ever
        ("0%", "25%", 1, (0, 1)),
    ],
)
def test_percentages_round_in_favour_of_progress(
    surge: int | str, unavailable: int | str, replicas: int, expected: tuple[int, int]
) -> None:
    assert fenceposts(surge, unavailable, replicas) == expected


def test_the_first_set_of_a_deployment_gets_all_pods() -> None:
    assert first_size(Rollout(10, 3, 2), []) == 10


def test_a_new_set_begins_with_the_surge() -> None:
    assert first_size(Rollout(10, 3, 2), [SetView("old", 10, 10)]) == 3


def test_a_new_set_gets_nothing_while_there_are_too_many() -> None:
    assert first_size(Rollout(10, 3, 2), [SetView("old", 13, 10)]) == 0


def test_old_pods_go_as_far_as_availability_allows() -> None:
    new, old = SetView("new", 3, 0), SetView("old", 10, 10)
    assert next_sizes(Rollout(10, 3, 2), new, [old]) == {"old": 8}


def test_new_pods_come_into_the_room_of_those_that_went() -> None:
    new, old = SetView("new", 3, 0), SetView("old", 8, 8)
    assert next_sizes(Rollout(10, 3, 2), new, [old]) == {"new": 5}


def test_nothing_moves_while_new_pods_are_not_available() -> None:
    new, old = SetView("new", 5, 0), SetView("old", 8, 8)
    assert next_sizes(Rollout(10, 3, 2), new, [old]) == {}


def test_unhealthy_old_pods_go_first() -> None:
    new = SetView("new", 5, 5)
    broken, whole = SetView("broken", 4, 0, created=2), SetView("whole", 4, 4, created=1)
    assert next_sizes(Rollout(10, 3, 2), new, [broken, whole]) == {"broken": 0, "whole": 3}


def test_a_rollout_ends_with_all_pods_new_and_never_leaves_the_limits() -> None:
    rollout, new, old = Rollout(10, 3, 2), SetView("new", 0, 0), SetView("old", 10, 10)
    for _ in range(30):
        sizes = next_sizes(rollout, new, [old])
        if not sizes and new.available == new.replicas:
            break
        new_size, old_size = sizes.get("new", new.replicas), sizes.get("old", old.replicas)
        available = min(new.available, new_size) + min(old.available, old_size)
        assert new_size + old_size <= rollout.replicas + rollout.max_surge
        assert available >= rollout.replicas - rollout.max_unavailable
        # What was made becomes available by the next step.
        new = SetView("new", new_size, new_size if not sizes else min(new.available, new_size))
        old = SetView("old", old_size, min(old.available, old_size))
        if not sizes:
            continue
        new = SetView("new", new.replicas, new.replicas)
    assert (new.replicas, old.replicas) == (10, 0)


def test_recreating_waits_until_the_old_pods_are_gone() -> None:
    rollout, new = Rollout(3, recreate=True), SetView("new", 0)
    assert next_sizes(rollout, new, [SetView("old", 3, 3, pods=3)]) == {"old": 0}
    assert next_sizes(rollout, new, [SetView("old", 0, 0, pods=1)]) == {}
    assert next_sizes(rollout, new, [SetView("old", 0, 0, pods=0)]) == {"new": 3}


def test_scaling_the_only_active_set_needs_no_steps() -> None:
    assert proportional(Rollout(20, 3, 2), SetView("new", 10, 10), [SetView("old", 0)]) == {
        "new": 20
    }


def test_scaling_in_a_rollout_is_shared_in_proportion() -> None:
    sizes = proportional(
        Rollout(20, 5, 2), SetView("new", 5, 5, created=2), [SetView("old", 10, 10)]
    )
    assert sum(sizes.values()) == 25
    assert sizes["old"] > sizes["new"] > 5


def test_a_full_new_set_ends_the_old_ones_when_paused_or_scaled() -> None:
    assert proportional(Rollout(5, 1, 1), SetView("new", 5, 5), [SetView("old", 1, 1)]) == {
        "old": 0
    }
