# SPDX-License-Identifier: Apache-2.0
"""Run the extender for minutes with everything busy, and check that nothing grows.

The extender runs as a process with a simulated cluster that changes all the time (`churn`), and
gets requests as fast as it answers (`driver`). It prints a row per interval; at the end the last
fifth is compared with the second fifth, because the first is warm-up. Exits with 1 if memory grew
by more than a tenth or anything is left over.

    python -m bench.soak [--minutes M] [--nodes N] [--pods N] [--rows N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import httpx

from bench.process import extender, running
from bench.soak.churn import Size, serve
from bench.soak.driver import CONNECTIONS, Driver
from bench.synthetic import kubeconfig
from common import logs

MOST_GROWTH: Final = 1.10
_SPARE: Final = 3
"""Allowed variation of connections to the API server and their tasks."""
_PATIENCE_S: Final = 180.0
_SETTINGS: Final = """\
leaseNamespace: default
usageSource: metrics-server
usageInterval: 2s
metricExpiry: 10s
"""
_TITLES: Final = (
    *("minute", "requests/s", "p50 ms", "p99 ms", "CPU ms", "    MB", "fds"),
    *("threads", "tasks", "intents"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One interval."""

    minute: float
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """CPU per request, including background work; unlike p99 independent of other processes."""
    held: Held
    intents: float

    def __str__(self) -> str:
        cells = (
            *(f"{self.minute:.2f}", f"{self.rate:.0f}", f"{self.p50_ms:.2f}"),
            *(f"{self.p99_ms:.2f}", f"{self.cpu_ms:.2f}"),
            *(f"{self.held.mb:.1f}", f"{self.held.fds}"),
            *(f"{self.held.threads}", f"{self.held.tasks:.0f}", f"{self.intents:.0f}"),
        )
        return _line(cells)


@dataclass(frozen=True, slots=True)
class Held:
    """Resources of the process."""

    mb: float
    fds: int
    threads: int
    tasks: float


class Subject:
    """The extender under test."""

    def __init__(self, pid: int, addresses: dict[str, str]) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._cpu_s = 0.0
        self.address = addresses["extender"]
        self._http = httpx.AsyncClient(base_url=f"http://{addresses['health']}", timeout=60)

    async def is_ready(self) -> bool:
        return (await self._http.get("/readyz")).is_success

    def cpu_s(self) -> float:
        """Return the CPU time since the last call."""
        after_name = (self._folder / "stat").read_text().rpartition(")")[2].split()
        user, system = after_name[11:13]
        now = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        used, self._cpu_s = now - self._cpu_s, now
        return used

    async def metrics(self) -> Figures:
        return Figures((await self._http.get("/metrics")).text)

    async def held(self) -> Held:
        """Return its resources, including those of this request."""
        status = dict(
            line.split(":", 1) for line in (self._folder / "status").read_text().splitlines()
        )
        return Held(
            mb=int(status["VmRSS"].split()[0]) / 1024,
            fds=len(os.listdir(self._folder / "fd")),
            threads=int(status["Threads"]),
            tasks=(await self.metrics()).total("event_loop_tasks"),
        )


class Figures:
    """A page of metrics."""

    def __init__(self, text: str) -> None:
        self._text = text

    def total(self, name: str) -> float:
        return sum(self.by_label(name).values())

    def by_label(self, name: str) -> dict[str, float]:
        found = re.findall(rf"^evenkeel_{name}(?:{{(.*)}})? (\S+)$", self._text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}


def main() -> int:
    options = _options()
    size = Size(options.nodes, options.pods)
    if options.role == "serve":
        logs.configure(0, "text")
        asyncio.run(serve(size))
        return 0
    return asyncio.run(_soak(size, options.minutes * 60.0, options.rows))


async def _soak(size: Size, seconds: float, rows: int) -> int:
    command = ["serve", "--nodes", str(size.nodes), "--pods", str(size.pods)]
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-soak-"))
    print(f"logs are in {folder}")
    serving = running(
        [sys.executable, "-m", "bench.soak", *command],
        log=folder / "cluster.log",
        stdin=subprocess.PIPE,
    )
    with serving as (cluster, url):
        reached = kubeconfig(folder, url.rpartition(":")[2])
        with extender(_SETTINGS, reached, folder) as (process, addresses):
            subject = Subject(process.pid, addresses)
            await _until(subject.is_ready)
            before = await subject.held()
            assert cluster.stdin is not None
            print(f"http://{subject.address}", file=cluster.stdin, flush=True)
            print(f"{size.nodes} nodes, {size.pods} pods, {CONNECTIONS} connections", flush=True)
            found = await _watched(subject, size, seconds, rows)
            code = await _verdict(subject, before, found)
    if code == 0:
        shutil.rmtree(folder)
    return code


