# SPDX-License-Identifier: Apache-2.0
"""A console over a real socket, with a cluster that is made up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from bench.stands.console import MadeUpCluster
from common.clock import SYSTEM
from console.server import Console


@dataclass(frozen=True)
class Stand:
    """What runs."""

    world: MadeUpCluster
    console: Console
    address: str
    client: httpx.AsyncClient


@asynccontextmanager
async def serving(
    nodes: int = 12, *, hostile: bool = False, token: str | None = None
) -> AsyncIterator[Stand]:
    """Serve a console while the block runs."""
    world = MadeUpCluster(nodes, clock=SYSTEM, hostile=hostile, hot=0.3)
    console = Console(world, program="a test", clock=SYSTEM, token=token)
    async with (
        console.serving(0) as address,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=60, trust_env=False) as client,
    ):
        await console.feed.poll()
        yield Stand(world, console, address, client)
