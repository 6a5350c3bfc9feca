"""What is measured: kubelets' counters, read in turns, seen late.

The pipeline is that of metrics-server. A kubelet's counters are read every `resolution_s`;
the difference of two readings is an average over the window between them. The result shows
after a lag. A pod that started inside the window is measured from its start, once it is ten
seconds old (pkg/storage/pod.go in metrics-server v0.9), and pods that left inside it are
still in the node's figure. `--speed` makes windows and lags shorter; stamps are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from common.cluster.records import PodRecord
from simulator.api import Json, timestamp
from simulator.api.errors import Unavailable
from simulator.machinery import Machinery
from simulator.mirror import Mirror
from simulator.nodes.fleet import Fleet
from simulator.nodes.kubelet import Kubelet, RunningPod

_YOUNGEST_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How often and how late is measured, in simulated seconds."""

    resolution_s: float = 15.0
    lag_s: tuple[float, float] = (1.0, 10.0)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured figure."""

    cpu_milli: float
    mem_bytes: float
    end: float
    """Real time."""
    window_s: float
    """Real seconds."""


@dataclass(frozen=True, slots=True)
class PodReading:
    """What one pod was measured to use."""

    record: PodRecord
    containers: tuple[str, ...]
    reading: Reading


@dataclass(frozen=True, slots=True)
class NodeReading:
    """What one round found on one node."""

    reading: Reading
    pods: tuple[PodReading, ...]


@dataclass(slots=True)
class MetricsFaults:
    """What is wrong with measurements; names are nodes, `*` is all of them."""

    missing: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    absurd: dict[str, float] = field(default_factory=dict)
    """Factors on what is measured."""
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
    """Measures all nodes for ever, and serves what it last saw."""

    def __init__(
        self,
        machinery: Machinery,
        fleet: Fleet,
        mirror: Mirror,
        *,
        pipeline: Pipeline | None = None,
    ) -> None:
        self._m = machinery
        self._fleet = fleet
        self._mirror = mirror
        self.pipeline = pipeline or Pipeline()
        self.faults = MetricsFaults()
        self._seen: dict[str, NodeReading] = {}
        self._last_s: dict[str, float] = {}
        self._watched: set[str] = set()

    def start(self) -> None:
        """Begin with the nodes that exist; `look_for_nodes` takes in later ones."""
        self._look_for_nodes()

    def _look_for_nodes(self) -> None:
        for name in self._fleet.kubelets:
            if name not in self._watched:
                self._watched.add(name)
                share = self._m.dice.share("measure", name)
                first_s = share * self.pipeline.resolution_s
                self._m.agenda.after(first_s, partial(self._measure, name))
        self._m.agenda.after(self.pipeline.resolution_s / 3, self._look_for_nodes)

    def _measure(self, name: str) -> None:
        kubelet = self._fleet.kubelets.get(name)
        if kubelet is None:
            self._watched.discard(name)
            self._last_s.pop(name, None)
            self._seen.pop(name, None)
            return
        self._m.agenda.after(self.pipeline.resolution_s, partial(self._measure, name))
        now_s = self._m.pace.elapsed_s()
        begin_s = self._last_s.get(name)
        self._last_s[name] = now_s
        if begin_s is not None:
            found = self._read(kubelet, begin_s, now_s) if kubelet.alive else None
            lag_s = self._m.dice.between(*self.pipeline.lag_s, "lag", name)
            self._m.agenda.after(lag_s, partial(self._show, name, found))
        kubelet.left.clear()

    def _show(self, name: str, found: NodeReading | None) -> None:
        if self.faults.is_frozen(name):
            return
        if found is None:
            # metrics-server forgets a node that it could not ask.
            self._seen.pop(name, None)
        else:
            self._seen[name] = found

    def _read(self, kubelet: Kubelet, begin_s: float, end_s: float) -> NodeReading:
        span_s = end_s - begin_s
        cpu = kubelet.overhead.cpu(begin_s, end_s, 0.0)
        memory = kubelet.overhead.memory(end_s, 0.0)
        pods = []
        for pod in (*kubelet.pods.values(), *kubelet.left):
            if pod.started_s is None:
                continue
            first = max(begin_s, pod.started_s)
            last = end_s if pod.ended_s is None else min(end_s, pod.ended_s)
            used = pod.load.cpu(first, last, pod.started_s) if last > first else 0.0
            cpu += used * max(0.0, last - first) / span_s
            if pod.ended_s is None:
                held = pod.load.memory(end_s, pod.started_s)
                memory += held
                if pod.started_s <= begin_s or end_s - pod.started_s >= _YOUNGEST_S:
                    pods.append(self._pod_reading(pod, used, held, last - first))
        return NodeReading(self._reading(cpu, memory, span_s), tuple(pods))

    def _pod_reading(self, pod: RunningPod, cpu: float, memory: float, span_s: float) -> PodReading:
        return PodReading(pod.record, pod.containers, self._reading(cpu, memory, span_s))

    def _reading(self, cpu: float, memory: float, span_s: float) -> Reading:
        pace = self._m.pace
        return Reading(cpu, memory, pace.clock.now(), pace.real_s(span_s))

    def is_registered(self) -> bool:
        """Tell whether it is installed."""
        return not self.faults.absent

    def node_metrics(self) -> Iterator[Json]:
        """Return what nodes use."""
        self._check()
        for name, seen in self._seen.items():
            node = self._mirror.node(name)
            if node is None or self.faults.is_missing(name):
                continue
            usage = _usage(seen.reading, self.faults.factor(name))
            metadata = {"name": name, "labels": dict(node.labels)}
            yield {"metadata": metadata, **_stamps(seen.reading), "usage": usage}

    def pod_metrics(self) -> Iterator[Json]:
        """Return what pods use; those that no longer run are left out."""
        self._check()
        for name, seen in self._seen.items():
            if self.faults.is_missing(name):
                continue
            factor = self.faults.factor(name)
            for pod in seen.pods:
                current = self._mirror.pod(pod.record.key)
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
