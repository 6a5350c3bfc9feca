# SPDX-License-Identifier: Apache-2.0
"""A hot node becomes level on real kubelets, with shipped timings and defaults.

Six of ten pods are on one of three nodes, which is at 90 % of what pods may use. Nothing is
annotated: processes burn the CPU, kubelets measure it, metrics-server reports it, and the kernel's
counters tell afterwards whether the nodes are really level.

Two waits of the shipped settings decide how long it takes. The first move is for the ceiling, as
soon as pods are older than `minPodAge`; the second is for the spread, which is judged once nodes
are older than `minNodeAge` (5m). A workload is moved once per `workloadCooldown` (5m): the hot node
has three, as nodes do, so that the second move does not wait for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.stands.cluster import Cluster
from tests.support.stands.control_plane import Say
from tests.support.stands.real_nodes import NODES, deployment, place, shipped

pytestmark = [pytest.mark.real_nodes, pytest.mark.e2e_real]

BURN = "--milli=70"
HOT, PODS = ("api", "web", "worker"), 2
FEWEST = 2
"""From 6, 2 and 2 pods to 4, 3 and 3."""
LEVEL_S = 390.0


async def test_a_hot_node_becomes_level_with_shipped_settings(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    first, second, third = NODES
    await place(cluster, first, *(deployment(name, PODS, BURN) for name in HOT))
    await place(cluster, second, deployment("warm", PODS, BURN))
    await place(cluster, third, deployment("cool", PODS, BURN))
    async with shipped(cluster, tmp_path, say) as stand:
        await stand.until(stand.counters.percent, 60.0, "the counters tell", closed=False)
        before = stand.counters.percent()
        assert before[first] > 80.0, before
        seconds = await stand.until(stand.level, LEVEL_S, "the counters say that it is level")
        landed, after = await stand.loop.landed(), stand.counters.percent()
        say(f"level after {seconds:.0f} s with {landed.evictions} evictions, {FEWEST} at least")
        say(f"by the counters {_figures(before)} before, {_figures(after)} after")
        assert landed.evictions == FEWEST
        assert (landed.as_planned, landed.again) == (landed.evictions, 0)
        stand.check_places()


def _figures(percent: dict[str, float]) -> str:
    return ", ".join(f"{percent[node]:.0f} %" for node in NODES)
