# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of disruption budgets, against tables from the Go source's own rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.disruption import (
    AmountError,
    Claim,
    Counts,
    claim,
    counts_matching_pods,
    desired_healthy,
    needs_no_budget,
    scaled,
)


@pytest.mark.parametrize(
    ("amount", "total", "expected"),
    [
        (3, 10, 3),
        (0, 10, 0),
        ("0%", 7, 0),
        ("50%", 5, 3),
        ("50%", 4, 2),
        ("1%", 3, 1),
        ("34%", 3, 2),
        ("100%", 3, 3),
        ("25%", 0, 0),
    ],
)
def test_percentages_round_up(amount: int | str, total: int, expected: int) -> None:
    assert scaled(amount, total) == expected


@pytest.mark.parametrize("amount", ["", "5", "%", "x%", "5.5%", "5%%", " 5%"])
def test_other_texts_are_no_amount(amount: str) -> None:
    with pytest.raises(AmountError):
        scaled(amount, 10)


@pytest.mark.parametrize(
    ("least", "most", "expected", "desired"),
    [
        (2, None, 5, 2),
        (9, None, 5, 9),
        ("50%", None, 5, 3),
        (None, 1, 5, 4),
        (None, 9, 5, 0),
        (None, "30%", 4, 2),
        (None, "100%", 4, 0),
        (None, "0%", 4, 4),
        (None, None, 4, 0),
    ],
)
def test_desired_healthy(
    least: int | str | None, most: int | str | None, expected: int, desired: int
) -> None:
    assert desired_healthy(least, most, expected) == desired


@pytest.mark.parametrize(
    ("least", "most", "own"),
    [(1, None, True), ("50%", None, False), (None, 1, False), (None, "50%", False)],
)
def test_only_a_plain_minimum_counts_matching_pods(
    least: int | str | None, most: int | str | None, own: bool
) -> None:
    assert counts_matching_pods(least, most) is own


@pytest.mark.parametrize(
    ("expected", "healthy", "desired", "allowed"),
    [(3, 3, 2, 1), (3, 2, 2, 0), (3, 1, 2, 0), (0, 3, 0, 0), (3, 3, 0, 3)],
)
def test_allowed_disruptions(expected: int, healthy: int, desired: int, allowed: int) -> None:
    assert Counts(expected, healthy, desired).allowed == allowed


@given(st.integers(0, 200), st.integers(0, 100))
def test_a_minimum_and_the_matching_maximum_never_promise_more_than_there_is(
    total: int, percent: int
) -> None:
    least = desired_healthy(f"{percent}%", None, total)
    most = desired_healthy(None, f"{percent}%", total)
    assert 0 <= least <= total
    assert 0 <= most <= total
    assert Counts(total, total, least).allowed <= total


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_need_no_budget(phase: str) -> None:
    assert needs_no_budget(phase, terminating=False)


def test_terminating_pods_need_no_budget() -> None:
    assert needs_no_budget("Running", terminating=True)
    assert not needs_no_budget("Running", terminating=False)


@pytest.mark.parametrize(
    ("ready", "policy", "healthy", "desired", "expected"),
    [
        (True, None, 3, 2, Claim.DISRUPTION),
        (True, "AlwaysAllow", 3, 2, Claim.DISRUPTION),
        (False, None, 2, 2, Claim.PASSAGE),
        (False, "IfHealthyBudget", 2, 2, Claim.PASSAGE),
        (False, None, 1, 2, Claim.DISRUPTION),
        (False, "IfHealthyBudget", 1, 2, Claim.DISRUPTION),
        (False, None, 3, 0, Claim.DISRUPTION),
        (False, "AlwaysAllow", 0, 5, Claim.PASSAGE),
    ],
)
def test_what_an_eviction_asks_of_its_budget(
    ready: bool, policy: str | None, healthy: int, desired: int, expected: Claim
) -> None:
    found = claim(
        phase="Running",
        terminating=False,
        ready=ready,
        policy=policy,
        current_healthy=healthy,
        desired_healthy=desired,
    )
    assert found is expected


def test_a_pending_pod_asks_nothing() -> None:
    found = claim(
        phase="Pending",
        terminating=False,
        ready=True,
        policy=None,
        current_healthy=0,
        desired_healthy=5,
    )
    assert found is Claim.NOTHING
