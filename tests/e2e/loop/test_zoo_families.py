# SPDX-License-Identifier: Apache-2.0
"""Ordinary clusters that once got no move at all, leveled on a real control plane.

A small zone with one replica of everything, large nodes of which no pod uses one percent, and
two nodes that can only exchange pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode
from bench.stands.real_scenario import NODE_MILLI
from bench.stands.rebalancer_process import QUICK
from simulator.scenarios import Scenario
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

CEILING = 80.0


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, and how few evictions are enough."""

    scenario: Mapping[str, Any]
    fewest: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    node_milli: int = NODE_MILLI


def _workload(name: str, milli: int, *nodes: str, count: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "count": count,
        "replicas": len(nodes),
        "requests": {"cpu": "50m", "memory": "32Mi"},
        "usage": {"cpu": f"{milli}m", "memory": "32Mi"},
        "nodes": list(nodes),
    }


def _small_zone() -> Iterator[dict[str, Any]]:
    """Yield workloads with one replica in each of the zones with four, four and two nodes."""
    many, others = ("x-1", "x-4", "y-1", "y-3"), ("x-2", "x-5", "y-2", "y-4")
    for number in range(16):
        hot = ("x-3", "x-6")[number % 2]
        yield _workload(f"app-{number}", 840, hot, many[number % 4], others[number % 4])


CASES = {
    "small-zone": Case(
        {
            "pools": [
                {"name": "x", "count": 6, "zones": ["1", "2", "3"]},
                {"name": "y", "count": 4, "zones": ["1", "2"]},
            ],
            "workloads": list(_small_zone()),
        },
        fewest=2,
    ),
    "big-nodes": Case(
        {
            "pools": [{"name": "b", "count": 3, "cpu": "64", "memory": "256Gi"}],
            "workloads": [
                _workload("many", 600, *["b-1"] * 4, count=22),
                *(_workload(f"few-{n}", 3200, "b-2", "b-3") for n in range(10)),
            ],
        },
        fewest=3,
        node_milli=64_000,
    ),
    "exchange": Case(
        {
            "pools": [{"name": "n", "count": 3}],
            "workloads": [
                *(_workload(f"here-{milli}", milli, "n-1") for milli in (1200, 3150, 2400)),
                *(_workload(f"there-{milli}", milli, "n-2") for milli in (800, 2720, 2400)),
                _workload("rest", 3100, "n-3", count=2),
            ],
        },
        fewest=2,
        settings={"singleReplica": "allow"},
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With one seed, the exchange is shown, which has most ways to fail; with all seeds, all."""
    everything = metafunc.config.getoption("--all-seeds")
    metafunc.parametrize("family", CASES if everything else ("exchange",))


async def test_a_cluster_that_once_got_no_move_is_leveled(
    cluster: Cluster, tmp_path: Path, family: str, say: Say
) -> None:
    case = CASES[family]
    scenario = Scenario.model_validate(dict(case.scenario))
    settings = {**QUICK, "enabledStrategies": ["ResourceOptimization"], **case.settings}
    async with episode(cluster, tmp_path, scenario, seed=1, settings=settings) as loop:
        before = hottest(loop, case)
        assert before > CEILING
        seconds = await loop.over(lambda: hottest(loop, case) <= CEILING)
        landed = await loop.landed()
        say(f"{family}: {landed.evictions} evictions in {seconds:.0f} s, {case.fewest} at least; "
            f"hottest node {before:.1f} % before, {hottest(loop, case):.1f} % after; "
            f"{landed.as_planned} as planned")  # fmt: skip
        await loop.quiet(cycles=5, samples=2)
        assert hottest(loop, case) <= CEILING
        assert (landed.evictions, landed.as_planned) == (case.fewest, case.fewest)


def hottest(loop: Episode, case: Case) -> float:
    """Return the actual utilization of the most loaded node."""
    return max(loop.percent().values()) * NODE_MILLI / case.node_milli
