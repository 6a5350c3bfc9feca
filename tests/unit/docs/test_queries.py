"""Alerts and the dashboard ask for metrics that the programs make."""

from __future__ import annotations

import pytest

from tests.support.docs_names import PARTS, metrics_in_code
from tests.support.monitoring import expressions, spoken_of

# What Prometheus adds to a scrape, and what its client tells of every process.
OTHERS = frozenset({"up", "process_cpu_seconds_total", "process_resident_memory_bytes"})


def unknown(expr: str) -> set[str]:
    """Return the metrics of an expression that nobody makes."""
    known = metrics_in_code() | OTHERS
    return {name for name in spoken_of(expr).metrics if not _wholes(name) & known}


def _wholes(name: str) -> set[str]:
    return {name, *(name.removesuffix(part) for part in PARTS)}


EXPRESSIONS = [pytest.param(expr, id=place) for place, expr in expressions()]


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_metric_that_is_asked_for_exists(expr: str) -> None:
    assert unknown(expr) == set()


def test_a_metric_that_nobody_makes_is_found() -> None:
    assert unknown("rate(evenkeel_evictions[5m]) + up") == {"evenkeel_evictions"}
