# SPDX-License-Identifier: Apache-2.0
"""Send requests to an extender as fast as it answers, over a few keep-alive connections.

Each connection works like a scheduler: one request after the other, all verbs; pods come and go,
with a few requests each. Now and then a client disconnects in the middle of a request.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator import build

CONNECTIONS: Final = 4
_ROUND: Final = ("filter", "prioritize") * 4 + ("preempt",)
_REMADE_AFTER: Final = 2_000
_UID: Final = "@UID@"


@dataclass(slots=True)
class Tally:
    """The responses since the last call of `take`."""

    took_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def taken(self) -> Tally:
        """Return the counts and reset them."""
        found = Tally(self.took_ms, self.failed)
        self.took_ms, self.failed = [], 0
        return found


class Driver:
    """Several clients of one extender."""

    def __init__(self, address: str, names: list[str]) -> None:
        host, _, port = address.rpartition(":")
        self._where = host, int(port)
        self._bodies = {verb: _body(verb, names) for verb in _ROUND}
        self._asked = 0
        self.tally = Tally()

    async def run(self) -> None:
        """Send requests until canceled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(self._client())

    async def _client(self) -> None:
        while True:
            reader, writer = await asyncio.open_connection(*self._where)
            try:
                for number in range(_REMADE_AFTER):
                    await self._ask(reader, writer, _ROUND[number % len(_ROUND)])
                writer.write(_head("filter", 1_000_000) + b"{")  # and is gone
            finally:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, verb: str
    ) -> None:
        self._asked += 1
        uid = b"soak-%010d" % (self._asked // 10)
        body = self._bodies[verb].replace(_UID.encode(), uid)
        started = time.perf_counter()
        writer.write(_head(verb, len(body)) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        self.tally.took_ms.append((time.perf_counter() - started) * 1e3)
        self.tally.failed += not head.startswith(b"http/1.1 200 ")


def _head(verb: str, length: int) -> bytes:
    return f"POST /{verb} HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\n\r\n".encode()


def _body(verb: str, names: list[str]) -> bytes:
    pod = build.pod("soak", cpu="100m", memory="128Mi")
    pod["metadata"] |= {"uid": _UID, "name": f"soak-{_UID}"}
    pod["status"] = {"phase": "Pending"}
    if verb == "preempt":
        victims = {"Pods": [{"UID": "0"}], "NumPDBViolations": 0}
        few = dict.fromkeys(names[:20], victims)
        return msgspec.json.encode({"Pod": pod, "NodeNameToMetaVictims": few})
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
