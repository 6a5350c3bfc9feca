# SPDX-License-Identifier: Apache-2.0
"""How long the extender takes to answer, with a large cluster in its cache and busy watches.

Starts the program itself against a synthetic cluster, sends requests over one connection as a
busy kube-scheduler does, and prints quantiles of the round trip per verb and number of nodes,
beside the same requests to a server that answers two bytes. Meanwhile watch events arrive at
a steady rate and usage is sampled. The budgets apply at the service, from the end of a
request to its answer: the histogram of the program shows which share kept them.

The client, the API server and the service share the cores of one machine, and all of these
times contain waiting for a core. So two more figures are printed, from what the kernel
counts for each thread (/proc/PID/schedstat): the CPU time that the main thread of the service
spent per request, HTTP and watch events included; and the quantiles of the round trip less
the time that this thread was ready to run and had no core. What the client thread waits after
the answer is still included: it cannot be distinguished from waiting for the answer.

Before that, the CPU time of the whole process is printed: until it is ready, and per second
while samples are read, without and with watch events. Where only it matters whether the
budget of the longest lists is kept in every run, use `--sizes 5000 --runs 10`.

A second part compares the way a verb takes, from the HTTP server directly to its handler,
with the way through FastAPI's middleware and router (`extender.openapi`). A second extender
that takes the latter gets the same requests, interleaved, and the cost is printed in percent
of the whole round trip, with and without waiting for a core, and of the CPU time.

    python -m bench.extender [--nodes N] [--pods N] [--rate EVENTS_PER_SECOND] [--calls N]
        [--sizes N,...] [--runs N] [--steady SECONDS] [--no-routing]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import NamedTuple

import httpx
import msgspec
from fastapi import FastAPI

from bench.connection import Connection
from bench.process import cpu_s, memory_mb, running
from bench.process import extender as extender_process
from bench.synthetic import Cluster, Size, kubeconfig, serve
from extender.openapi import ExtenderApi

SIZES = (100, 500, 1_000, 5_000)
VERBS = ("filter", "prioritize", "preempt")
BUDGETS = {500: ((0.5, "0.0005"), (0.99, "0.002")), 5_000: ((0.99, "0.005"),)}
"""Shares of answers that are promised within a number of seconds."""
CHUNK = 25
"""Requests that are prepared before they are sent one right after the other."""
SETTINGS = "usageSource: metrics-server\n"
ROUTED_SIZES = (500, 5_000)
ROUTED = ("bench.extender", "routed")
"""The extender with its verbs behind FastAPI's middleware and router."""


def main() -> None:
    if sys.argv[1:2] == ["routed"]:
        _run_routed()
        return
    options = _options()
    if options.role == "serve":
        size = Size(options.nodes, options.pods)
        asyncio.run(serve(size, lambda port: print(port, flush=True)))
        return
    if options.role == "echo":
        _echo()
        return
    print(f"{options.nodes} nodes, {options.pods} pods, {options.rate} watch events a second")
    with _cluster(options) as port, _extender(port) as (service, health, pid):
        took = f"{_until_ready(health):.1f} s ({cpu_s(pid):.1f} s of CPU)"
        print(f"  ready after {took}, {memory_mb(pid=pid):.0f} MB resident")
        _print_steady(options, port, pid)
        with running([sys.executable, "-m", "bench.extender", "echo"]) as (_, line):
            _measure(options, port, (service, health, pid), line)
        print(f"  afterwards {memory_mb(pid=pid):.0f} MB resident")
        if options.no_routing:
            return
        with _extender(port, ROUTED) as (routed_service, routed_health, routed_pid):
            _until_ready(routed_health)
            _compare_routing(options, (service, pid), (routed_service, routed_pid))


def _measure(
    options: argparse.Namespace, port: str, where: tuple[str, str, int], echo: str
) -> None:
    service, health, pid = where
    titles = (
        f"{'p50':>9}{'p90':>9}{'p99':>9}{'p50 ÷ echo':>12}{'cpu':>9}{'no wait: p50':>16}{'p99':>9}"
    )
    print(f"  {'verb':11}{'nodes':>6}{titles}   at the service")
    sizes = [size for size in options.sizes if size <= options.nodes] * options.runs
    with _events(port, options.rate):
        for count in sizes:
            before = _histogram(health)
            found = _interleaved(count, (service, pid), echo, options)
            after = _histogram(health)
            for verb, (ours, theirs) in found.items():
                spent = {key: after[key] - before.get(key, 0.0) for key in after}
                print(_row(verb, count, ours, theirs) + _kept(verb, count, spent), flush=True)


