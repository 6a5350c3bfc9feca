# SPDX-License-Identifier: Apache-2.0
"""The metrics that show how level a cluster is."""

from __future__ import annotations

from math import isnan, nan

from common.load_metrics import highest_mean_lowest


def test_highest_mean_and_lowest_are_computed() -> None:
    assert highest_mean_lowest([30.0, 90.0, 60.0]) == {
        "highest": 90.0,
        "mean": 60.0,
        "lowest": 30.0,
    }


def test_a_node_without_anything_to_allocate_does_not_count() -> None:
    assert highest_mean_lowest([30.0, nan]) == {"highest": 30.0, "mean": 30.0, "lowest": 30.0}


def test_without_a_known_node_the_metrics_are_not_a_number() -> None:
    assert all(isnan(percent) for percent in highest_mean_lowest([]).values())
