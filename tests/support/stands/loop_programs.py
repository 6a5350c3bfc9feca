# SPDX-License-Identifier: Apache-2.0
"""The two programs run in this process until a block ends, and asked how they are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from common.clock import Clock
from tests.support.http import fetch

Json = dict[str, Any]  # Any: what a program says or is told

# Brisk for tests; what is decided does not depend on it.
BOTH: Json = {
    "usageSource": "metrics-server",
    "usageInterval": "1s",
    "smoothing": "1s",
    "observations": 1,
    "clearObservations": 1,
    # How long a connection may be silent is the machine's time, and much longer.
    "reading": {"backoffMin": "100ms", "backoffMax": "500ms", "staleAfter": "1h"},
    "clientConnection": {"qps": 1000, "burst": 1000},
}
# A silent connection is given up after 800 ms of the machine's time.
IMPATIENT: Json = {**BOTH["reading"], "silence": "800ms", "staleAfter": "15s"}
EXTENDER: Json = {**BOTH, "leaseNamespace": "default"}
REBALANCER: Json = {
    **BOTH,
    "enabledStrategies": ["ResourceOptimization"],
    "reschedulingInterval": "5s",
    "revalidateAfter": "1s",
    "minPodAge": "0s",
    "workloadCooldown": "5s",
    "minNodeAge": "0s",
    "leaderElection": {
        "namespace": "default",
        "leaseDuration": "60s",
        "renewDeadline": "40s",
        "retryPeriod": "2s",
    },
}


@asynccontextmanager
async def running(run: Any, config: Any, options: Any, clock: Clock) -> AsyncIterator[Json]:
    """Run a program until the block ends; give the addresses that it announced."""
    said: Json = {}
    listening = asyncio.Event()

    def announce(**addresses: str) -> None:
        said.update(addresses)
        listening.set()

    work = asyncio.create_task(run(config, options, clock=clock, announce=announce))
    waiting = asyncio.create_task(listening.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        yield said
    finally:
        waiting.cancel()
        work.cancel()
        await asyncio.wait({work})
    assert work.cancelled(), work.exception()


async def is_ready_at(health: str) -> bool:
    """Tell whether a program says that it is ready."""
    return (await fetch(f"{health}/readyz")).is_success


async def figure(health: str, name: str, **labels: str) -> float:
    """Return the sum of the series of a program's metric that have these labels."""
    text = (await fetch(f"{health}/metrics")).text
    found = re.findall(rf"^evenkeel_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(value) for given, value in found if all(w in given for w in wanted))
