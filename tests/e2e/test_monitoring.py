# SPDX-License-Identifier: Apache-2.0
"""Alerts and dashboard speak of what the programs really export, and say it rightly."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.e2e.monitoring_cases import CASES
from tests.e2e.monitoring_world import World, happen, world
from tests.support.deploy.monitoring import (
    NOT_OURS,
    OF_TARGETS,
    Exported,
    Query,
    alerts,
    documented_values,
    exported,
    expressions,
    queries,
    rules,
    spoken_of,
)
from tests.support.stands.extender import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW = "10m"
ALERTS = [alert.name for alert in alerts()]


def promtool(*arguments: str, cwd: Path) -> None:
    found = shutil.which("promtool")
    assert found, "promtool is missing: apt-get install prometheus"
    done = subprocess.run([found, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def unknown(expr: str, exports: Exported) -> list[str]:
    """Return what an expression speaks of and no one exports."""
    spoken = spoken_of(expr)
    known = {name: set(labels) | OF_TARGETS for name, labels in exports.items()} | NOT_OURS
    labels = set().union(*(known.get(name, ()) for name in spoken.metrics))
    values = [
        f"{metric}.{label}={value}"
        for metric, label, value in spoken.matchers
        if metric not in NOT_OURS
        and value not in exports.get(metric, {}).get(label, set()) | documented_values(metric)
    ]
    return [*sorted(spoken.metrics - known.keys()), *sorted(spoken.labels - labels), *values]


async def data(scraped: World, query: Query) -> list[float]:
    """Return the figures that a panel would show."""
    found = [float(series["value"][1]) for series in await scraped.ask(query.asked(WINDOW))]
    return [value for value in found if not math.isnan(value)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scraped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("world")) as made:
        await happen(made)
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exports(scraped: World) -> Exported:
    return exported(*await scraped.pages())


async def test_every_metric_and_label_is_exported(exports: Exported) -> None:
    found = [(where, said) for where, expr in expressions() for said in unknown(expr, exports)]
    assert found == []


async def test_every_query_of_the_dashboard_finds_data(scraped: World) -> None:
    missing = queries()

    async def found() -> bool:
        # One scrape that comes late leaves a gap in which a query about now finds nothing.
        missing[:] = [query for query in missing if not await data(scraped, query)]
        return not missing

    with suppress(AssertionError):
        await eventually(found)
    assert missing == []


async def test_every_alert_can_be_evaluated(scraped: World) -> None:
    for alert in alerts():
        await scraped.ask(alert.expr)


async def test_the_rules_are_good_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    await asyncio.to_thread(promtool, "check", "rules", "rules.yaml", cwd=tmp_path)


@pytest.mark.parametrize("name", ALERTS)
async def test_an_alert_fires_when_it_should_and_only_then(tmp_path: Path, name: str) -> None:
    cases = [case for case in CASES if case.alert == name]
    assert {bool(case.firing) for case in cases} == {True, False}
    alone = [
        rule for group in rules()["groups"] for rule in group["rules"] if rule["alert"] == name
    ]
    groups = {"groups": [{"name": "alone", "rules": alone}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [case.as_test() for case in cases],
    }
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    await asyncio.to_thread(promtool, "test", "rules", "tests.yaml", cwd=tmp_path)
