# SPDX-License-Identifier: Apache-2.0
"""Elections over real sockets: a real client, and an API server that stalls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from common.clock import SYSTEM, Clock
from common.config import LeaderElection
from common.kube.api import KubeApi
from common.kube.leader import Elector
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import (
    Call,
    MemoryApi,
    SkewedClock,
    SocketApi,
    Stall,
    leading,
    lost,
    nothing,
    served,
)

PATH = "/apis/coordination.k8s.io/v1/namespaces/here/leases/helm"


def elector(
    client: KubeApi, identity: str, clock: Clock, metrics: Metrics | None = None
) -> Elector:
    return Elector(
        client,
        LeaderElection(name="helm"),
        namespace="here",
        identity=identity,
        clock=clock,
        metrics=metrics or Metrics("test"),
        rng=random.Random(identity),
    )


class Harbour:
    """Two electors on one API server, and true time."""

    def __init__(self, socket: SocketApi, time: FakeClock) -> None:
        self.socket = socket
        self.time = time
        self.electors: dict[str, Elector] = {}
        self.history: list[tuple[str, ...]] = []
        socket.api.after = self._look_after

    @property
    def leaders(self) -> tuple[str, ...]:
        return tuple(name for name, one in self.electors.items() if one.is_leader)

    async def play(self, seconds: float) -> None:
        await self.socket.quiet()
        for _ in range(round(seconds * 2)):
            await self.time.advance(0.5)
            await self.socket.quiet()
            self.history.append(self.leaders)

    async def _look_after(self, call: Call) -> None:
        # The one that has just been written into the Lease is about to lead.
        winner = call.body["spec"]["holderIdentity"] if call.body else ""
        self.history.append(tuple({*self.leaders, winner} - {""}))

    @asynccontextmanager
    async def joined(self, name: str, folder: Path, clock: Clock) -> AsyncIterator[Elector]:
        async with self.socket.client(name, folder, SYSTEM) as client:
            one = self.electors[name] = elector(client, name, clock)
            task = asyncio.create_task(one.run())
            try:
                yield one
            finally:
                self.socket.api.before = self.socket.api.after = nothing
                await ended(task, self.time, self.socket)


async def ended(task: asyncio.Task[Any], time: FakeClock, socket: SocketApi) -> None:
    task.cancel()
    while not task.done():
        await time.advance(0.5)
        await socket.quiet()


@pytest.mark.parametrize("late", ["carried out", "answered"])
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.85, 1.2), (1.2, 0.85)])
async def test_no_two_lead_when_the_api_server_stalls_and_clocks_disagree(
    tmp_path: Path, late: Literal["carried out", "answered"], rates: tuple[float, float]
) -> None:
    time = FakeClock()
    clocks = [
        SkewedClock(time, rate=rate, ahead_s=ahead)
        for rate, ahead in zip(rates, (-86_400.0, 3_600.0), strict=True)
    ]
    async with served(MemoryApi()) as socket:
        harbour = Harbour(socket, time)
        async with harbour.joined("a", tmp_path, clocks[0]):
            await harbour.play(1.0)
            async with harbour.joined("b", tmp_path, clocks[1]):
                await harbour.play(9.0)
                assert harbour.leaders == ("a",)
                await stall(harbour, "a", late, for_s=30.0)
                assert harbour.leaders == ("b",)
                await harbour.play(10.0)
                assert harbour.leaders == ("b",)
                await stall(harbour, "b", late, for_s=30.0)
                assert harbour.leaders == ("a",)
                await harbour.play(10.0)
    assert max(len(leaders) for leaders in harbour.history) == 1
    assert {name for leaders in harbour.history for name in leaders} == {"a", "b"}


async def stall(harbour: Harbour, user: str, late: str, *, for_s: float) -> None:
    """Hold back what one of them asks until the other could long have taken over."""
    api, held = harbour.socket.api, Stall(lambda call: call.user == user)
    before, after = api.before, api.after

    async def look_and_hold(call: Call) -> None:
        await after(call)
        await held.holds(call)

    if late == "carried out":
        api.before = held.holds
    else:
        api.after = look_and_hold
    await harbour.play(for_s)
    assert held.parked
    api.before, api.after = before, after
    held.release()
    await harbour.play(5.0)


async def test_leads_and_releases_over_a_socket(tmp_path: Path) -> None:
    time = FakeClock(now=1_794_819_216.5)
    async with served(MemoryApi()) as socket:
        harbour = Harbour(socket, time)
        async with harbour.joined("a", tmp_path, time) as one:
            await harbour.play(4.0)
            assert one.is_leader
            assert socket.api.objects[PATH]["metadata"]["name"] == "helm"
            assert socket.api.objects[PATH]["spec"] == {
                "holderIdentity": "a",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-11-16T08:53:36.500000Z",
                "renewTime": "2026-11-16T08:53:40.500000Z",
                "leaseTransitions": 0,
            }
        assert not one.is_leader
        assert socket.api.objects[PATH]["spec"]["holderIdentity"] == ""


async def test_two_that_find_no_lease_at_the_same_moment_do_not_both_lead(tmp_path: Path) -> None:
    time = FakeClock()
    async with served(MemoryApi()) as socket:
        harbour = Harbour(socket, time)
        both = Stall(lambda call: call.method == "GET")
        socket.api.after = both.holds
        socket.api.before = both.holds
        async with harbour.joined("a", tmp_path, time), harbour.joined("b", tmp_path, time):
            await harbour.play(1.0)
            assert len(both.parked) == 2
            both.release()
            await harbour.play(10.0)
            assert len(harbour.leaders) == 1
    refused = [call.user for call in socket.api.calls if call.method == "POST"]
    assert sorted(refused) == ["a", "b"]
    assert max(len(leaders) for leaders in harbour.history) == 1


async def test_an_api_server_that_is_gone_costs_the_lead_but_not_the_elector(
    tmp_path: Path,
) -> None:
    time, metrics = FakeClock(), Metrics("test")
    async with served(MemoryApi()) as socket, socket.client("a", tmp_path, SYSTEM) as client:
        one = elector(client, "a", time, metrics)
        task = asyncio.create_task(one.run())
        await leading(one)
        await socket.stop()
        while not lost(metrics):
            await time.advance(0.5)
        assert not one.is_leader
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})
