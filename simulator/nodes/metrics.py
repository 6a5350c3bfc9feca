# SPDX-License-Identifier: Apache-2.0
"""The metrics pipeline: counters of kubelets, scraped in turns, visible after a lag.

It works like metrics-server. The counters of a kubelet are scraped every `resolution_s`; the
difference of two scrapes is an average over the window between them. The result is visible
after a lag. A pod that started inside the window is measured from its start, once it is ten
seconds old (pkg/storage/pod.go in metrics-server v0.9), and pods that stopped inside it still
count for the node. `--speed` shortens windows and lags; timestamps are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from common.cluster.records import PodRecord
from simulator.api import Json, timestamp
from simulator.api.errors import Unavailable
from simulator.cache import ClusterCache
from simulator.context import Context
from simulator.nodes.fleet import Fleet
from simulator.nodes.kubelet import Kubelet, RunningPod

_YOUNGEST_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Interval and lag of measurements, in simulated seconds."""

    resolution_s: float = 15.0
    lag_s: tuple[float, float] = (1.0, 10.0)
    pod_delay_s: tuple[float, float] = (0.0, 0.0)
    """How long before the end of its node's window that of a pod ends."""


OF_KUBELETS: Final = Pipeline(pod_delay_s=(0.0, 15.0))
"""As on real nodes: a kubelet reads every cgroup at its own moment (docs/results.md)."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement."""

    cpu_milli: float
    mem_bytes: float
    end: float
    """Real time of the end of the window."""
    window_s: float
    """Real seconds."""


@dataclass(frozen=True, slots=True)
class PodReading:
    """The measurement of a pod."""

    record: PodRecord
    containers: tuple[str, ...]
    reading: Reading


@dataclass(frozen=True, slots=True)
class NodeReading:
    """The measurements of a node and its pods."""

    reading: Reading
    pods: tuple[PodReading, ...]


@dataclass(slots=True)
class MetricsFaults:
    """Faults of measurements by node; `*` is all nodes."""

    missing: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    absurd: dict[str, float] = field(default_factory=dict)
    """Factors on the measured values."""
    unavailable: bool = False
    absent: bool = False
    """The API is not registered."""

    def clear(self) -> None:
        self.missing.clear()
        self.frozen.clear()
        self.absurd.clear()
        self.unavailable = self.absent = False

    def is_missing(self, node: str) -> bool:
        return node in self.missing or "*" in self.missing

    def is_frozen(self, node: str) -> bool:
        return node in self.frozen or "*" in self.frozen

    def factor(self, node: str) -> float:
        return self.absurd.get(node, self.absurd.get("*", 1.0))


