# SPDX-License-Identifier: Apache-2.0
"""The arena compares both contestants by observation, and level must stay level."""

from __future__ import annotations

import pytest

from bench.arena.figures import Evictions, Figures, Goal, Moment, Run, level_since, repeats
from bench.arena.view import row, sums
from bench.stands.real_scenario import Json, fewest
from simulator import build

HOT, COOL, EVEN = (90.0, 50.0), (80.0, 55.0), (70.0, 60.0)


def moments(*looks: tuple[float, ...], homeless: int = 0) -> list[Moment]:
    return [Moment(float(number), look, homeless) for number, look in enumerate(looks)]


def figures(*looks: tuple[float, ...], landed: int | None = None, bound: int = 2) -> Figures:
    seen = moments(*looks)
    return Figures(
        run=Run("Evenkeel", "hot-spots", 1),
        bound=bound,
        evictions=Evictions(3, 1, landed),
        level_s=level_since(seen, Goal()),
        before=seen[0],
        after=seen[-1],
    )


@pytest.mark.parametrize(
    ("looks", "goal", "since"),
    [
        ([HOT, COOL, COOL], Goal(), 1.0),
        ([HOT, COOL, HOT, COOL, EVEN], Goal(), 3.0),
        ([COOL, HOT], Goal(), None),
        ([HOT, COOL, EVEN], Goal(20.0), 2.0),
        ([HOT, COOL, COOL], Goal(20.0), None),
        ([EVEN], Goal(20.0), 0.0),
    ],
)
def test_level_is_what_stays_level_until_the_end(
    looks: list[tuple[float, ...]], goal: Goal, since: float | None
) -> None:
    assert level_since(moments(*looks), goal) == since


def test_nothing_is_level_while_a_pod_has_no_node() -> None:
    assert level_since(moments(EVEN, EVEN, homeless=1), Goal()) is None


def test_a_node_at_the_ceiling_is_not_hot() -> None:
    assert [moment.hot for moment in moments(HOT, COOL, (80.1, 80.1))] == [1, 0, 2]


def test_an_evicted_replacement_is_a_repeated_eviction() -> None:
    assert repeats({"a", "b", "c"}, {"a", "b"}) == 0
    assert repeats({"a", "b", "c"}, {"a", "d", "e"}) == 2


def test_the_figures_for_programs_name_everything() -> None:
    found = figures(HOT, COOL, landed=3).as_json()
    assert found == {
        "contestant": "Evenkeel",
        "scenario": "hot-spots",
        "seed": 1,
        "bound": 2,
        "evictions": 3,
        "evictionsPerBound": 1.5,
        "repeatEvictions": 1,
        "landedAsPlanned": 3,
        "secondsUntilLevel": 1.0,
        "secondsWatched": 1.0,
        "hotBefore": 1,
        "hotAfter": 0,
        "spreadBefore": 40.0,
        "spreadAfter": 25.0,
        "deviationBefore": 20.0,
        "deviationAfter": 12.5,
    }


def test_whoever_never_gets_there_is_told_so() -> None:
    cells = row(figures(HOT, HOT, bound=0))
    assert "never in 1 s" in cells
    assert cells.count("–") == 2, "no ratio without a bound, nothing planned"
    assert "3 of 3" in row(figures(HOT, COOL, landed=3))


def test_the_bound_counts_the_largest_pods_of_each_node_that_is_too_hot() -> None:
    def pods(node: str, *uses_milli: int) -> list[Json]:
        return [build.pod("p", node=node, usage_cpu=f"{use}m") for use in uses_milli]

    just_full, one = pods("a", 6_400), pods("c", 6_410, 300)
    assert fewest(just_full, 80.0) == 0
    assert fewest(one, 80.0) == 1
    two = pods("b", 400, 1_200, 2_000, 900, 1_000, 1_100, 1_400, 700)
    assert fewest(two, 80.0) == 2
    assert fewest([*just_full, *one, *two], 80.0) == 3


def test_sums_count_seeds_that_never_got_level() -> None:
    found = [figures(HOT, COOL, COOL, landed=3), figures(HOT, HOT, landed=2)]
    cells = sums([each.as_json() for each in found])
    assert cells == (
        "hot-spots", "Evenkeel", "2", "4", "6", "1.50", "2", "5 of 6", "1 of 2",
        "1 s (1 to 1)", "2 → 1",
    )  # fmt: skip
