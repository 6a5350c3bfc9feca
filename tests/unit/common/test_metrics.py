# SPDX-License-Identifier: Apache-2.0
"""Metrics: one registry per program, one object per name."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from common import __version__
from common.metrics import Metrics


def names(metrics: Metrics) -> set[str]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {sample.name for family in families for sample in family.samples}


def test_every_metric_of_ours_carries_the_prefix() -> None:
    metrics = Metrics("tiny")
    metrics.counter("moves_total", "Moves.").inc()
    metrics.gauge("staleness_seconds", "Staleness.").set(1)
    metrics.histogram("cycle_seconds", "Cycles.").observe(1)
    assert {
        "evenkeel_moves_total",
        "evenkeel_staleness_seconds",
        "evenkeel_cycle_seconds_bucket",
    } <= names(metrics)


def test_a_name_with_the_prefix_is_not_prefixed_again() -> None:
    metrics = Metrics("tiny")
    assert metrics.counter("evenkeel_moves_total", "Moves.") is metrics.counter(
        "moves_total", "Moves."
    )


def test_asking_twice_returns_the_same_object() -> None:
    metrics = Metrics("tiny")
    first = metrics.counter("moves_total", "Moves.", ("outcome",))
    assert metrics.counter("moves_total", "Moves.", ["outcome"]) is first


def test_asking_twice_for_a_histogram_returns_the_same_object() -> None:
    metrics = Metrics("tiny")
    first = metrics.histogram("cycle_seconds", "Cycles.", buckets=(1, 2))
    assert metrics.histogram("cycle_seconds", "Cycles.", buckets=[1, 2]) is first


def test_another_type_under_a_taken_name_is_refused() -> None:
    metrics = Metrics("tiny")
    metrics.gauge("moves", "Moves.")
    with pytest.raises(ValueError, match="evenkeel_moves exists as"):
        metrics.histogram("moves", "Moves.")


def test_other_labels_under_a_taken_name_are_refused() -> None:
    metrics = Metrics("tiny")
    metrics.gauge("moves", "Moves.", ("node",))
    with pytest.raises(ValueError, match="evenkeel_moves exists as"):
        metrics.gauge("moves", "Moves.")


def test_other_buckets_under_a_taken_name_are_refused() -> None:
    metrics = Metrics("tiny")
    metrics.histogram("cycle_seconds", "Cycles.", buckets=(1, 2))
    with pytest.raises(ValueError, match="evenkeel_cycle_seconds exists as"):
        metrics.histogram("cycle_seconds", "Cycles.", buckets=(1, 3))


def test_two_programs_in_one_process_do_not_share_figures() -> None:
    one, other = Metrics("one"), Metrics("other")
    one.counter("moves_total", "Moves.").inc()
    other.counter("moves_total", "Moves.")
    assert other.registry.get_sample_value("evenkeel_moves_total") == 0


def test_the_build_is_named() -> None:
    labels = {"program": "tiny", "version": __version__}
    assert Metrics("tiny").registry.get_sample_value("evenkeel_build_info", labels) == 1


def test_the_process_and_the_interpreter_report_too() -> None:
    found = names(Metrics("tiny"))
    assert {
        "process_resident_memory_bytes",
        "python_info",
        "python_gc_collections_total",
    } <= found


def test_nothing_tells_when_a_counter_was_made() -> None:
    metrics = Metrics("tiny")
    metrics.counter("moves_total", "Moves.").inc()
    assert not {name for name in names(metrics) if name.endswith("_created")}