def _print_steady(options: argparse.Namespace, port: str, pid: int) -> None:
    """Print how much of a core the program needs without any request."""
    if not options.steady:
        return
    for words, events in (("", nullcontext()), (" and events", _events(port, options.rate))):
        with events:
            before = cpu_s(pid)
            time.sleep(options.steady)
            share = (cpu_s(pid) - before) / options.steady
            print(
                f"  {share:.1%} of a core for samples{words}, over {options.steady} s", flush=True
            )


def _interleaved(
    count: int, service: tuple[str, int], echo: str, options: argparse.Namespace
) -> dict[str, tuple[list[Asked], list[float]]]:
    """Send requests to both as kube-scheduler does, verb after verb for each pod."""
    cluster = Cluster(Size(options.nodes, options.calls))
    found: dict[str, tuple[list[Asked], list[float]]] = {verb: ([], []) for verb in VERBS}
    with Connection(service[0]) as ours, Connection(echo) as theirs:
        for first in range(0, options.calls, CHUNK):
            asked = _requests(cluster, first, count)
            for verb, body in asked:
                found[verb][0].append(_watched(ours, service[1], f"/{verb}", body))
            for verb, body in asked:
                found[verb][1].append(theirs.ask(f"/{verb}", body))
    return found


def _requests(cluster: Cluster, first: int, count: int) -> list[tuple[str, bytes]]:
    """Return the requests for a chunk of pods, verb after verb for each pod."""
    numbers = range(first, first + CHUNK)
    return [(verb, _body(verb, cluster, number, count)) for number in numbers for verb in VERBS]


def _compare_routing(
    options: argparse.Namespace, direct: tuple[str, int], routed: tuple[str, int]
) -> None:
    """Print what FastAPI's middleware and router cost."""
    titles = f"{'direct p50':>12}{'routed p50':>12}{'cost':>8}{'no wait: cost':>16}{'of cpu':>9}"
    print(f"  {'verb':11}{'nodes':>6}{titles}")
    for count in (size for size in ROUTED_SIZES if size <= options.nodes):
        for verb, (without, through) in _both_ways(count, direct, routed, options).items():
            print(_cost(verb, count, without, through), flush=True)


def _both_ways(
    count: int, direct: tuple[str, int], routed: tuple[str, int], options: argparse.Namespace
) -> dict[str, tuple[list[Asked], list[Asked]]]:
    """Send each chunk of requests both ways, taking turns in which way is first."""
    cluster = Cluster(Size(options.nodes, options.calls))
    found: dict[str, tuple[list[Asked], list[Asked]]] = {verb: ([], []) for verb in VERBS}
    with Connection(direct[0]) as straight, Connection(routed[0]) as through:
        ways = [(0, straight, direct[1]), (1, through, routed[1])]
        for first in range(0, options.calls, CHUNK):
            requests = _requests(cluster, first, count)
            ways.reverse()
            for way, connection, pid in ways:
                for verb, body in requests:
                    found[verb][way].append(_watched(connection, pid, f"/{verb}", body))
    return found


def _cost(verb: str, count: int, direct: list[Asked], routed: list[Asked]) -> str:
    took = [median(asked.took for asked in way) for way in (direct, routed)]
    alone = [median(asked.took - asked.waited for asked in way) for way in (direct, routed)]
    spent = [median(asked.spent for asked in way) for way in (direct, routed)]
    cost, cost_alone, cost_cpu = (after / before - 1 for before, after in (took, alone, spent))
    times = f"{took[0]:10.2f}ms{took[1]:10.2f}ms"
    return f"  {verb:11}{count:6}{times}{cost:+8.0%}{cost_alone:+16.0%}{cost_cpu:+9.0%}"


def _run_routed() -> None:
    """Run the extender without the shortcut of `ExtenderApi`; its flags follow the role."""
    ExtenderApi.__call__ = FastAPI.__call__  # type: ignore[method-assign]
    del sys.argv[1]
    runpy.run_module("extender", run_name="__main__", alter_sys=True)


def _watched(service: Connection, pid: int, path: str, body: bytes) -> Asked:
    """Send a request, and read what it cost the main thread of the service."""
    before = _share(pid)
    took = service.ask(path, body)
    ran_ns, waited_ns = (b - a for a, b in zip(before, _share(pid), strict=True))
    return Asked(took, ran_ns / 1e6, waited_ns / 1e6)


