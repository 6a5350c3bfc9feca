# SPDX-License-Identifier: Apache-2.0
"""What viewers are told while they look: one source, encoded once, for all of them.

`Feed` asks the program every second whether something has changed. A change of the cluster becomes
one message with the cells that differ, which every open stream sends as it is, so that ten viewers
cost little more than one. Other documents are only announced by their version; pages that show
them ask for them.

Each message about the cluster has a number, and so has the document that a page begins with: a
page that misses a number reads the document again. Building the document of a large cluster
takes a while, so the next one waits in proportion: the console never takes more than a small
share of a core, however fast the cluster changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import structlog

from common.clock import Clock
from console.data import ClusterDocument, ConsoleData, NodeCell, Versions
from console.history import History

log: structlog.stdlib.BoundLogger = structlog.get_logger()

POLL_S: Final = 1.0
REST: Final = 40.0
"""A document that took t to build is built again after this many times t at the earliest."""
WAITING: Final = 16
"""Messages that a viewer may be behind; one that is further behind connects again."""
QUIET_S: Final = 15.0
"""A stream without news sends a sign of life this often, so that a dead one is noticed."""

_NO_VERSIONS: Final = Versions(cluster=-1, plan=-1, migrations=-1, health=-1)
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


class Feed:
    """Follows one program, keeps the past, and tells viewers what changes."""

    def __init__(self, data: ConsoleData, *, clock: Clock) -> None:
        self.history: Final = History()
        self._data = data
        self._clock = clock
        self._viewers: set[Viewer] = set()
        self._versions = _NO_VERSIONS
        self._document: ClusterDocument | None = None
        self._number = 0
        self._encoded = b""
        self._next_s = 0.0

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
        versions, before = self._data.versions(), self._versions
        now_s = self._clock.monotonic()
        due = versions.cluster != before.cluster or versions.plan != before.plan
        if due and now_s >= self._next_s:
            document = await self._data.cluster()
            self._next_s = now_s + REST * (self._clock.monotonic() - now_s)
            if document is not None:
                self._update(document)
        elif due:
            # Not shown yet, so it must still count as a change the next time.
            versions = msgspec.structs.replace(versions, cluster=before.cluster)
        if versions != before:
            self._versions = versions
            self._tell("versions", versions)

    def cluster(self) -> bytes:
        """Return the newest document with its number; `null` before there is one."""
        if not self._encoded:
            self._encoded = msgspec.json.encode({"number": self._number, "cluster": self._document})
        return self._encoded

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
        self.history.record(document.at_s, document.nodes)
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
