# SPDX-License-Identifier: Apache-2.0
"""The real kube-scheduler's pods per second and CPU per pod, with and without an extender.

Seven arms run in turn, on one control plane with nodes and running pods:

- `stock`: no extender, and nodes sampled as by default;
- `none`: no extender, every node scored, as in the shipped configuration;
- `go`: an extender that does nothing and decodes nothing, the least that full lists cost;
- `go50`: the same, but filter leaves 50 nodes, the least that shortlists cost;
- `full`: Evenkeel's with `shortlist: off`;
- `shortlist`: Evenkeel's as by default;
- `sampled`: the same, and nodes sampled as by default.

In each round N pods are created while no scheduler runs; then the extender of the arm is
started, then kube-scheduler, and the bindings are timed from a watch. Rate and CPU are those of
the middle 80 %, so that neither the start of the scheduler nor its last pod counts. CPU is
what the kernel counts for the process of kube-scheduler, its client of the extender included.
Every arm's extender runs in its own rounds only, and reads samples of all nodes and pods every
`--interval`, from `bench.stands.metrics_api`. Nodes and pods are objects without kubelets, and
there is no kube-controller-manager: bare pods do not need it, and renewed leases disturb.

The scheduler's configuration is the shipped one with `clientConnection` qps and burst 5000, at
the default 50 everything looks alike, and with an `httpTimeout` that is long enough. A round is
void unless the extender's own counters show two calls per pod, and a shortlist for each pod, or
for none in `full`.

    python -m bench.scheduler_rate [--rounds N] [--nodes N] [--pods N] [--running N]
        [--arms stock,none,go,go50,full,shortlist,sampled] [--results FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml

from bench.process import cpu_s, extender, running
from bench.stands.metrics_api import metrics_api
from common.clock import SYSTEM
from common.kube.client import KubeClient, connect
from controlplane.api import Api
from controlplane.cluster import ClusterOptions, ControlPlane, up
from controlplane.guardian import Guardian
from controlplane.nodes import NodeSpec, manifests
from controlplane.scheduler_config import SHIPPED
from controlplane.waiting import until
from simulator import build

REPOSITORY = Path(__file__).resolve().parent.parent
NOOP = Path(__file__).resolve().parent / "noop_extender"
PADDING = "x" * 2_000  # a pod is then as large as they are in real clusters, 3 KB
NAMESPACE = "default"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
ARMS = {
    "stock": "no extender, default sampling",
    "none": "no extender",
    "go": "do-nothing, full lists, in Go",
    "go50": "do-nothing, 50 nodes left, in Go",
    "full": "Evenkeel, `shortlist: off`",
    "shortlist": "Evenkeel",
    "sampled": "Evenkeel, default sampling",
}
WITHOUT_EXTENDER = ("stock", "none")
SAMPLED = ("stock", "sampled")
SHORTENED = ("shortlist", "sampled")
GO = {"go": "0", "go50": "50"}
"""How many nodes the do-nothing extenders leave; 0 is all."""
PATIENCE_S = 180.0
VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
AT_ONCE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


class Calls(NamedTuple):
    """What an extender has counted."""

    filter: int = 0
    prioritize: int = 0
    shortlists: int = 0

    def since(self, before: Calls) -> Calls:
        return Calls(*(b - a for a, b in zip(before, self, strict=True)))


class Figures(NamedTuple):
    """The result of one round."""

    rate: float
    """Pods per second."""
    cpu_ms: float
    """CPU time of kube-scheduler per pod."""


Count = Callable[[], Calls]


class Stand:
    """One control plane, and how each arm runs a round on it."""

    def __init__(self, plane: ControlPlane, folder: Path, options: argparse.Namespace) -> None:
        self._plane = plane
        self._folder = folder
        self._pods: int = options.pods
        self._interval: str = options.interval
        self._noop = folder / "noop-extender"

    def prepare(self, arms: Sequence[str]) -> None:
        """Compile and install what the rounds need."""
        if not GO.keys().isdisjoint(arms):
            command = ["go", "build", "-o", str(self._noop), "."]
            subprocess.run(command, cwd=NOOP, check=True, env={**os.environ, "CGO_ENABLED": "0"})
        definitions = sorted((REPOSITORY / "deploy" / "crds").glob("*.yaml"))
        self._plane.api.apply(d for f in definitions for d in yaml.safe_load_all(f.read_text()))

    def play(self, arm: str) -> Figures:
        """Run one round."""
        api = self._plane.api
        version = api.get(PODS_PATH, limit="1")["metadata"]["resourceVersion"]
        api.create(_pod(number) for number in range(self._pods))
        try:
            with self._extender(arm) as (url, count):
                self._plane.write_scheduler_config(self._config(arm, url), url)
                before = count()
                figures = asyncio.run(self._timed(version))
                self._plane.stop("kube-scheduler")
                self._refuse_void(arm, count().since(before))
        finally:
            api.request("DELETE", PODS_PATH, AT_ONCE, params={"labelSelector": "app=bench"})
        return figures

    async def _timed(self, version: str) -> Figures:
        """Start the scheduler and time the bindings of the middle 80 %."""
        bound: list[tuple[float, float]] = []
        async with connect(kubeconfig=str(self._plane.kubeconfig), qps=0, clock=SYSTEM) as client:
            self._plane.launch("kube-scheduler")
            pid = next(c.pid for c in self._plane.status() if c.name == "kube-scheduler")
            while len(bound) < self._pods:
                # The API server ends a watch whose buffer is full; continue where it ended.
                version = await self._watched(client, version, bound, pid)
        first, last = self._pods // 10, self._pods - self._pods // 10 - 1
        seconds, cpu_s = (b - a for a, b in zip(bound[first], bound[last], strict=True))
        return Figures((last - first) / seconds, 1e3 * cpu_s / (last - first))

    async def _watched(
        self, client: KubeClient, version: str, bound: list[tuple[float, float]], pid: int
    ) -> str:
        params = {
            "watch": "true",
            "fieldSelector": "spec.nodeName!=",
            "labelSelector": "app=bench",
            "resourceVersion": version,
        }
        async with client.stream(PODS_PATH, params=params, connect_s=10, silence_s=PATIENCE_S) as s:
            async for line in s:
                bound.append((time.perf_counter(), cpu_s(pid)))
                version = VERSION.findall(line)[0].decode()
                if len(bound) == self._pods:
                    break
        return version

    def _refuse_void(self, arm: str, counted: Calls) -> None:
        if arm in WITHOUT_EXTENDER:
            return
        shortened = arm in SHORTENED
        enough = min(counted.filter, counted.prioritize) >= self._pods
        if not enough or (counted.shortlists >= self._pods) is not shortened:
            raise SystemExit(f"void: {arm} counted {counted} for {self._pods} pods")

    def _config(self, arm: str, url: str | None) -> Path:
        config = yaml.safe_load(SHIPPED.read_text())
        config["clientConnection"] |= {"qps": 5000, "burst": 5000}
        if url is None:
            del config["extenders"]
        else:
            # On a busy machine answers come late; a call that is given up costs less.
            config["extenders"][0]["httpTimeout"] = "5s"
        if arm in SAMPLED:
            del config["profiles"][0]["percentageOfNodesToScore"]
        path = self._folder / "scheduler-config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    @contextlib.contextmanager
    def _extender(self, arm: str) -> Iterator[tuple[str | None, Count]]:
        if arm in WITHOUT_EXTENDER:
            yield None, Calls
        elif arm in GO:
            with running([str(self._noop), "-keep", GO[arm]], log=self._folder / "go.log") as (
                _,
                address,
            ):
                url = f"http://{address}"
                yield url, lambda: _go_calls(url)
        else:
            with self._ours("auto" if arm in SHORTENED else "off") as found:
                yield found

    @contextlib.contextmanager
    def _ours(self, shortlist: str) -> Iterator[tuple[str, Count]]:
        settings = f"usageInterval: {self._interval}\nshortlist: '{shortlist}'\n"
        settings += "usageSource: metrics-server\n"
        with extender(settings, str(self._plane.kubeconfig), self._folder) as (_, announced):
            health = f"http://{announced['health']}"
            until(lambda: _is_ready(health), timeout_s=PATIENCE_S, what="ours did not get ready")
            yield f"http://{announced['extender']}", lambda: _our_calls(health)


def _is_ready(url: str) -> bool:
    """Return whether the extender knows the load of every node."""
    try:
        if httpx.get(f"{url}/readyz", trust_env=False).status_code != 200:
            return False
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
    except httpx.TransportError:
        return False
    return re.search(r"^evenkeel_nodes_unknown 0(\.0)?$", metrics, re.MULTILINE) is not None


def _go_calls(url: str) -> Calls:
    found = httpx.get(f"{url}/calls", trust_env=False).json()
    return Calls(found["filter"], found["prioritize"])


def _our_calls(url: str) -> Calls:
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    given = _total(text, "shortlists_total", 'result="given"')
    return Calls(_judged(text, "filter"), _judged(text, "prioritize"), int(given))


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


def _resident(number: int, node: str) -> dict[str, Any]:
    name = f"running-{number:06}"
    return build.pod(name, node=node, labels={"app": "running"}, cpu="100m", memory="200Mi")


def main() -> None:
    options = _options()
    arms: list[str] = options.arms
    rounds: list[dict[str, Figures]] = _earlier(options.results)
    with _stand(options) as stand:
        stand.prepare(arms)
        if not rounds:
            stand.play(arms[0])  # not counted: everything is in memory afterwards
        for number in range(options.rounds):
            # Rotate the order of the arms: slow drifts affect all alike.
            turn = len(rounds) % len(arms)
            found = {arm: stand.play(arm) for arm in arms[turn:] + arms[:turn]}
            rounds.append(found)
            line = "  ".join(f"{a} {found[a].rate:.1f}/s {found[a].cpu_ms:.2f} ms" for a in arms)
            print(f"  {number + 1:3}  {line}", flush=True)
            if options.results:
                options.results.write_text(json.dumps(rounds))
    _report(rounds, arms)


def _earlier(results: Path | None) -> list[dict[str, Figures]]:
    """Return the rounds of an earlier run with the same options."""
    if results is None or not results.exists():
        return []
    found = json.loads(results.read_text())
    return [{arm: Figures(*each) for arm, each in one.items()} for one in found]


@contextlib.contextmanager
def _stand(options: argparse.Namespace) -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="evenkeel-bench-") as folder:
        root = Path(folder) / "cp"
        guardian = Guardian(root)
        try:
            unused = frozenset({"metrics-server", "kwok", "kube-controller-manager"})
            plane = up(ClusterOptions(root, without=unused), _note)
            plane.stop("kube-scheduler")
            nodes = _add_nodes(plane.api, options.nodes)
            pods = _add_pods(plane.api, nodes, options.running)
            with metrics_api(plane, nodes, pods):
                yield Stand(plane, Path(folder), options)
        finally:
            guardian.dismiss()


def _note(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def _add_nodes(api: Api, count: int) -> list[str]:
    """Add nodes that are Ready and stay so: no controller runs that would miss their kubelets."""
    found = manifests(count, NodeSpec())
    for node in found:
        node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    api.create(found)
    names = [node["metadata"]["name"] for node in found]
    # Admission adds the taint of nodes that are not ready yet.
    _patch(api, [(f"/api/v1/nodes/{name}", {"spec": {"taints": None}}) for name in names])
    _note(f"{count} nodes are ready")
    return names


def _add_pods(api: Api, nodes: Sequence[str], count: int) -> list[str]:
    """Put running pods on the nodes; return their names."""
    found = [_resident(number, nodes[number % len(nodes)]) for number in range(count)]
    api.create(found)
    names = [pod["metadata"]["name"] for pod in found]
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    running_since = {"running": {"startedAt": since}}
    status = {
        "phase": "Running",
        "startTime": since,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": since}
            for kind in ("PodScheduled", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": running_since,
            }
            for container in found[0]["spec"]["containers"]
        ],
    }
    _patch(api, [(f"{PODS_PATH}/{name}/status", {"status": status}) for name in names])
    _note(f"{count} pods run")
    return names


def _patch(api: Api, changes: Sequence[tuple[str, dict[str, Any]]]) -> None:
    def send(change: tuple[str, dict[str, Any]]) -> None:
        api.request("PATCH", *change, content_type="application/merge-patch+json")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, changes))


def _report(rounds: Sequence[dict[str, Figures]], arms: Sequence[str]) -> None:
    """Print medians and ranges, and ratios within each round."""
    print(f"\n{len(rounds)} rounds, median (lowest to highest)")
    head = ["kube-scheduler with", "pods/s", "CPU ms per pod"]
    for other in WITHOUT_EXTENDER:
        head += [f"pods/s ÷ {other}", f"CPU ÷ {other}"] if other in arms else []
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for arm in arms:
        own = [found[arm] for found in rounds]
        cells = [ARMS[arm], _spread([f.rate for f in own], 0), _spread([f.cpu_ms for f in own], 2)]
        for other in (each for each in WITHOUT_EXTENDER if each in arms):
            pairs = [(found[arm], found[other]) for found in rounds]
            cells.append(_spread([one.rate / two.rate for one, two in pairs], 2))
            cells.append(_spread([one.cpu_ms / two.cpu_ms for one, two in pairs], 2))
        print(f"| {' | '.join(cells)} |")


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _arms(text: str) -> list[str]:
    arms = text.split(",")
    if unknown := sorted(set(arms) - set(ARMS)):
        raise argparse.ArgumentTypeError(f"unknown arm {unknown[0]}")
    return arms


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each arm")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=300, help="pods of a round")
    parser.add_argument("--running", type=int, default=5_000, help="pods that run all the time")
    parser.add_argument("--interval", default="5s", help="how often usage is read")
    parser.add_argument("--arms", type=_arms, default=list(ARMS))
    parser.add_argument("--results", type=Path, help="JSON file with earlier rounds, to add to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
