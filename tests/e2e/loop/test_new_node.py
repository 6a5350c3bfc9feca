# SPDX-License-Identifier: Apache-2.0
"""An empty node joins a real cluster that is level: it takes its share, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import Episode, episode
from bench.stands.real_scenario import join
from bench.stands.rebalancer_process import QUICK
from controlplane.nodes import ZONE
from simulator.scenarios import Scenario, load_scenario
from tests.e2e.loop.fewest_moves import fewest_within
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

CEILING, THRESHOLD = 80.0, 20.0
NOISE = 0.5
"""Points by which what is measured may differ from the truth. In this cluster the fewest moves
end at exactly the threshold; a measurement a tenth above it makes one more necessary."""
MEASURED_S = 90.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With one seed, replicas are kept apart by zones; with all seeds, also by nodes alone."""
    if "zones" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--all-seeds")
        metafunc.parametrize("zones", (3, 0) if everything else (3,))


async def test_a_new_node_is_filled_to_the_band_and_never_overfilled(
    cluster: Cluster, tmp_path: Path, zones: int, say: Say
) -> None:
    scenario = load_scenario("new-empty-node")
    if not zones:
        scenario = _without_zones(scenario)
    settings = {**QUICK, "minNodeAge": "5s"}
    async with episode(cluster, tmp_path, scenario, seed=1, settings=settings) as loop:
        await cluster.wait(lambda: _is_known(loop), MEASURED_S, "the load of all nodes is known")
        assert loop.pods.left == set()
        others = list(loop.nodes.values())
        [later] = [pool for pool in scenario.pools if pool.joins_after]
        [fresh] = (await join(cluster, later)).values()
        fewest, most = await _fewest(loop, [*others, fresh])

        def never_overfilled() -> None:
            used = loop.pods.percent([*others, fresh])
            assert used[fresh] <= max(used[node] for node in others) <= CEILING

        loop.pods.checks.append(never_overfilled)
        seconds = await loop.over(lambda: _spread(loop, fresh) <= THRESHOLD)
        landed = await loop.landed()
        say(f"{zones} zones: {landed.evictions} moves fill the new node to "
            f"{loop.pods.percent([fresh])[fresh]:.0f} % in {seconds:.0f} s, {fewest} at least; "
            f"{landed.as_planned} as planned")  # fmt: skip
        await loop.quiet(cycles=5, samples=2)
        assert _spread(loop, fresh) <= THRESHOLD
        assert landed.evictions <= most
        assert landed.as_planned == landed.evictions
        targets = [move["spec"]["target"] for move in await loop.migrations()]
        # What a sample makes necessary beyond them may as well be settled between two others.
        assert targets.count(fresh) >= fewest


def _without_zones(scenario: Scenario) -> Scenario:
    """Return a scenario in which no replicas are kept apart by zones: any pod may come."""
    pools = tuple(pool.model_copy(update={"zones": ()}) for pool in scenario.pools)
    return scenario.model_copy(update={"pools": pools})


async def _is_known(loop: Episode) -> bool:
    """Tell whether a few plans were made from the load of all nodes."""
    metrics = await loop.rebalancer.metrics()
    known = (
        metrics.total("_nodes_unknown") == 0
        and metrics.total("_usage_samples_total", result="taken") > 3
    )
    return known and await loop.rebalancer.cycles() > 3


def _spread(loop: Episode, fresh: str) -> float:
    found = loop.pods.percent([*loop.nodes.values(), fresh]).values()
    return max(found) - min(found)


async def _fewest(loop: Episode, names: Sequence[str]) -> tuple[int, int]:
    """Return the proven fewest moves by the truth, and by the worst that may be measured."""
    api = loop.cluster.control_plane.api
    found = (await asyncio.to_thread(api.get, "/api/v1/nodes"))["items"]
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in found}
    zones = {name: labels[name].get(ZONE, "") for name in names}
    pods = loop.before.values()
    return (
        fewest_within(THRESHOLD, pods, zones, CEILING),
        fewest_within(THRESHOLD - NOISE, pods, zones, CEILING),
    )