def _share(pid: int) -> tuple[int, int]:
    """Return how long a main thread has run and waited for a core so far, in nanoseconds."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran), int(waited)


def _histogram(health: str) -> dict[tuple[str, str], float]:
    """Return how many answers took at most the bound, by verb and bound."""
    text = httpx.get(f"http://{health}/metrics").text
    found = re.findall(
        r'extender_request_duration_seconds_bucket{le="(.*)",verb="(.*)"} (.*)', text
    )
    return {(verb, bound): float(count) for bound, verb, count in found}


def _kept(verb: str, count: int, spent: dict[tuple[str, str], float]) -> str:
    """Return which share of the answers kept the budgets."""
    parts = []
    for share, bound in BUDGETS.get(count, ()) if verb != "preempt" else ():
        found = spent[verb, bound] / spent[verb, "+Inf"]
        mark = "" if found >= share else "  BROKEN"
        parts.append(f"{found:.1%} ≤ {1e3 * float(bound):g} ms (promised {share:.0%}){mark}")
    return "   " + ", ".join(parts)


def _candidates(nodes: int) -> int:
    """Return on how many nodes kube-scheduler tries to preempt.

    GetOffsetAndNumCandidates in
    pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go.
    """
    return min(nodes, max(100, nodes // 10))


def _body(verb: str, cluster: Cluster, number: int, count: int) -> bytes:
    pod = json.loads(cluster.pod(number, 1))
    del pod["metadata"]["managedFields"], pod["spec"]["nodeName"]
    pod["metadata"] |= {"uid": f"bench-{number}-{count}", "name": f"bench-{number}"}
    pod["status"] = {"phase": "Pending"}
    names = [f"node-{(number * 7 + i) % cluster.size.nodes:05d}.example.internal"
             for i in range(_candidates(count) if verb == "preempt" else count)]  # fmt: skip
    if verb == "preempt":
        victims = {"Pods": [{"UID": "0"}], "NumPDBViolations": 0}
        return msgspec.json.encode(
            {
                "Pod": pod,
                "NodeNameToVictims": None,
                "NodeNameToMetaVictims": dict.fromkeys(names, victims),
            }
        )
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _row(verb: str, count: int, ours: list[Asked], theirs: list[float]) -> str:
    cuts = quantiles([asked.took for asked in ours], n=100)
    ratio = cuts[49] / quantiles(theirs, n=100)[49]
    times = "".join(f"{cuts[percent - 1]:7.2f}ms" for percent in (50, 90, 99))
    return f"  {verb:11}{count:6}{times}{ratio:12.1f}{_alone(ours)}"


def _alone(ours: list[Asked]) -> str:
    """Return what requests cost the service, and how long they took without waiting."""
    spent = fmean(asked.spent for asked in ours)
    cuts = quantiles([asked.took - asked.waited for asked in ours], n=100)
    return f"{spent:7.2f}ms{cuts[49]:14.2f}ms{cuts[98]:7.2f}ms"


class Asked(NamedTuple):
    """One request, in milliseconds."""

    took: float
    spent: float
    """CPU time of the main thread of the service."""
    waited: float
    """How long that thread was ready to run and had no core."""


def _echo() -> None:
    """Serve the lower bound: read a request, answer two bytes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**20)
        print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    asyncio.run(run())


@contextmanager
def _cluster(options: argparse.Namespace) -> Iterator[str]:
    size = ["--nodes", str(options.nodes), "--pods", str(options.pods)]
    with running([sys.executable, "-m", "bench.extender", "serve", *size]) as (_, line):
        yield line


@contextmanager
def _extender(port: str, program: Sequence[str] = ("extender",)) -> Iterator[tuple[str, str, int]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with extender_process(SETTINGS, kubeconfig(folder, port), folder, program=program) as (
            process,
            where,
        ):
            yield where["extender"], where["health"], process.pid


@contextmanager
def _events(port: str, rate: int) -> Iterator[None]:
    """Send watch events ten times a second, `rate` of them in total."""
    code = (
        "import sys, time, httpx\n"
        "client = httpx.Client()\n"
        "while True:\n"
        "    client.post(sys.argv[1]); time.sleep(0.1)\n"
    )
    url = f"http://127.0.0.1:{port}/events/{max(1, rate // 10)}"
    with subprocess.Popen([sys.executable, "-c", code, url]) as process:
        try:
            yield
        finally:
            process.terminate()


def _until_ready(health: str) -> float:
    started = time.perf_counter()
    while time.perf_counter() - started < 300:
        if httpx.get(f"http://{health}/readyz").status_code == 200:
            return time.perf_counter() - started
        time.sleep(0.1)
    sys.exit(httpx.get(f"http://{health}/readyz").text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", nargs="?", default="", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--rate", type=int, default=200, help="watch events a second")
    parser.add_argument("--calls", type=int, default=1_000, help="per verb and size")
    parser.add_argument("--sizes", type=_numbers, default=list(SIZES), help="of the lists")
    parser.add_argument("--runs", type=int, default=1, help="how often each size is measured")
    parser.add_argument("--steady", type=int, default=60, help="seconds without requests")
    parser.add_argument("--no-routing", action="store_true", help="leave the second part out")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
