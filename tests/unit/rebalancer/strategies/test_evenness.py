# SPDX-License-Identifier: Apache-2.0
"""How many pods have to move at least until domains are within a skew, beside a search."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalancer.strategies.evenness import arrivals, distance, fewest, width, widths_after


def searched(held: list[int], movable: list[int], skew: int, *, short: bool) -> int | None:
    """Return the fewest moves by trying every way in which the pods could end up."""
    total, found = sum(held), []
    for ends in product(range(total + 1), repeat=len(held) - 1):
        end = [*ends, total - sum(ends)]
        if end[-1] < 0 or max(end) - (0 if short else min(end)) > skew:
            continue
        left = [max(0, now - then) for now, then in zip(held, end, strict=True)]
        if all(gone <= most for gone, most in zip(left, movable, strict=True)):
            found.append(sum(left))
    return min(found, default=None)


DOMAINS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4)


@given(DOMAINS, st.integers(1, 3), st.booleans())
def test_the_fewest_moves_are_those_that_a_search_finds(
    drawn: list[tuple[int, int]], skew: int, short: bool
) -> None:
    held, movable = [h for h, _ in drawn], [min(pair) for pair in drawn]
    best = searched(held, held, skew, short=short)
    if best is not None:
        assert distance(np.array(held), skew, short=short) == best
    limited = searched(held, movable, skew, short=short)
    if limited is not None:
        assert fewest(np.array(held), np.array(movable), skew, short=short) == limited


@pytest.mark.parametrize(
    ("held", "skew", "short", "moves"),
    [
        ([], 1, False, 0),
        ([3], 1, False, 0),
        ([3], 1, True, 2),
        ([21, 21, 0, 22], 1, False, 16),
        ([4, 4, 0], 1, False, 2),
        ([5, 0], 2, False, 2),
        ([1, 1, 1, 5], 3, False, 1),
    ],
)
def test_moves_of_known_cases(held: list[int], skew: int, short: bool, moves: int) -> None:
    assert distance(np.array(held, dtype=np.int64), skew, short=short) == moves


def test_pods_that_may_not_leave_can_make_it_impossible() -> None:
    held = np.array([4, 0])
    assert fewest(held, np.array([1, 0]), 1, short=False) is None
    assert fewest(held, np.array([1, 0]), 2, short=False) == 1
    assert fewest(held, np.array([1, 0]), 1, short=False, outside=1) == 2


@given(DOMAINS, st.integers(1, 3), st.booleans(), st.data())
def test_each_arrival_is_judged_as_if_it_had_happened(
    drawn: list[tuple[int, int]], skew: int, short: bool, data: st.DataObject
) -> None:
    held = np.array([1 + h for h, _ in drawn])
    source = data.draw(st.integers(-1, len(held) - 1))
    distances, widths = arrivals(held, source, skew, short=short)
    assert widths_after(held, source, short=short).tolist() == widths.tolist()
    for target in range(len(held) + 1):
        after = held.copy()
        if source >= 0:
            after[source] -= 1
        if target < len(held):
            after[target] += 1
        assert distances[target] == distance(after, skew, short=short)
        assert widths[target] == width(after, short=short)
