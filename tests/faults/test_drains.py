"""Pods that take their time to stop: how long they drain changes nothing about what is moved.

Both programs run with the timings that they are shipped with, on a clock that goes fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator import build
from tests.support.closed_loop import Loop, closed_loop
from tests.support.loop_programs import figure

SHIPPED: dict[str, Any] = {  # Any: configuration as YAML has it
    "usageInterval": "15s",
    "smoothing": "60s",
    "observations": 3,
    "clearObservations": 2,
    "reading": {"backoffMin": "1s", "backoffMax": "30s", "staleAfter": "2h"},
    "metricExpiry": "180s",
}
REBALANCER: dict[str, Any] = {
    **SHIPPED,
    "reschedulingInterval": "30s",
    "revalidateAfter": "15s",
    "revalidateWithin": "90s",
    "minPodAge": "2m",
    "workloadCooldown": "5m",
    "maxReschedulePods": 10,
    "keepFinished": "24h",
}
REPLICAS, EACH_MILLI, NODE_MILLI = 26, 300, 8000
# 26 pods use 97.5 % of their node; five have to go for 80 %.
BOUND = 5


def draining(stop_after_s: int) -> build.Manifest:
    """Return a workload that stops so slowly, and has all the time that it needs."""
    return build.deployment(
        "web",
        REPLICAS,
        cpu="100m",
        usage_cpu=f"{EACH_MILLI}m",
        annotations={build.STOP_AFTER: f"{stop_after_s}s"},
        spec={"terminationGracePeriodSeconds": max(30, 2 * stop_after_s)},
    )


@pytest.mark.parametrize(
    ("drain_s", "watched_s", "speed"),
    [
        pytest.param(1, 600, 150.0, id="a second"),
        pytest.param(600, 1200, 150.0, id="ten minutes"),
        pytest.param(7200, 8400, 300.0, id="two hours"),
    ],
)
async def test_a_hot_node_is_relieved_once_however_long_its_pods_drain(
    tmp_path: Path, drain_s: int, watched_s: int, speed: float
) -> None:
    nodes = [build.node(f"node-{number}", cpu="8") for number in range(4)]
    async with (
        closed_loop(
            tmp_path,
            draining(drain_s),
            nodes=nodes,
            places={"web": ["node-0"] * REPLICAS},
            speed=speed,
            pace=1.0,
            load=SHIPPED,
        ) as loop,
        loop.rebalancer(**REBALANCER) as health,
    ):
        await loop.until(lambda: evicted(loop) >= BOUND, "the hot node is relieved")
        await loop.clock.sleep(watched_s)
        assert evicted(loop) == BOUND
        assert loop.outcomes() == ["AsPlanned"] * BOUND
        assert await figure(health, "cycles_total", result="failed") == 0


def evicted(loop: Loop) -> int:
    return len(loop.witness.evicted)