class MetricsServer:
    """Measures all nodes, and serves the last measurements."""

    def __init__(
        self,
        context: Context,
        fleet: Fleet,
        cache: ClusterCache,
        *,
        pipeline: Pipeline | None = None,
    ) -> None:
        self._context = context
        self._fleet = fleet
        self._cache = cache
        self.pipeline = pipeline or Pipeline()
        self.faults = MetricsFaults()
        self._seen: dict[str, NodeReading] = {}
        self._last_s: dict[str, float] = {}
        self._watched: set[str] = set()

    def start(self) -> None:
        """Start measuring existing nodes and those that join later."""
        self._discover_nodes()

    def _discover_nodes(self) -> None:
        for name in self._fleet.kubelets:
            if name not in self._watched:
                self._watched.add(name)
                share = self._context.rng.share("measure", name)
                first_s = share * self.pipeline.resolution_s
                self._context.timers.after(first_s, partial(self._measure, name))
        self._context.timers.after(self.pipeline.resolution_s / 3, self._discover_nodes)

    def _measure(self, name: str) -> None:
        kubelet = self._fleet.kubelets.get(name)
        if kubelet is None:
            self._watched.discard(name)
            self._last_s.pop(name, None)
            self._seen.pop(name, None)
            return
        self._context.timers.after(self.pipeline.resolution_s, partial(self._measure, name))
        now_s = self._context.time_scale.elapsed_s()
        begin_s = self._last_s.get(name)
        self._last_s[name] = now_s
        if begin_s is not None:
            found = self._read(kubelet, begin_s, now_s) if kubelet.alive else None
            lag_s = self._context.rng.between(*self.pipeline.lag_s, "lag", name)
            self._context.timers.after(lag_s, partial(self._show, name, found))
        kubelet.left.clear()

    def _show(self, name: str, found: NodeReading | None) -> None:
        if self.faults.is_frozen(name):
            return
        if found is None:
            # metrics-server drops a node that it could not scrape.
            self._seen.pop(name, None)
        else:
            self._seen[name] = found

    def _read(self, kubelet: Kubelet, begin_s: float, end_s: float) -> NodeReading:
        span_s = end_s - begin_s
        cpu = kubelet.overhead.cpu(begin_s, end_s, 0.0)
        memory = kubelet.overhead.memory(end_s, 0.0)
        pods: list[PodReading] = []
        for pod in (*kubelet.pods.values(), *kubelet.left):
            if pod.started_s is None:
                continue
            first = max(begin_s, pod.started_s)
            last = end_s if pod.ended_s is None else min(end_s, pod.ended_s)
            used = pod.load.cpu(first, last, pod.started_s) if last > first else 0.0
            cpu += used * max(0.0, last - first) / span_s
            if pod.ended_s is None:
                memory += pod.load.memory(end_s, pod.started_s)
                pods += self._pod_readings(pod, pod.started_s, begin_s, end_s)
        return NodeReading(self._reading(cpu, memory, span_s), tuple(pods))

    def _pod_readings(
        self, pod: RunningPod, started_s: float, begin_s: float, end_s: float
    ) -> Iterator[PodReading]:
        """Yield the measurement of a pod, in its own window; a young pod has none."""
        span = self.pipeline.pod_delay_s
        delay_s = self._context.rng.between(*span, "window", pod.record.uid) if any(span) else 0.0
        first_s, last_s = max(begin_s - delay_s, started_s), end_s - delay_s
        if started_s > begin_s - delay_s and last_s - started_s < _YOUNGEST_S:
            return
        cpu, memory = pod.load.cpu(first_s, last_s, started_s), pod.load.memory(last_s, started_s)
        reading = self._reading(cpu, memory, last_s - first_s, delay_s)
        yield PodReading(pod.record, pod.containers, reading)

    def _reading(self, cpu: float, memory: float, span_s: float, ago_s: float = 0.0) -> Reading:
        time_scale = self._context.time_scale
        end = time_scale.clock.now() - time_scale.real_s(ago_s)
        return Reading(cpu, memory, end, time_scale.real_s(span_s))

    def is_registered(self) -> bool:
        """Return whether it is installed."""
        return not self.faults.absent

    def node_metrics(self) -> Iterator[Json]:
        """Return NodeMetrics."""
        self._check()
        for name, seen in self._seen.items():
            node = self._cache.node(name)
            if node is None or self.faults.is_missing(name):
                continue
            usage = _usage(seen.reading, self.faults.factor(name))
            metadata = {"name": name, "labels": dict(node.labels)}
            yield {"metadata": metadata, **_stamps(seen.reading), "usage": usage}

    def pod_metrics(self) -> Iterator[Json]:
        """Return PodMetrics of running pods."""
        self._check()
        for name, seen in self._seen.items():
            if self.faults.is_missing(name):
                continue
            factor = self.faults.factor(name)
            for pod in seen.pods:
                current = self._cache.pod(pod.record.key)
                if current is None or current.uid != pod.record.uid or current.phase != "Running":
                    continue
                yield _pod_metrics(pod, current, factor)

    def _check(self) -> None:
        if self.faults.unavailable:
            raise Unavailable("the server is currently unable to handle the request")


def _pod_metrics(pod: PodReading, current: PodRecord, factor: float) -> Json:
    share = factor / len(pod.containers)
    usage = _usage(pod.reading, share)
    metadata = {
        "name": current.name,
        "namespace": current.namespace,
        "labels": dict(current.labels),
    }
    containers = [{"name": name, "usage": usage} for name in pod.containers]
    return {"metadata": metadata, **_stamps(pod.reading), "containers": containers}


def _usage(reading: Reading, factor: float) -> Json:
    nano, kibi = reading.cpu_milli * factor * 1e6, reading.mem_bytes * factor / 1024
    return {"cpu": f"{round(nano)}n", "memory": f"{round(kibi)}Ki"}


def _stamps(reading: Reading) -> Json:
    return {"timestamp": timestamp(reading.end), "window": _go_duration(reading.window_s)}


def _go_duration(seconds: float) -> str:
    if seconds < 1:
        return f"{max(1, round(seconds * 1000))}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".")
    return f"{int(minutes)}m{text}s" if minutes else f"{text}s"
