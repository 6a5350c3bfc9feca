# SPDX-License-Identifier: Apache-2.0
"""A reflector between a scripted server and a plain dictionary, on a clock turned by hand."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from common.config import Duration, Reading
from common.kube.reflector import ListWatch, Reflector
from common.kube.resources import PODS
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.scripted_api import ScriptedApi, Step, client_of

PATIENCE_S: Final = 60.0
# A shorter sleep is the wait before trying again; a longer one is the window of a watch.
_LONGEST_PAUSE_S: Final = 310.0


class Meta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str | None = None
    resource_version: str = ""


class Thing(msgspec.Struct):
    metadata: Meta
    size: int = 0
    filling: str = ""


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    """Return a Thing as the server sends it."""
    metadata = {"name": name, "namespace": "a", "resourceVersion": str(version)}
    return {"metadata": metadata, **more}


def event(type_: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"type": type_, "object": thing(name, version, **more)}


def bookmark(version: int) -> dict[str, Any]:
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": metadata}}


class PacedClock(FakeClock):
    """Knows the pauses that the reflector makes, and lets exactly them pass."""

    def __init__(self) -> None:
        super().__init__()
        self._pauses: deque[float] = deque()
        self._pausing = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds < _LONGEST_PAUSE_S:
            self._pauses.append(seconds)
            self._pausing.set()
        await super().sleep(seconds)

    async def until_pausing(self) -> None:
        """Wait until the reflector pauses."""
        async with asyncio.timeout(PATIENCE_S):
            await self._pausing.wait()

    async def pass_pause(self) -> float:
        """Wait until the reflector pauses, let the pause pass, and return its length."""
        await self.until_pausing()
        self._pausing.clear()
        seconds = self._pauses.popleft()
        await self.advance(seconds)
        return seconds


class Shelf:
    """A sink that keeps sizes by key; negative sizes are nonsense, 666 is a bug of its own."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.fillings: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.on_upsert: Callable[[Thing], None] = lambda _: None

    def upsert(self, obj: Thing) -> None:
        if obj.size < 0:
            raise ValueError(f"a size of {obj.size}")
        if obj.size == 666:
            raise RuntimeError("out of order")
        self.on_upsert(obj)
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        self.sizes[key] = obj.size
        self.fillings[key] = obj.filling

    def delete(self, obj: Thing) -> None:
        del self.sizes[f"{obj.metadata.namespace}/{obj.metadata.name}"]

    def keys(self) -> Iterable[str]:
        return iter(self.sizes)

    def forget(self, key: str) -> None:
        if self.sizes.pop(key, None) is not None:
            self.forgotten.append(key)


class Stand:
    """Everything that a test of a reflector looks at."""

    def __init__(
        self, api: ScriptedApi, clock: PacedClock, reflector: Reflector[Thing], shelf: Shelf
    ) -> None:
        self.api = api
        self.clock = clock
        self.reflector = reflector
        self.shelf = shelf
        self.metrics = Metrics("test")
        self.task: asyncio.Task[None]

    def figure(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        value = self.metrics.registry.get_sample_value(name, {"kind": "Pod", **labels})
        return 0.0 if value is None else value

    async def eventually(self, predicate: Callable[[], bool]) -> None:
        """Let the sockets work until something is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not predicate():
                assert not self.task.done(), "the reflector must never end by itself"
                await asyncio.sleep(0.001)  # noqa: TID251 - lets real sockets make progress

    async def holds(self, **sizes: int) -> None:
        """Wait until the shelf holds exactly these objects."""
        expected = {f"a/{name}": size for name, size in sizes.items()}
        await self.eventually(lambda: self.shelf.sizes == expected)

    async def watching(self, count: int) -> None:
        """Wait until this many watches have been asked for."""
        await self.eventually(lambda: len(self.api.watches) >= count)


@asynccontextmanager
async def reflecting(
    folder: Path,
    *steps: Step,
    page_size: int = 500,
    silence_s: float = 90.0,
    stale_after_s: float = 120.0,
    selection: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[Stand]:
    """Run a reflector against a server with this script."""
    reading = Reading(
        page_size=page_size, silence=Duration(silence_s), stale_after=Duration(stale_after_s)
    )
    clock, shelf, metrics = PacedClock(), Shelf(), Metrics("test")
    async with ScriptedApi(*steps) as api, client_of(api, folder, clock, qps=0) as client:
        reflector = Reflector(
            client,
            ListWatch(PODS, Thing, **selection),
            shelf,
            reading=reading,
            clock=clock,
            metrics=metrics,
            rng=random.Random(7),
        )
        stand = Stand(api, clock, reflector, shelf)
        stand.metrics = metrics
        stand.task = asyncio.create_task(reflector.run())
        try:
            yield stand
        finally:
            stand.task.cancel()
            with suppress(asyncio.CancelledError):
                await stand.task