async def _watched(subject: Subject, size: Size, seconds: float, rows: int) -> list[Row]:
    """Send requests for a while; print and return the figures."""
    names = [f"node-{number:04d}" for number in range(size.nodes)]
    driver = Driver(subject.address, names)
    subject.cpu_s()
    work = asyncio.create_task(driver.run())
    print(_line(_TITLES), flush=True)
    found: list[Row] = []
    try:
        for number in range(rows):
            done, _ = await asyncio.wait({work}, timeout=seconds / rows)
            if done:
                work.result()
            found.append(await _row(subject, driver, seconds / rows, number + 1))
            print(found[-1], flush=True)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return found


async def _row(subject: Subject, driver: Driver, span_s: float, number: int) -> Row:
    tally = driver.tally.taken()
    if tally.failed:
        sys.exit(f"{tally.failed} requests were not answered with 200")
    cuts = quantiles(tally.took_ms, n=100)
    metrics = await subject.metrics()
    return Row(
        minute=span_s * number / 60.0,
        rate=len(tally.took_ms) / span_s,
        p50_ms=cuts[49],
        p99_ms=cuts[98],
        cpu_ms=subject.cpu_s() * 1e3 / len(tally.took_ms),
        held=await subject.held(),
        intents=metrics.total("intents_open"),
    )


async def _verdict(subject: Subject, before: Held, rows: Sequence[Row]) -> int:
    fifth = max(1, len(rows) // 5)
    early, late = rows[fifth : 2 * fifth] or rows[:1], rows[-fifth:]
    growth = _ratio(late, early, lambda row: row.held.mb)
    slower = _ratio(late, early, lambda row: row.p99_ms)
    dearer = _ratio(late, early, lambda row: row.cpu_ms)
    print(f"end ÷ start: memory {growth:.3f}, p99 {slower:.2f}, CPU per request {dearer:.2f}")
    metrics = await subject.metrics()
    for name in ("intents_total", "neutral_answers_total", "assumed_placements_total"):
        print(f"  {name}: {_sums(metrics.by_label(name))}")
    wrong = [f"memory grew by {growth - 1:.0%}"] if growth > MOST_GROWTH else []
    wrong += await _left_over(subject, before)
    if any("internal" in labels for labels in metrics.by_label("neutral_answers_total")):
        wrong.append("answers failed for a bug of ours")
    print("NOT FLAT: " + "; ".join(wrong) if wrong else "flat: nothing grew, nothing is left over")
    return 1 if wrong else 0


async def _left_over(subject: Subject, before: Held) -> list[str]:
    """Return the resources of the process after the last request."""

    async def is_back() -> bool:
        now = await subject.held()
        return now.fds <= before.fds + _SPARE and now.tasks <= before.tasks + _SPARE

    try:
        await _until(is_back, patience_s=30.0)
    except TimeoutError:
        now = await subject.held()
        return [f"{now.fds} fds of {before.fds}, {now.tasks:g} tasks of {before.tasks:g} are left"]
    return []


def _ratio(late: Sequence[Row], early: Sequence[Row], of: Callable[[Row], float]) -> float:
    return median(map(of, late)) / median(map(of, early))


def _sums(figures: dict[str, float]) -> str:
    words = {re.sub(r'\w+="|"', "", key): value for key, value in figures.items() if value}
    return ", ".join(f"{key} {value:.0f}" for key, value in words.items()) or "none"


def _line(cells: Sequence[str]) -> str:
    return "  ".join(f"{cell:>{len(title)}}" for cell, title in zip(cells, _TITLES, strict=True))


async def _until(question: Callable[[], Awaitable[bool]], patience_s: float = _PATIENCE_S) -> None:
    async with asyncio.timeout(patience_s):
        while not await question():
            await asyncio.sleep(0.2)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("role", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods", type=int, default=3_000)
    parser.add_argument("--rows", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
