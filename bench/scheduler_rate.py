"""The real kube-scheduler's pods per second: without an extender, with a do-nothing one, with ours.

The three arms are played in turn, in one run, on one control plane of kwok's nodes. In each
round N pods are created while no scheduler runs; then the arm's extender is started and is
ready, then kube-scheduler, and the bindings are timed as they come out of a watch. The rate is
that of the middle 80 %, so that neither the start of the scheduler nor its last pod counts.
Every arm's extender runs in its own rounds only. kwok and kube-controller-manager are stopped:
bare pods need neither, and a thousand renewed leases disturb.

The scheduler's configuration is the shipped one with `clientConnection` qps and burst 5000: at
the default 50 everything looks alike. A round is void unless the extender's own counter shows
two calls per pod.

    python -m bench.scheduler_rate [--pairs N] [--nodes N] [--pods N] [--arms none,go,ours]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from bench.process import extender, running
from common.clock import SYSTEM
from common.kube.client import KubeClient, connect
from controlplane.cluster import ControlPlane, Wanted, up
from controlplane.guardian import Guardian
from controlplane.scheduler_config import SHIPPED
from controlplane.waiting import until
from simulator import build

REPOSITORY = Path(__file__).resolve().parent.parent
NOOP = Path(__file__).resolve().parent / "noop_extender"
PADDING = "x" * 2_000  # a pod is then as large as they are in real clusters, 3 KB
NAMESPACE = "default"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
BUDGET = 0.95
PATIENCE_S = 180.0
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
AT_ONCE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
SETTINGS = "usageSource: requests\n"

Calls = Callable[[], tuple[int, int]]
"""Tells how often filter and prioritize were asked."""


class Stand:
    """One control plane, and how each arm plays a round on it."""

    def __init__(self, plane: ControlPlane, folder: Path, pods: int) -> None:
        self._plane = plane
        self._folder = folder
        self._pods = pods
        self._noop = folder / "noop-extender"
        self._arms = {"none": self._none, "go": self._go, "ours": self._ours}

    def prepare(self, arms: Sequence[str]) -> None:
        """Compile, install and stop what the rounds need or are disturbed by."""
        if "go" in arms:
            command = ["go", "build", "-o", str(self._noop), "."]
            subprocess.run(command, cwd=NOOP, check=True, env={**os.environ, "CGO_ENABLED": "0"})
        definitions = sorted((REPOSITORY / "deploy" / "crds").glob("*.yaml"))
        self._plane.api.apply(d for f in definitions for d in yaml.safe_load_all(f.read_text()))
        for component in ("kube-controller-manager", "kwok", "kube-scheduler"):
            self._plane.stop(component)

    def play(self, arm: str) -> float:
        """Play one round and return pods per second."""
        api = self._plane.api
        version = api.get(PODS_PATH)["metadata"]["resourceVersion"]
        api.create(_pod(number) for number in range(self._pods))
        try:
            with self._arms[arm]() as (url, calls):
                self._plane.write_scheduler_config(self._config(url), url)
                before = calls()
                rate = asyncio.run(self._timed(version))
                self._plane.stop("kube-scheduler")
                self._refuse_void(arm, before, calls())
        finally:
            api.delete(PODS_PATH, AT_ONCE)
        return rate

    async def _timed(self, version: str) -> float:
        """Start the scheduler and time the bindings of the middle 80 %."""
        bound: list[float] = []
        async with connect(kubeconfig=str(self._plane.kubeconfig), qps=0, clock=SYSTEM) as client:
            self._plane.launch("kube-scheduler")
            while len(bound) < self._pods:
                # The API server ends a watch whose buffer is full; go on where it ended.
                version = await self._watched(client, version, bound)
        first, last = self._pods // 10, self._pods - self._pods // 10 - 1
        return (last - first) / (bound[last] - bound[first])

    async def _watched(self, client: KubeClient, version: str, bound: list[float]) -> str:
        params = {"watch": "true", "fieldSelector": "spec.nodeName!=", "resourceVersion": version}
        async with client.stream(PODS_PATH, params=params, connect_s=10, silence_s=PATIENCE_S) as s:
            async for line in s:
                bound.append(time.perf_counter())
                version = VERSION.findall(line)[0].decode()
                if len(bound) == self._pods:
                    break
        return version

    def _refuse_void(self, arm: str, before: tuple[int, int], after: tuple[int, int]) -> None:
        if arm == "none":
            return
        asked = tuple(b - a for a, b in zip(before, after, strict=True))
        if min(asked) < self._pods:
            raise SystemExit(f"void: {arm} was asked {asked} times for {self._pods} pods")

    def _config(self, url: str | None) -> Path:
        config = yaml.safe_load(SHIPPED.read_text())
        config["clientConnection"] |= {"qps": 5000, "burst": 5000}
        if url is None:
            del config["extenders"]
        path = self._folder / "scheduler-config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    @contextlib.contextmanager
    def _none(self) -> Iterator[tuple[None, Calls]]:
        yield None, lambda: (0, 0)

    @contextlib.contextmanager
    def _go(self) -> Iterator[tuple[str, Calls]]:
        with running([str(self._noop)], log=self._folder / "go.log") as (_, address):
            url = f"http://{address}"
            yield url, lambda: _go_calls(url)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[tuple[str, Calls]]:
        with extender(SETTINGS, str(self._plane.kubeconfig), self._folder) as (_, said):
            health = f"http://{said['health']}"
            until(lambda: _is_ready(health), timeout_s=PATIENCE_S, what="ours did not get ready")
            yield f"http://{said['extender']}", lambda: _our_calls(health)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _go_calls(url: str) -> tuple[int, int]:
    found = httpx.get(f"{url}/calls", trust_env=False).json()
    return found["filter"], found["prioritize"]


def _our_calls(url: str) -> tuple[int, int]:
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    return _judged(text, "filter"), _judged(text, "prioritize")


def _judged(text: str, verb: str) -> int:
    """Return how many requests of a verb were answered, those that were not judged aside."""
    answered = _total(text, "extender_requests_total", f'verb="{verb}"', 'code="200"')
    return int(answered - _total(text, "neutral_answers_total", f'verb="{verb}"'))


def _total(text: str, name: str, *labels: str) -> float:
    found = re.findall(rf"^evenkeel_{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for given, value in found if all(each in given for each in labels))


def _pod(number: int) -> dict[str, Any]:
    name = f"pod-{number:05}"
    return build.pod(name, labels={"app": "bench"}, annotations={"evenkeel.io/bench": PADDING})


def main() -> None:
    options = _options()
    arms: list[str] = options.arms
    rates: dict[str, list[float]] = {arm: [] for arm in arms}
    with _stand(options) as stand:
        stand.prepare(arms)
        for arm in arms:
            stand.play(arm)  # not counted: everything is in memory afterwards
        for number in range(options.pairs):
            # Another arm begins each time: whatever wanders slowly hits all alike.
            turn = number % len(arms)
            for arm in arms[turn:] + arms[:turn]:
                rates[arm].append(stand.play(arm))
            line = "  ".join(f"{arm} {rates[arm][-1]:6.1f}" for arm in arms)
            print(f"  {number + 1:3}  {line}", flush=True)
    _report(rates)


@contextlib.contextmanager
def _stand(options: argparse.Namespace) -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-bench-") as folder:
        root = Path(folder) / "cp"
        guardian = Guardian(root)
        try:
            wanted = Wanted(root, nodes=options.nodes, without=frozenset({"metrics-server"}))
            plane = up(wanted, lambda line: print(f"  {line}", file=sys.stderr))
            yield Stand(plane, Path(folder), options.pods)
        finally:
            guardian.dismiss()


def _report(rates: dict[str, list[float]]) -> None:
    words = {"none": "no extender", "go": "do-nothing, in Go", "ours": "Evenkeel"}
    print(f"\n{'kube-scheduler with':24} {'pods/s':>8}   quartiles")
    for arm, values in rates.items():
        print(f"{words[arm]:24} {statistics.median(values):8.1f}   {_quartiles(values, '.1f')}")
    for one, other in (("go", "none"), ("ours", "none"), ("ours", "go")):
        if one in rates and other in rates:
            ratios = [a / b for a, b in zip(rates[one], rates[other], strict=True)]
            budget = f"   (budget {BUDGET})" if (one, other) == ("ours", "go") else ""
            title = f"{words[one]} ÷ {words[other]}"
            print(f"{title}: {statistics.median(ratios):.3f}   {_quartiles(ratios, '.3f')}{budget}")


def _quartiles(values: Sequence[float], style: str) -> str:
    if len(values) < 2:
        return "–"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{low:{style}} to {high:{style}}"


def _arms(text: str) -> list[str]:
    arms = text.split(",")
    if unknown := sorted(set(arms) - {"none", "go", "ours"}):
        raise argparse.ArgumentTypeError(f"unknown arm {unknown[0]}")
    return arms


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=10, help="rounds of each arm")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=500, help="pods of a round")
    parser.add_argument("--arms", type=_arms, default=["none", "go", "ours"])
    return parser.parse_args()


if __name__ == "__main__":
    main()
