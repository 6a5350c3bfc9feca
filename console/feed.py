# SPDX-License-Identifier: Apache-2.0
"""What viewers are told while they look: one source, encoded once, for all of them.

`Feed` asks the program every second whether something has changed. A change of the cluster becomes
one message with the cells that differ, which every open stream sends as it is, so that ten viewers
cost little more than one. Other documents are only announced by their version; pages that show
them ask for them.

Each message about the cluster has a number, and so has the document that a page begins with: a
page that misses a number reads the document again. It is built only while a page shows it; without
viewers only the load of nodes is remembered. Both take a while in a large cluster, so the next
time waits in proportion: the console never takes more than a small share of a core, however fast
the cluster changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec
import structlog

from common.clock import Clock
from console.data import ClusterDocument, ConsoleData, NodeCell, Versions
from console.history import History

log: structlog.stdlib.BoundLogger = structlog.get_logger()

POLL_S: Final = 1.0
REST: Final = 40.0
"""What took t is done again after this many times t at the earliest."""
WAITING: Final = 16
"""Messages that a viewer may be behind; one that is further behind connects again."""
QUIET_S: Final = 15.0
"""A stream without news sends a sign of life this often, so that a dead one is noticed."""

_NO_VERSIONS: Final = Versions(cluster=-1, plan=-1, migrations=-1, health=-1)
_NOTHING_SHOWN: Final = (-1, -1)
_LIFE: Final = b": \n\n"


class Viewer:
    """One open stream."""

    def __init__(self, *, cells: bool) -> None:
        """Without `cells` it is not told which nodes have changed."""
        self.cells: Final = cells
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue(WAITING)
        self.lost = False

    def tell(self, message: bytes | None) -> None:
        """Hand over a message; None ends the stream."""
        try:
            self._messages.put_nowait(message)
        except asyncio.QueueFull:
            self.lost = True

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield what is to be sent, until the stream ends."""
        while not (self.lost and self._messages.empty()):
            try:
                async with asyncio.timeout(QUIET_S):
                    message = await self._messages.get()
            except TimeoutError:
                yield _LIFE
                continue
            if message is None:
                return
            yield message


class _Pace:
    """Lets work that took a while rest in proportion."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s = 0.0

    @property
    def due(self) -> bool:
        return self._clock.monotonic() >= self._next_s

    @contextmanager
    def working(self) -> Iterator[None]:
        began_s = self._clock.monotonic()
        yield
        self._next_s = began_s + REST * (self._clock.monotonic() - began_s)


class Feed:
    """Follows one program, keeps the past, and tells viewers what changes."""

    def __init__(self, data: ConsoleData, *, clock: Clock) -> None:
        self.history: Final = History()
        self._data = data
        self._clock = clock
        self._viewers: set[Viewer] = set()
        self._versions = _NO_VERSIONS
        self._recorded = _NO_VERSIONS.cluster
        """Which version of the cluster the newest moment of the past is of."""
        self._recording = _Pace(clock)
        self._shown = _NOTHING_SHOWN
        """Which versions of cluster and plan the document is of."""
        self._showing = _Pace(clock)
        self._turn = asyncio.Lock()
        self._document: ClusterDocument | None = None
        self._number = 0
        self._encoded = b""

    async def run(self) -> None:
        """Follow the program until canceled."""
        while True:
            try:
                await self.poll()
            except Exception:  # what cannot be shown must not end the program
                log.exception("console not updated")
            await self._clock.sleep(POLL_S)

    async def poll(self) -> None:
        """Look once, and tell viewers what is new."""
        versions = self._data.versions()
        if versions.cluster != self._recorded and self._recording.due:
            await self._record(versions)
        if any(viewer.cells for viewer in self._viewers):
            await self._show()
        # Told when it is known: a page of one node then finds the newest moment in the past.
        told = msgspec.structs.replace(versions, cluster=self._recorded)
        if told != self._versions:
            self._versions = told
            self._tell("versions", told)

    async def cluster(self) -> bytes:
        """Return the newest document with its number; `null` before there is one."""
        await self._show()
        if not self._encoded:
            self._encoded = msgspec.json.encode({"number": self._number, "cluster": self._document})
        return self._encoded

    async def _record(self, versions: Versions) -> None:
        with self._recording.working():
            moment = await self._data.load()
        if moment is not None:
            self.history.record(moment)
            self._recorded = versions.cluster

    async def _show(self) -> None:
        """Bring the document up to date, if it is not and has rested."""
        async with self._turn:
            versions = self._data.versions()
            wanted = (versions.cluster, versions.plan)
            if wanted == self._shown or not self._showing.due:
                return
            with self._showing.working():
                document = await self._data.cluster()
            if document is not None:
                self._shown = wanted
                self._update(document)

    @asynccontextmanager
    async def viewer(self, number: int, *, cells: bool = True) -> AsyncIterator[Viewer]:
        """Follow along from a numbered document on."""
        viewer = Viewer(cells=cells)
        self._viewers.add(viewer)
        try:
            viewer.tell(_event("versions", self._versions))
            if cells and number != self._number:
                viewer.tell(_event("reset", {"number": self._number}))
            yield viewer
        finally:
            self._viewers.discard(viewer)

    def close(self) -> None:
        """End all streams."""
        for viewer in self._viewers:
            viewer.tell(None)

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def _update(self, document: ClusterDocument) -> None:
        before, self._document = self._document, document
        if before is not None and before == document:
            return
        self._number += 1
        self._encoded = b""
        if not any(viewer.cells for viewer in self._viewers):
            return
        if before is None or not _same_places(before, document):
            self._tell("reset", {"number": self._number})
        else:
            self._tell("cluster", _delta(self._number, before, document))

    def _tell(self, event: str, said: Any) -> None:
        told = [each for each in self._viewers if each.cells or event == "versions"]
        if told:
            message = _event(event, said)
            for viewer in told:
                viewer.tell(message)


def _event(name: str, said: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(said))


def _same_places(before: ClusterDocument, after: ClusterDocument) -> bool:
    """Tell whether each cell is the same node, in the same group."""
    return len(before.nodes) == len(after.nodes) and all(
        a.name == b.name and a.pool == b.pool and a.zone == b.zone
        for a, b in zip(before.nodes, after.nodes, strict=True)
    )


def _delta(number: int, before: ClusterDocument, after: ClusterDocument) -> dict[str, Any]:
    cells: list[tuple[int, NodeCell]] = [
        (i, new)
        for i, (old, new) in enumerate(zip(before.nodes, after.nodes, strict=True))
        if old != new
    ]
    return {
        "number": number,
        "head": msgspec.structs.replace(after, nodes=()),
        "cells": [(i, *msgspec.structs.astuple(cell)[3:]) for i, cell in cells],
    }
