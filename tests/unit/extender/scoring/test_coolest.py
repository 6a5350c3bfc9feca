# SPDX-License-Identifier: Apache-2.0
"""Which nodes are worth scoring: shares of zones, siblings, unknown nodes, ties."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.scoring.categories import Categories
from extender.scoring.coolest import Field, Size, coolest, shortlist, untied


def chosen(strain: list[float], zones: list[int], wanted: int) -> list[int]:
    return sorted(coolest(np.array(strain), np.array(zones), wanted).tolist())


@pytest.mark.parametrize(
    ("strain", "zones", "wanted", "expected"),
    [
        ([0.3, 0.1, 0.2], [0, 0, 0], 2, [1, 2]),
        ([0.3, 0.1, 0.2], [0, 0, 0], 5, [0, 1, 2]),
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 2, [0, 2]),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 9.0], [0, 0, 0, 0, 0, 1], 3, [0, 1, 5]),
        ([0.4, 0.3, 0.2, 0.1], [0, 1, 2, 3], 2, [2, 3]),
        ([5.0, 4.0], [7, 7], 1, [1]),
        ([], [], 3, []),
    ],
)
def test_zones_have_shares_and_the_coolest_come_first(
    strain: list[float], zones: list[int], wanted: int, expected: list[int]
) -> None:
    assert chosen(strain, zones, wanted) == expected


nodes = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 6)), min_size=1, max_size=80)


@given(nodes=nodes, wanted=st.integers(1, 90))
def test_a_selection_is_exact_and_has_the_coolest_of_each_zone(
    nodes: list[tuple[float, int]], wanted: int
) -> None:
    strain, zones = [each[0] for each in nodes], [each[1] for each in nodes]
    found = chosen(strain, zones, wanted)
    assert len(set(found)) == len(found) == min(wanted, len(nodes))
    if wanted >= len(set(zones)):
        for zone in set(zones):
            least = min(s for s, z in nodes if z == zone)
            assert any(strain[i] == least and zones[i] == zone for i in found)
    left = [i for i in range(len(nodes)) if i not in found]
    for inside in found:
        for outside in left:
            assert zones[inside] != zones[outside] or strain[inside] <= strain[outside]


def test_shares_follow_the_sizes_of_zones() -> None:
    zones = [0] * 500 + [1] * 300 + [2] * 200
    found = coolest(np.random.default_rng(1).random(1000), np.array(zones), 50)
    assert Counter(zones[i] for i in found.tolist()) == {0: 25, 1: 15, 2: 10}


def field(
    strain: list[float], *, unknown: tuple[int, ...] = (), siblings: list[int] | None = None
) -> Field:
    known = np.ones(len(strain), np.bool_)
    known[list(unknown)] = False
    counts = None if siblings is None else np.array(siblings)
    return Field(np.array(strain), np.zeros(len(strain), np.intp), known, counts)


@pytest.mark.parametrize(
    ("nodes", "size", "expected"),
    [
        (field([0.1, 0.2, 0.3, 0.4]), Size(2, 1), [0, 1]),
        (field([0.1, 0.2, 0.3, 0.4], unknown=(0, 3)), Size(1, 1), [0, 1, 3]),
        (field([0.1, 0.2, 0.3, 0.4], unknown=(0, 1, 2, 3)), Size(1, 1), [0, 1, 2, 3]),
        (field([0.1, 0.2, 0.3, 0.4], siblings=[1, 1, 0, 0]), Size(1, 1), [0, 2]),
        (field([0.1, 0.2, 0.3, 0.4], siblings=[1, 1, 0, 0]), Size(1, 3), [0, 2, 3]),
        (field([0.1, 0.2, 0.3, 0.4], siblings=[3, 2, 4, 2]), Size(1, 1), [0, 1]),
        (field([0.1, 0.2, 0.3], siblings=[5, 1, 0], unknown=(2,)), Size(1, 1), [0, 1, 2]),
    ],
)
def test_what_is_on_a_shortlist(nodes: Field, size: Size, expected: list[int]) -> None:
    assert np.flatnonzero(shortlist(nodes, size)).tolist() == expected


def test_equal_nodes_take_turns() -> None:
    rows, strain, zones = np.arange(200), np.zeros(200), np.zeros(200, np.intp)
    counts: Counter[int] = Counter()
    for turn in range(0, 4000, 37):
        counts.update(coolest(untied(strain, rows, turn), zones, 50).tolist())
    assert len(counts) == 200
    assert max(counts.values()) < 3 * min(counts.values())


def test_the_turn_never_outweighs_load() -> None:
    strain = np.linspace(0.0, 1.0, 200)
    for turn in range(50):
        found = coolest(untied(strain, np.arange(200), turn), np.zeros(200, np.intp), 50)
        assert sorted(found.tolist()) == list(range(50))


def test_a_column_keeps_values_and_grows_with_them() -> None:
    column = Categories.blank(3, "").updated([0, 2], ["a", "b"])
    assert [column.values[code] for code in column.codes] == ["a", "", "b", ""]
    moved = column.taken(np.array([2, 0, -1]))
    assert [moved.values[code] for code in moved.codes] == ["b", "a", ""]
    assert [column.values[code] for code in column.updated([0], ["b"]).codes] == ["b", "", "b", ""]


def test_a_column_does_not_outgrow_its_board() -> None:
    column = Categories.blank(4, "")
    for number in range(1_000):
        column = column.updated([number % 4], [f"zone-{number}"])
        assert len(column.values) <= 5 + 64
    assert column.values[0] == ""
    assert {column.values[code] for code in column.codes[:4]} == {
        f"zone-{n}" for n in range(996, 1000)
    }
    assert column.values[column.codes[4]] == ""
