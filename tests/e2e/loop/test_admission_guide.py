# SPDX-License-Identifier: Apache-2.0
"""Hot nodes cool down with a policy of the API server in place of the extender.

kube-scheduler is the one that managed clusters have: no extender, and its default sampling.
Load is what pods request, so nothing has to be measured first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import episode
from bench.stands.real_scenario import node_of
from bench.stands.rebalancer_process import LOAD, QUICK
from common.api.contract import GUIDE_LABEL, GUIDED_BY
from simulator.scenarios import Scenario
from tests.support.releases import needs_mutation
from tests.support.stands.control_plane import Say

pytestmark = [pytest.mark.real, needs_mutation]

NODES, HOT, FULL = 8, 2, 4
CEILING = 80.0


def scenario() -> Scenario:
    """Return eight nodes; the pods of the first two request 90 % of them."""
    asked = {"cpu": "1800m", "memory": "512Mi"}
    workloads: list[dict[str, Any]] = [
        {
            "name": f"web-{number}",
            "replicas": 2,
            "requests": asked,
            "usage": asked,
            "nodes": [f"node-{1 + number % HOT}", f"node-{1 + HOT + number % (NODES - HOT)}"],
        }
        for number in range(HOT * FULL)
    ]
    return Scenario.model_validate(
        {"pools": [{"name": "node", "count": NODES}], "workloads": workloads}
    )


async def test_replacements_reach_their_targets_without_an_extender(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    settings = {**QUICK, "guide": "admission", "enabledStrategies": ["ResourceOptimization"]}
    load = {**LOAD, "usageSource": "requests"}
    async with episode(cluster, tmp_path, scenario(), seed=1, settings=settings, load=load) as loop:
        assert max(loop.percent().values()) > CEILING
        seconds = await loop.over(lambda: max(loop.percent().values()) <= CEILING)
        landed, moves = await loop.landed(), await loop.migrations()
        say(f"{landed.evictions} evictions in {seconds:.0f} s, {landed.as_planned} as planned")
        assert landed.as_planned == landed.evictions >= HOT
        for move in moves:
            assert GUIDE_LABEL not in move["metadata"].get("labels", {})
            replaced = loop.pods.now[move["status"]["replacement"]["uid"]]
            assert replaced["metadata"]["annotations"][GUIDED_BY] == move["metadata"]["uid"]
            assert node_of(replaced) == move["spec"]["target"]
