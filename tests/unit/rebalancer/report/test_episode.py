# SPDX-License-Identifier: Apache-2.0
"""Evictions of an episode beside their bound, and never a larger bound than is proven."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.migrations import MigrationStatus
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.metrics import Metrics
from rebalancer.planner import Plan
from rebalancer.report.episode import Episode, EpisodeTracker
from tests.support.worlds.loop import move_of, plan_of
from tests.support.worlds.migrations import migration, spec_of


def planned(goals: str, bound: int, proof: str = "ceilings") -> Plan:
    return plan_of(move_of("p"), bound=bound, proof=proof, goals=tuple(goals.split()))


@pytest.mark.parametrize(
    ("plans", "bound"),
    [
        ([("a", 3, "ceilings")], 3),
        ([("a", 3, "ceilings"), ("a", 1, "ceilings")], 3),
        ([("a", 3, "ceilings"), ("a", 4, "ceilings")], 4),
        ([("a", 3, "ceilings"), ("b", 2, "ceilings")], 5),
        ([("a", 3, "ceilings"), ("b", 2, "empty"), ("b", 1, "empty")], 5),
        ([("a", 3, "ceilings"), ("a b", 4, "ceilings")], 4),
        ([("a", 3, "spread"), ("b", 2, "ceilings")], 3),
        ([("a", 3, "ceilings"), ("s", 5, "spread")], 5),
    ],
)
def test_bounds_add_up_only_where_goals_are_about_different_nodes(
    plans: list[tuple[str, int, str]], bound: int
) -> None:
    episode = Episode()
    for plan in plans:
        episode.acted(planned(*plan), [])
    assert episode.lower_bound == bound


def test_what_turned_out_needless_is_not_claimed() -> None:
    episode = Episode()
    episode.acted(planned("a", 3), [], needless=2)
    assert episode.lower_bound == 1


def record(name: str, **status: Any) -> MigrationRecord:
    spec = spec_of()
    spec.pod.uid = name
    return migration_record(migration(spec, status=MigrationStatus(**status)), Interner())


def test_only_pods_that_were_evicted_count_and_each_once() -> None:
    episode = Episode()
    episode.acted(planned("a", 2), ["m1", "m2", "m3"])
    done = record("m1", phase="Completed")
    for _ in range(2):
        episode.observe({"m1": done, "m2": record("m2", phase="Failed"), "x": record("x")})
    assert episode.evictions == 1
    episode.observe({})
    assert episode.evictions == 1


def test_an_episode_ends_when_nothing_is_left_to_do_to_observe_or_under_way() -> None:
    episode, nothing = Episode(), plan_of()
    assert not episode.over(nothing, waiting=0, migrations={})
    episode.acted(planned("a", 1), ["m1"])
    assert not episode.over(planned("a", 1), waiting=0, migrations={})
    assert not episode.over(nothing, waiting=1, migrations={})
    assert not episode.over(nothing, waiting=0, migrations={"m1": record("m1")})
    assert episode.over(nothing, waiting=0, migrations={"m1": record("m1", phase="Completed")})


def test_the_figures_of_the_last_episode_stay_until_the_next_begins() -> None:
    metrics = Metrics("test")
    book = EpisodeTracker(metrics)

    def figures() -> tuple[float | None, float | None]:
        value = metrics.registry.get_sample_value
        return value("evenkeel_episode_evictions"), value("evenkeel_episode_lower_bound")

    book.planned(plan_of(), waiting=0, migrations={})
    assert figures() == (0, 0)
    book.acted(planned("a", 1), ["m1"])
    over = {"m1": record("m1", phase="Completed")}
    for _ in range(2):
        book.planned(plan_of(), waiting=0, migrations=over)
        assert figures() == (1, 1)
    book.acted(planned("a", 2), ["m2"])
    assert figures() == (0, 2)
