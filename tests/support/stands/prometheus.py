# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus on loopback, and an exporter that it scrapes.

The exporter speaks as kubelets (cAdvisor) and node-exporter do. Counters follow from their
rates and from the time stamped on each line, so the figures are exact however late an
answer is; kubelets stamp their lines too.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from common.clock import SYSTEM, within

SCRAPE_MS = 500
_ATTEMPTS = 5


@dataclass(frozen=True)
class Line:
    """One series: a counter that grows by `rate` a second, or a gauge that stays."""

    name: str
    labels: Mapping[str, str]
    rate: float | None = None
    value: float = 0.0
    stopped_s: float | None = None
    """The series was last updated then."""

    def text(self, now_s: float) -> str:
        at_s = now_s if self.stopped_s is None else min(now_s, self.stopped_s)
        value = self.value if self.rate is None else self.rate * (at_s - _EPOCH_S)
        labels = ",".join(f"{key}={json.dumps(text)}" for key, text in self.labels.items())
        return f"{self.name}{{{labels}}} {value!r} {round(1000 * at_s)}\n"


_EPOCH_S = 1_700_000_000.0


class Counters:
    """Counters that go on from where they are when a rate changes."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._read_s: dict[str, float] = {}

    def line(self, name: str, labels: Mapping[str, str], rate: float) -> Line:
        now_s, key = SYSTEM.now(), f"{name}{sorted(labels.items())}"
        self._totals[key] += rate * (now_s - self._read_s.get(key, now_s))
        self._read_s[key] = now_s
        return Line(name, labels, value=self._totals[key])


@dataclass
class Exporter:
    """Serves lines by path and counts how often each was asked for."""

    pages: dict[str, Callable[[], Sequence[Line]]] = field(default_factory=dict)
    port: int = 0
    scrapes: dict[str, int] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def scraped(self, times: int) -> None:
        """Wait until every page was asked for so many times more."""
        goal = {path: self.scrapes.get(path, 0) + times for path in self.pages}
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(self.scrapes.get(path, 0) >= count for path, count in goal.items())
            )

    async def _serve(self, request: web.Request) -> web.Response:
        now_s = round(SYSTEM.now(), 3)
        lines = self.pages[request.path]()
        async with self._changed:
            self.scrapes[request.path] = self.scrapes.get(request.path, 0) + 1
            self._changed.notify_all()
        return web.Response(text="".join(line.text(now_s) for line in lines))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Exporter]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()


def binary() -> str:
    """Return where Prometheus is installed; a test that needs it fails without."""
    found = shutil.which("prometheus")
    if found is None:
        pytest.fail("prometheus is missing: apt-get install prometheus", pytrace=False)
    return found


@asynccontextmanager
async def prometheus(
    folder: Path, exporter: Exporter, scrape_configs: Sequence[Mapping[str, Any]]
) -> AsyncIterator[str]:
    """Run Prometheus until the block ends; yield its URL once it scrapes."""
    config = folder / "prometheus.yml"
    interval = {"scrape_interval": f"{SCRAPE_MS}ms", "scrape_timeout": f"{SCRAPE_MS}ms"}
    config.write_text(json.dumps({"global": interval, "scrape_configs": list(scrape_configs)}))
    for _ in range(_ATTEMPTS):
        port = _free_port()
        process = await _start(folder, config, port)
        try:
            if await _comes_up(process, exporter):
                yield f"http://127.0.0.1:{port}"
                return
        finally:
            await _stop(process)
        shutil.rmtree(folder / "data", ignore_errors=True)
    said = (folder / "prometheus.log").read_text()[-2000:]
    pytest.fail(f"prometheus does not start, {_ATTEMPTS} times tried:\n{said}", pytrace=False)


async def _start(folder: Path, config: Path, port: int) -> asyncio.subprocess.Process:
    with (folder / "prometheus.log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            binary(),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


async def _comes_up(process: asyncio.subprocess.Process, exporter: Exporter) -> bool:
    """Wait for the first scrape, or for the end of a process whose port was taken."""
    scraped = asyncio.ensure_future(exporter.scraped(1))
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({scraped, ended}, return_when=asyncio.FIRST_COMPLETED)
        return not ended.done()
    finally:
        for task in (scraped, ended):
            task.cancel()
        await asyncio.gather(scraped, ended, return_exceptions=True)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await within(SYSTEM, 20.0, process.wait())
        except TimeoutError:
            process.kill()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
