# SPDX-License-Identifier: Apache-2.0
"""What the console costs at 5,000 nodes: the browser, ten viewers, and the loop.

In Chromium: first paint, until all nodes are shown, and the main thread's time for an update in
which every node changes. At the server: the CPU of ten viewers of a cluster that is measured
every 15 s. At the loop: planning 5,000 nodes and 150,000 pods with a viewer and without, at the
rate of samples and at twenty times that rate, interleaved.

    python -m bench.console [--nodes 5000] [--updates 8] [--seconds 30] [--plans 3] [--only loop]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

import httpx
import msgspec

from bench.crowd import crowd, sample_of, state_of
from bench.observed import STAMP
from bench.stands.console import MadeUpCluster
from common.clock import SYSTEM
from common.config import RebalancerConfiguration, Strategy
from common.kube.timestamps import parse_time
from common.load import Belief, LoadTracker
from console.data import ClusterDocument, LoadMoment, Versions
from console.feed import Feed
from console.server import Console
from rebalancer.console_data import Questions
from rebalancer.decision import Decider
from rebalancer.inspection import Inspection, cluster_document, load_moment
from rebalancer.planner_priority import PlannerPriority

SAMPLE_S: Final = 15.0
OFTEN: Final = 20
VIEWERS: Final = 10


def main() -> None:
    options = _options()
    parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "browser": lambda: _browser(options.nodes, options.updates),
        "viewers": lambda: _viewers(options.nodes, options.seconds),
        "loop": lambda: _loop(options.nodes, options.plans),
    }
    for name, part in parts.items():
        if options.only in ("", name):
            asyncio.run(part())


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


async def _loop(nodes: int, plans: int) -> None:
    """Plan alone, with a viewer at the rate of samples, and with one at twenty times that rate."""
    now_s = parse_time(STAMP) + 3600.0
    found = crowd(nodes, 30)
    snapshot, tracker = state_of(found).snapshot(), LoadTracker()
    tracker.observe(sample_of(found, now_s), snapshot, now_s)
    belief = Belief(snapshot, tracker.view(snapshot, now_s))
    config = RebalancerConfiguration(enabled_strategies=(Strategy.RESOURCE_OPTIMIZATION,))
    decider = Decider(config)
    asked = Inspection(belief, config, now_s, plan=decider.decide(belief, now_s, at_once=True).plan)
    for what, work in (("document", cluster_document), ("load to remember", load_moment)):
        cpu_s = statistics.median(_cpu_s(work, asked) for _ in range(5))
        print(f"the {what} takes {1000 * cpu_s:.0f} ms: {cpu_s / SAMPLE_S:.2%} of a core")
    # As the rebalancer does after its first look: a collection would be charged to either.
    gc.collect()
    gc.freeze()
    took: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(plans):
        for how, every_s in (("alone", 0.0), ("viewer", SAMPLE_S), ("often", SAMPLE_S / OFTEN)):
            planning = PlannerPriority()
            async with _followed(_Moment(asked, planning, every_s)) as built:
                before = built()
                with planning:
                    spent = await asyncio.to_thread(_plan_s, decider, belief, now_s)
                took.setdefault(how, []).append(spent)
                times = (
                    f"{spent[0]:.2f} s, {spent[1]:.2f} s of CPU, {1000 * spent[2]:.0f} ms of others"
                )
                print(f"  {how}: {times}, {built() - before} documents", flush=True)
    for how in ("viewer", "often"):
        pairs = list(zip(took[how], took["alone"], strict=True))
        wall, cpu = (statistics.median(mine[i] / alone[i] for mine, alone in pairs) for i in (0, 1))
        rate = {"viewer": "samples every 15 s", "often": f"{OFTEN} times as many samples"}[how]
        # Other threads take at most this from the planner; on a busy machine only this is exact.
        others = statistics.median(mine[2] / mine[1] for mine in took[how])
        print(
            f"planning with a viewer, {rate}: {wall:.2f} of the time, {cpu:.2f} of the CPU; "
            f"other threads {others:.1%} of it"
        )


def _cpu_s(work: Callable[[Inspection], object], asked: Inspection) -> float:
    began_s = time.thread_time()
    work(asked)
    return time.thread_time() - began_s


def _plan_s(decider: Decider, belief: Belief, now_s: float) -> tuple[float, float, float]:
    """Return the time on the wall, the CPU of this thread, and that of all others meanwhile."""
    began_s, cpu_s, all_s = time.perf_counter(), time.thread_time(), time.process_time()
    decider.decide(belief, now_s, at_once=True)
    mine_s = time.thread_time() - cpu_s
    return time.perf_counter() - began_s, mine_s, time.process_time() - all_s - mine_s


class _Moment(MadeUpCluster):
    """One moment of a cluster, measured again and again, asked as the rebalancer asks."""

    def __init__(self, asked: Inspection, planning: PlannerPriority, every_s: float) -> None:
        super().__init__(0, clock=SYSTEM)
        self._asked = asked
        self._every_s = every_s
        self._planning = planning
        self._questions = Questions(planning)
        self.built = 0

    def versions(self) -> Versions:
        if not self._planning.busy:
            self._number = int(time.monotonic() / self._every_s)
        return Versions(cluster=self._number, plan=0, migrations=0, health=0)

    async def load(self) -> LoadMoment | None:
        return await self._questions.ask(load_moment, self._asked)

    async def cluster(self) -> ClusterDocument | None:
        self.built += 1
        found = await self._questions.ask(cluster_document, self._asked)
        return msgspec.structs.replace(found, at_s=time.time())


@contextlib.asynccontextmanager
async def _followed(moment: _Moment) -> AsyncIterator[Callable[[], int]]:
    """Let a feed with a viewer follow; without a rate, nothing does."""
    if not moment._every_s:
        yield lambda: 0
        return
    feed = Feed(moment, clock=SYSTEM)
    async with feed.viewer(0):
        await feed.poll()
        running = asyncio.create_task(feed.run())
        try:
            yield lambda: moment.built
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--plans", type=int, default=3)
    parser.add_argument("--only", default="", choices=["browser", "viewers", "loop"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
