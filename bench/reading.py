# SPDX-License-Identifier: Apache-2.0
"""Read 5,000 nodes and 150,000 pods over HTTP, compared with the informer of the official client.

Prints the time to synced, the memory of a process that only reads, the CPU time of a
watch event and the cost of a snapshot. Every reader is a separate process.

    python -m bench.reading [--nodes N] [--pods N] [--events N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from bench.process import memory_mb
from bench.synthetic import Size, kubeconfig, serve
from common.cache.reader import ClusterReader
from common.clock import SYSTEM
from common.config import Reading
from common.kube.client import connect
from common.metrics import Metrics

MEMORY_LIMIT_MB = 500
READY_LIMIT_S = 30
PEER_PODS = 5_000

Figures = dict[str, float]


def main() -> None:
    options = _options()
    role = {"serve": _serve, "ours": _ours, "official": _official}.get(options.role)
    if role is not None:
        role(options)
        return
    print(f"{options.nodes} nodes, {options.pods} pods, {options.events} watch events")
    large = _measure("ours", options.nodes, options.pods, options.events)
    _report(large, options)
    print(f"\nthe informer of the official client, for comparison, {PEER_PODS} of the same pods")
    rounds = [
        {who: _measure(who, 100, PEER_PODS, 2_000) for who in ("ours", "official")}
        for _ in range(3)
    ]
    for figure, words in (
        ("sync_s", "time to synced"),
        ("grown_mb", "memory grown"),
        ("event_us", "CPU of an event"),
    ):
        ours, theirs = ([r[who][figure] for r in rounds] for who in ("ours", "official"))
        ratios = ", ".join(f"{b / a:.0f}" for a, b in zip(ours, theirs, strict=True))
        print(f"  {words:16} {_middle(ours):10.2f} ours {_middle(theirs):10.2f} official"
              f"   ratios {ratios}")  # fmt: skip


def _report(found: Figures, options: argparse.Namespace) -> None:
    print(f"  time to synced   {found['sync_s']:10.1f} s    (limit {READY_LIMIT_S} s)")
    print(f"  memory, resident {found['rss_mb']:10.0f} MB   (limit {MEMORY_LIMIT_MB} MB)")
    print(f"  memory, peak     {found['peak_mb']:10.0f} MB")
    print(f"  memory a pod     {found['grown_mb'] * 1e6 / options.pods:10.0f} B")
    print(f"  CPU of an event  {found['event_us']:10.1f} µs")
    print(f"  snapshot, idle   {found['idle_us']:10.1f} µs")
    print(f"  snapshot after 1 {found['one_us']:10.1f} µs   change, cost of the next one included")
    print(f"  snapshot after 1000 {found['many_us']:7.1f} µs   changes")


def _measure(who: str, nodes: int, pods: int, events: int) -> Figures:
    size = ["--nodes", str(nodes), "--pods", str(pods), "--events", str(events)]
    with subprocess.Popen(_again("serve", *size), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            done = subprocess.run(
                _again(who, *size, "--port", port), stdout=subprocess.PIPE, text=True, check=True
            )
            found: Figures = json.loads(done.stdout)
            return found
        finally:
            server.terminate()


def _again(role: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "bench.reading", role, *arguments]


def _serve(options: argparse.Namespace) -> None:
    asyncio.run(serve(Size(options.nodes, options.pods), lambda port: print(port, flush=True)))


def _ours(options: argparse.Namespace) -> None:
    print(json.dumps(asyncio.run(_read(options))))


async def _read(options: argparse.Namespace) -> Figures:
    before = memory_mb("VmRSS")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = kubeconfig(Path(folder), options.port)
        async with connect(kubeconfig=config, qps=0, clock=SYSTEM) as client:
            reader = ClusterReader(
                client, reading=Reading(), clock=SYSTEM, metrics=Metrics("bench")
            )
            task = asyncio.create_task(reader.run())
            await reader.wait_synced()
            found = {"sync_s": time.perf_counter() - started, "rss_mb": memory_mb("VmRSS")}
            found |= {"grown_mb": found["rss_mb"] - before}
            found |= await _watch_events(reader, options)
            found |= _snapshots(reader)
            found |= {"peak_mb": memory_mb("VmHWM")}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return found


async def _watch_events(reader: ClusterReader, options: argparse.Namespace) -> Figures:
    pods = next(r for r in reader.reflectors if r.resource.plural == "pods")
    async with httpx.AsyncClient(timeout=None) as control:
        before = time.process_time()
        answer = await control.post(f"http://127.0.0.1:{options.port}/events/{options.events}")
        while pods.resource_version != answer.json()["version"]:
            await asyncio.sleep(0.001)
    return {"event_us": (time.process_time() - before) / options.events * 1e6}


def _snapshots(reader: ClusterReader) -> Figures:
    state = reader.state
    state.snapshot()
    idle = _timed(state.snapshot, 1_000)
    keys = list(state.pods.keys())

    def changed(count: int) -> None:
        for key in keys[:count]:
            record = state.pods.records.get(key)
            assert record is not None
            # Removed and added: the same work as a watch event.
            state.pods.forget(key)
            state.pods._put(key, record)
        state.snapshot()

    return {
        "idle_us": idle,
        "one_us": _timed(lambda: changed(1), 200),
        "many_us": _timed(lambda: changed(1_000), 5),
    }


def _official(options: argparse.Namespace) -> None:
    before = memory_mb("VmRSS")
    from kubernetes import client, config
    from kubernetes.informer import SharedInformer

    with tempfile.TemporaryDirectory() as folder:
        config.load_kube_config(kubeconfig(Path(folder), options.port))
        started = time.perf_counter()
        informer = SharedInformer(list_func=client.CoreV1Api().list_pod_for_all_namespaces)
        informer.start()
        while len(informer.cache.list()) < options.pods:
            time.sleep(0.01)
        found = {"sync_s": time.perf_counter() - started, "rss_mb": memory_mb("VmRSS")}
        found |= {"grown_mb": found["rss_mb"] - before}
        seen: list[Any] = []
        informer.add_event_handler("MODIFIED", seen.append)
        time.sleep(1)  # the informer's own watch must be open
        spent = time.process_time()
        httpx.post(f"http://127.0.0.1:{options.port}/events/{options.events}", timeout=None)
        while len(seen) < options.events:
            time.sleep(0.001)
        found["event_us"] = (time.process_time() - spent) / options.events * 1e6
    print(json.dumps(found), flush=True)
    os._exit(0)  # its thread is in a watch that never ends


def _timed(work: Any, times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times * 1e6


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("role", nargs="?", default="all", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
