# SPDX-License-Identifier: Apache-2.0
"""What the console costs at 5,000 nodes: the browser, ten viewers, and the loop.

In Chromium: first paint, until all nodes are shown, and the main thread's time for an update in
which every node changes. At the server: the CPU of ten viewers of a cluster that is measured
every 15 s. At the loop: planning 5,000 nodes and 150,000 pods with the console following and
without it, interleaved.

    python -m bench.console [--nodes 5000] [--updates 8] [--seconds 30] [--plans 3]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import statistics
import threading
import time
from collections.abc import AsyncIterator, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import httpx

from bench.crowd import crowd, sample_of, state_of
from bench.observed import STAMP
from bench.stands.console import MadeUpCluster
from common.clock import SYSTEM
from common.config import RebalancerConfiguration, Strategy
from common.kube.timestamps import parse_time
from common.load import Belief, LoadTracker
from console.server import Console
from rebalancer.decision import Decider
from rebalancer.inspection import Inspection, cluster_document

SAMPLE_S: Final = 15.0
VIEWERS: Final = 10


def main() -> None:
    options = _options()
    asyncio.run(_browser(options.nodes, options.updates))
    asyncio.run(_viewers(options.nodes, options.seconds))
    _loop(options.nodes, options.plans)


async def _browser(nodes: int, updates: int) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("browser: chromium is not installed")
        return
    from playwright.async_api import async_playwright

    with _server(nodes) as (address, line):
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
            )
            page = await browser.new_page()
            page.set_default_timeout(120_000)
            # The first request loads the framework; what is measured is the page.
            await page.goto(f"http://{address}/health")
            await page.goto(f"http://{address}/")
            await page.wait_for_selector('#live[data-state="live"]')
            paint = await page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
            )
            shown = await page.evaluate(
                "performance.getEntriesByName('evenkeel-shown')[0]?.startTime"
            )
            print(f"first paint {paint:.0f} ms, all {nodes} nodes shown after {shown:.0f} ms")
            await _updates(page, line, updates)
            await browser.close()


async def _updates(page: Any, line: Connection, updates: int) -> None:
    session = await page.context.new_cdp_session(page)
    # CPU time: on a busy machine the clock on the wall says nothing about the page.
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = await _busy_s(session)
    for number in range(updates):
        line.send("step")
        await page.wait_for_function(
            "(n) => performance.getEntriesByName('evenkeel-update').length > n",
            arg=number,
            # Asking in every frame would make the page draw frames.
            polling=100,
        )
    spent = await _busy_s(session) - before
    took = await page.evaluate(
        "performance.getEntriesByName('evenkeel-update').map((each) => each.duration)"
    )
    print(
        f"update of every node: {statistics.median(took):.0f} ms of script (longest "
        f"{max(took):.0f} ms), {1000 * spent / updates:.0f} ms of the main thread in all"
    )


async def _busy_s(session: Any) -> float:
    found = (await session.send("Performance.getMetrics"))["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


async def _viewers(nodes: int, seconds: float) -> None:
    for viewers in (0, VIEWERS):
        with _server(nodes, every_s=SAMPLE_S / 3) as (address, line):
            async with _following(address, viewers):
                line.send("cpu")
                before = line.recv()
                await asyncio.sleep(seconds)
                line.send("cpu")
                share = (line.recv() - before) / seconds / 3
        print(f"{viewers} viewers: {share:.1%} of a core (sampled every {SAMPLE_S:g} s)")


@contextlib.asynccontextmanager
async def _following(address: str, viewers: int) -> AsyncIterator[None]:
    async def follow() -> None:
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            first = (await client.get(f"http://{address}/api/cluster")).json()
            url = f"http://{address}/api/stream?number={first['number']}"
            async with client.stream("GET", url) as answer:
                async for _ in answer.aiter_bytes():
                    pass

    tasks = [asyncio.create_task(follow()) for _ in range(viewers)]
    await asyncio.sleep(3)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _server(nodes: int, *, every_s: float = 0.0) -> Iterator[tuple[str, Connection]]:
    """Run a console in a process of its own."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, nodes, every_s), daemon=True)
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.terminate()
        process.join()


def _serve(line: Connection, nodes: int, every_s: float) -> None:
    asyncio.run(_serving(line, nodes, every_s))


async def _serving(line: Connection, nodes: int, every_s: float) -> None:
    world = MadeUpCluster(nodes, clock=SYSTEM)
    documents = [world.cells]
    for _ in range(3):
        world.step()
        documents.append(world.cells)
    console = Console(world, program="a benchmark", clock=SYSTEM)
    async with console.serving(0) as address:
        await console.feed.poll()
        line.send(address)
        number, due_s = 0, time.monotonic() + every_s
        while True:
            asked = await asyncio.to_thread(line.poll, 0.2)
            said = line.recv() if asked else ""
            if said == "cpu":
                line.send(time.process_time())
            if said == "step" or (every_s and time.monotonic() >= due_s):
                due_s += every_s
                number += 1
                # Made before, so that only the console is measured.
                world.cells, world._number = documents[number % len(documents)], number + 10


def _loop(nodes: int, plans: int) -> None:
    now_s = parse_time(STAMP) + 3600.0
    found = crowd(nodes, 30)
    snapshot, tracker = state_of(found).snapshot(), LoadTracker()
    tracker.observe(sample_of(found, now_s), snapshot, now_s)
    belief = Belief(snapshot, tracker.view(snapshot, now_s))
    config = RebalancerConfiguration(enabled_strategies=(Strategy.RESOURCE_OPTIMIZATION,))
    decider = Decider(config)
    plan = decider.decide(belief, now_s, at_once=True).plan
    built = []
    for _ in range(3):
        began = time.thread_time()
        cluster_document(Inspection(belief, config, now_s, plan=plan))
        built.append(time.thread_time() - began)
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(plans):
        for followed in (False, True):
            with _following_loop(belief, config, now_s, plan) if followed else _alone():
                began = time.perf_counter()
                decider.decide(belief, now_s, at_once=True)
                took[followed].append(time.perf_counter() - began)
    alone, followed_s = statistics.median(took[False]), statistics.median(took[True])
    print(
        f"the cluster document takes {1000 * statistics.median(built):.0f} ms of CPU per sample: "
        f"{statistics.median(built) / SAMPLE_S:.1%} of a core"
    )
    print(
        f"planning with the console {followed_s:.2f} s, without {alone:.2f} s: "
        f"{followed_s / alone:.2f} of the time"
    )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    yield


@contextlib.contextmanager
def _following_loop(
    belief: Belief, config: RebalancerConfiguration, now_s: float, plan: Any
) -> Iterator[None]:
    """Build documents in a thread, with the rests that the feed makes."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            began = time.perf_counter()
            cluster_document(Inspection(belief, config, now_s, plan=plan))
            over.wait(40 * (time.perf_counter() - began))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--plans", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
