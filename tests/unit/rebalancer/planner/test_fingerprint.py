# SPDX-License-Identifier: Apache-2.0
"""Demands that may lead to different plans have different fingerprints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.worlds.planner import PlannerWorld

POOL = {"name": "p", "nodeSelector": "disk=ssd", "cpuThreshold": 60.0}
RULE = {"selector": {"kubernetes.io/metadata.name": "shop"}, "modes": {"LoadBalancing": "observe"}}


def fingerprint(disk: str = "ssd", load: float = 30.0, **config: Any) -> str:
    world = PlannerWorld(config=config)
    world.node("n1", labels={"disk": disk})
    world.node("n2")
    world.pod("a", "n1", load, namespace="shop")
    return world.plan().fingerprint


def test_equal_demands_have_equal_fingerprints() -> None:
    assert fingerprint(pools=[POOL]) == fingerprint(pools=[POOL])


@pytest.mark.parametrize(
    "other",
    [
        {"load": 31.0},
        {"cpuThreshold": 70.0},
        {"imbalanceThreshold": 35.0},
        {"maxInboundPerNode": 2},
        {"pools": []},
        {"pools": [{**POOL, "cpuThreshold": 65.0}]},
        {"pools": [{"name": "rest", "nodeSelector": ""}, POOL]},
        {"disk": "hdd"},  # the node is in no pool any more
        {"namespaces": [RULE]},
    ],
)
def test_what_decides_changes_the_fingerprint(other: dict[str, Any]) -> None:
    assert fingerprint(**{"pools": [POOL], **other}) != fingerprint(pools=[POOL])
