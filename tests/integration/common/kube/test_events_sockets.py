# SPDX-License-Identifier: Apache-2.0
"""Events over real sockets: what the API server really gets to see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from common.clock import SYSTEM
from common.kube.events import EventLimits, ObjectRef, Recorder
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import MemoryApi, Refusal, SocketApi, Stall, nothing, served

POD = ObjectRef(kind="Pod", namespace="shop", name="web-1", uid="u-1")


class Desk:
    """A recorder, its clock, and the server it talks to."""

    def __init__(self, socket: SocketApi, clock: FakeClock, recorder: Recorder) -> None:
        self.socket = socket
        self.api = socket.api
        self._clock = clock
        self._recorder = recorder

    def record(self, note: str = "moved") -> None:
        self._recorder.record(
            regarding=POD, type_="Normal", reason="Evicted", note=note, action="Evict"
        )

    async def play(self, seconds: float = 0.0) -> None:
        await self.socket.quiet()
        for _ in range(round(seconds * 2)):
            await self._clock.advance(0.5)
            await self.socket.quiet()


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[Desk]:
    clock = FakeClock()
    async with served(MemoryApi()) as socket, socket.client("a", folder, SYSTEM) as client:
        recorder = Recorder(
            client,
            program="rebalancer",
            identity="host_1",
            limits=EventLimits(),
            clock=clock,
            metrics=Metrics("test"),
            rng=random.Random(1),
        )
        task = asyncio.create_task(recorder.run())
        desk = Desk(socket, clock, recorder)
        try:
            yield desk
        finally:
            socket.api.before = nothing
            task.cancel()
            while not task.done():
                await desk.play(0.5)


async def test_folds_repeats_into_a_series_with_a_merge_patch(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        desk.record()
        await desk.play()
        desk.record()
        await desk.play()
        assert [call.method for call in desk.api.calls] == ["POST", "PATCH"]
        assert desk.api.calls[1].content_type == "application/merge-patch+json"
        assert set(desk.api.calls[1].body) == {"series"}
        [event] = desk.api.of("events")
        assert event["series"]["count"] == 2
        assert event["note"] == "moved"


async def test_creates_the_event_again_when_the_server_has_forgotten_it(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        desk.record()
        await desk.play()
        desk.api.objects.clear()
        desk.record()
        await desk.play()
        [event] = desk.api.of("events")
        assert event["series"]["count"] == 2


async def test_recording_goes_on_while_the_server_answers_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        stall = Stall()
        desk.api.before = stall.holds
        for number in range(50):
            desk.record(note=str(number))
            await desk.play()
        assert len(stall.parked) == 1
        stall.release()
        await desk.play(1.0)
        assert len(desk.api.of("events")) == 50


async def test_honours_what_a_busy_server_asks_for(tmp_path: Path) -> None:
    async with at_work(tmp_path) as desk:
        with desk.api.refusing(Refusal(429, "TooManyRequests", retry_after_s=8)):
            desk.record()
            await desk.play(7.5)
        assert len(desk.api.calls) == 1
        await desk.play(3.0)
        assert len(desk.api.of("events")) == 1
