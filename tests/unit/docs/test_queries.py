# SPDX-License-Identifier: Apache-2.0
"""Alerts and the dashboard ask for metrics that the programs make, and name what they log."""

from __future__ import annotations

import re

import pytest

from tests.support.deploy.monitoring import expressions, spoken_of
from tests.support.docs.names import PARTS, log_events, metrics_in_code
from tests.support.repository import DEPLOY

# What Prometheus adds to a scrape, what its client reports of every process, and kube-scheduler.
OTHERS = frozenset(
    {
        "up",
        "leader_election_master_status",  # kube-scheduler's
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
    }
)


def unknown(expr: str) -> set[str]:
    """Return the metrics of an expression that no program makes."""
    known = metrics_in_code() | OTHERS
    return {name for name in spoken_of(expr).metrics if not _wholes(name) & known}


def _wholes(name: str) -> set[str]:
    return {name, *(name.removesuffix(part) for part in PARTS)}


EXPRESSIONS = [pytest.param(expr, id=place) for place, expr in expressions()]


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_every_metric_that_is_asked_for_exists(expr: str) -> None:
    assert unknown(expr) == set()


def test_a_metric_that_no_program_makes_is_found() -> None:
    assert unknown("rate(evenkeel_evictions[5m]) + up") == {"evenkeel_evictions"}


def test_log_events_that_alerts_name_exist() -> None:
    text = (DEPLOY / "components" / "monitoring" / "alerts.yaml").read_text()
    named = re.findall(r"under\s+\"([^\"]+)\"", text)
    assert len(named) > 1
    assert set(named) <= log_events()
