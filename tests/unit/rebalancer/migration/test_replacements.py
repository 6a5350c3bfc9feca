# SPDX-License-Identifier: Apache-2.0
"""Which of several new pods belongs to which of several moves of one workload."""

from __future__ import annotations

from rebalancer.migration import replacements
from tests.support.worlds.migration_views import MigrationWorld

TWO_MOVES = {
    "done": "evicted",
    "pods": {
        "web-a": None,
        "web-b": None,
        "web-d": {"age": 20, "at": "n4"},
        "web-e": {"age": 20, "at": "n4"},
    },
}


def chosen(**others: object) -> str | None:
    """Return the pod that the older of two moves takes."""
    younger = {"done": "evicted", "age": 10, "spec": {"source": "n2"}, **others}
    found = replacements.candidate(
        MigrationWorld({**TWO_MOVES, "others": {"web-b": younger}}).view()
    )
    return None if found is None else str(found.uid)


def test_of_two_pods_that_both_moves_may_have_the_first_is_taken() -> None:
    assert chosen() == "web-d"


def test_a_pod_that_no_other_move_may_have_is_taken_first() -> None:
    """It was there before the other eviction, so the other move would be left without one."""
    assert chosen(status={"present": ["web-e"]}) == "web-e"
    assert chosen(status={"present": ["web-d"]}) == "web-d"
