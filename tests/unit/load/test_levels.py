"""What is told of how level a cluster is."""

from __future__ import annotations

from math import isnan, nan

from common.levels import ends_and_mean


def test_the_ends_and_the_mean_are_told() -> None:
    assert ends_and_mean([30.0, 90.0, 60.0]) == {"highest": 90.0, "mean": 60.0, "lowest": 30.0}


def test_a_node_without_anything_to_allocate_does_not_count() -> None:
    assert ends_and_mean([30.0, nan]) == {"highest": 30.0, "mean": 30.0, "lowest": 30.0}


def test_of_nothing_known_nothing_is_claimed() -> None:
    assert all(isnan(percent) for percent in ends_and_mean([]).values())
