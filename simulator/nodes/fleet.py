# SPDX-License-Identifier: Apache-2.0
"""All kubelets: they admit the pods of their nodes, start them and stop them.

A pod starts after a random delay, and stops a random time after its deletion, at the latest at
the end of its grace period. A dead kubelet does nothing, and its pods are not measured; one that
comes back continues from the state of the API.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from common.cluster.records import NodeName, PodRecord, PodUid
from common.config.durations import Duration
from common.kube.resources import NODES, PODS
from common.kube.timestamps import parse_time
from simulator.api import Change, DeleteOptions, EventType, Json, SyncQueue, timestamp
from simulator.api.errors import Conflict, NotFound
from simulator.build import OVERHEAD_CPU, OVERHEAD_MEMORY, STOP_AFTER, USAGE_CPU, USAGE_MEMORY
from simulator.cache import ClusterCache
from simulator.context import Context
from simulator.nodes import node_status, pod_status
from simulator.nodes.admission import Rejection, rejection
from simulator.nodes.kubelet import Kubelet, RunningPod
from simulator.nodes.load import load_of

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_NAME: Final = "kubelet"
_REFUSED: Final = Rejection("UnexpectedAdmissionError", "Pod was rejected: a fault was injected")
_PULL_AGAIN_S: Final = 5.0
_OVERHEAD: Final = {USAGE_CPU: "100m", USAGE_MEMORY: "512Mi"}


@dataclass(slots=True)
class Delays:
    """How long starting and stopping takes, in simulated seconds, as ranges."""

    start_s: tuple[float, float] = (1.0, 4.0)
    stop_s: tuple[float, float] = (0.2, 1.0)
    factor: float = 1.0
    """Multiplies all start times."""
    slow_nodes: dict[str, float] = field(default_factory=dict)
    """Multiplies the start times on a node."""


@dataclass(slots=True)
class Registry:
    """Which images cannot be pulled from where; `*` is every node, or every image."""

    missing: set[tuple[str, str]] = field(default_factory=set)

    def lacks(self, node: str, pod: Json) -> set[str]:
        """Return the images of a pod that this node cannot pull."""
        images = {each.get("image", "") for each in pod["spec"]["containers"]}
        wild = {(node, "*"), ("*", "*")} & self.missing
        return {i for i in images if wild or {(node, i), ("*", i)} & self.missing}


class Fleet:
    """The kubelets of a cluster."""

    def __init__(
        self, context: Context, cache: ClusterCache, *, delays: Delays | None = None
    ) -> None:
        self._context = context
        self._store = context.store
        self._cache = cache
        self._queue: SyncQueue[str] = SyncQueue(_NAME, context.time_scale.clock)
        self._addresses = itertools.count(1)
        self.delays = delays or Delays()
        self.registry = Registry()
        self.kubelets: dict[str, Kubelet] = {}
        self._store.subscribe(NODES, self._on_node, replay=True)
        self._store.subscribe(PODS, self._on_pod, replay=True)

    async def run(self) -> None:
        """Run pods forever."""
        await self._queue.run(self.sync)

    def work_off(self) -> None:
        """Sync everything that has been assigned by now."""
        self._queue.work_off(self.sync)

    def kill(self, node: str) -> None:
        """Stop a kubelet with its machine."""
        kubelet = self.kubelets[node]
        kubelet.alive = False
        kubelet.silent_since_s = self._context.time_scale.elapsed_s()
        for pod in kubelet.pods.values():
            pod.reschedule(None)

    def unready(self, node: str, why: str = "container runtime is down") -> None:
        """Make a kubelet report NotReady."""
        self.kubelets[node].ready = False
        self._post(node, ready=False, why=why)

    def revive(self, node: str) -> None:
        """Start a kubelet again; it continues from the state of the API."""
        kubelet = self.kubelets[node]
        kubelet.alive = kubelet.ready = True
        kubelet.refusing = False
        self._post(node)
        for pod in tuple(kubelet.pods.values()):
            pod.stop_at_s = None
            self._resume(pod)
        for record in self._assigned(node):
            self._queue.add(record.key)

    def silence_s(self, node: str) -> float:
        """Return how long a kubelet has been silent, in simulated seconds."""
        kubelet = self.kubelets.get(node)
        if kubelet is None or kubelet.alive:
            return 0.0
        return self._context.time_scale.elapsed_s() - kubelet.silent_since_s

    def pods_on(self, node: str) -> list[Json]:
        """Return the pods assigned to a node."""
        found = [self._store.find(PODS, r.name, r.namespace) for r in self._assigned(node)]
        return [pod for pod in found if pod is not None]

    def _assigned(self, node: str) -> list[PodRecord]:
        view = self._cache.snapshot().nodes.get(NodeName(node))
        return list(view.pods.values()) if view is not None else []

    def _on_node(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.type is EventType.DELETED:
            gone = self.kubelets.pop(name, None)
            for pod in gone.pods.values() if gone is not None else ():
                pod.reschedule(None)
        elif name not in self.kubelets:
            annotations = change.obj["metadata"].get("annotations") or {}
            overhead = {
                USAGE_CPU: annotations.get(OVERHEAD_CPU, _OVERHEAD[USAGE_CPU]),
                USAGE_MEMORY: annotations.get(OVERHEAD_MEMORY, _OVERHEAD[USAGE_MEMORY]),
            }
            load = load_of(name, overhead, self._context.rng)
            self.kubelets[name] = Kubelet(name, self._address("10.0"), load)
            self._queue.add(f"/{name}")

    def _on_pod(self, change: Change) -> None:
        node = change.obj["spec"].get("nodeName")
        if not node:
            return
        metadata = change.obj["metadata"]
        if change.type is EventType.DELETED:
            kubelet = self.kubelets.get(node)
            if kubelet is not None:
                kubelet.drop(PodUid(metadata["uid"]), self._context.time_scale.elapsed_s())
        else:
            self._queue.add(f"{metadata['namespace']}/{metadata['name']}")

    def sync(self, key: str) -> None:
        """Sync a pod; a key without a namespace is a new node."""
        namespace, _, name = key.partition("/")
        if not namespace:
            self._post(name)
            for record in self._assigned(name):
                self._queue.add(record.key)
            return
        pod = self._store.find(PODS, name, namespace)
        kubelet = self.kubelets.get(pod["spec"].get("nodeName", "")) if pod is not None else None
        if pod is None or kubelet is None or not kubelet.alive:
            return
        uid = PodUid(pod["metadata"]["uid"])
        held = kubelet.pods.get(uid)
        if "deletionTimestamp" in pod["metadata"]:
            self._stop(kubelet, pod, held)
        elif held is None and uid not in kubelet.rejected and not is_over(pod):
            self._admit(kubelet, pod)

    def _post(self, node: str, *, ready: bool = True, why: str = "") -> None:
        kubelet = self.kubelets.get(node)
        if kubelet is None or self._store.find(NODES, node) is None:
            return
        now, address = timestamp(self._context.time_scale.clock.now()), kubelet.address
        self._store.modify(
            NODES,
            node,
            lambda old: {
                **old,
                "status": node_status.posted(old, now, address=address, ready=ready, why=why),
            },
            status=True,
        )

    def _admit(self, kubelet: Kubelet, pod: Json) -> None:
        key = _key(pod)
        record, node = self._cache.pod(key), self._cache.node(kubelet.node)
        if record is None or node is None:
            return
        others = [held.record for held in kubelet.pods.values() if not held.record.finished]
        refused = _REFUSED if kubelet.refusing else rejection(record, node, others)
        if refused is not None:
            # Not at once: its controller and the scheduler would spin.
            kubelet.rejected.add(record.uid)
            after_s = self._context.rng.between(*self.delays.stop_s, "reject", record.uid)
            self._context.timers.after(after_s, partial(self._reject, pod, refused))
            return
        annotations = pod["metadata"].get("annotations") or {}
        names = tuple(each["name"] for each in pod["spec"]["containers"])
        held = RunningPod(record, load_of(key, annotations, self._context.rng), names)
        kubelet.pods[record.uid] = held
        self._write(pod, lambda old, now: pod_status.preparing(old, now, kubelet.address))
        low, high = self.delays.start_s
        delay_s = self._context.rng.between(low, high, "start", key, record.uid)
        delay_s *= self.delays.factor * self.delays.slow_nodes.get(kubelet.node, 1.0)
        held.reschedule(
            self._context.timers.after(delay_s, partial(self._start, kubelet, pod, held))
        )

    def _reject(self, pod: Json, why: Rejection) -> None:
        self._write(pod, lambda old, now: pod_status.rejected(old, why, now))
        self._record(pod, why.reason, why.message, "Reject", warning=True)

    def _start(self, kubelet: Kubelet, pod: Json, held: RunningPod) -> None:
        if lacking := self.registry.lacks(kubelet.node, pod):
            self._write(pod, lambda old, _: pod_status.unpulled(old, lacking))
            again = partial(self._start, kubelet, pod, held)
            held.reschedule(self._context.timers.after(_PULL_AGAIN_S, again))
            return
        held.started_s = self._context.time_scale.elapsed_s()
        address = self._address("10.64")
        self._write(pod, lambda old, now: pod_status.running(old, now, address))
        self._record(pod, "Started", f"Started container {held.containers[0]}", "Start")

    def _stop(self, kubelet: Kubelet, pod: Json, held: RunningPod | None) -> None:
        if held is None:
            self._remove(pod, killed=False)
            return
        grace_s = self._grace_left_s(pod)
        wanted_s = self._stop_time_s(pod) if held.started_s is not None else 0.0
        now_s = self._context.time_scale.elapsed_s()
        due_s = now_s + min(wanted_s, grace_s)
        if held.stop_at_s is None:
            self._record(pod, "Killing", f"Stopping container {held.containers[0]}", "Stop")
        elif due_s >= held.stop_at_s:
            # Another change of a pod that is terminating already.
            return
        held.stop_at_s = due_s
        step = partial(self._remove, pod, killed=wanted_s > grace_s)
        held.reschedule(self._context.timers.after(due_s - now_s, step))

    def _grace_left_s(self, pod: Json) -> float:
        """Return the rest of the grace period, in simulated seconds."""
        metadata = pod["metadata"]
        period_s = metadata.get("deletionGracePeriodSeconds") or 0
        told = parse_time(metadata["deletionTimestamp"]) - period_s
        # The timestamp has whole seconds: never count more than the period itself.
        since_s = (
            max(0.0, self._context.time_scale.clock.now() - told - 1.0)
            * self._context.time_scale.speed
        )
        return float(max(0.0, period_s - since_s))

    def _stop_time_s(self, pod: Json) -> float:
        text = (pod["metadata"].get("annotations") or {}).get(STOP_AFTER)
        if text is not None:
            try:
                return Duration(text).seconds
            except ValueError as error:
                log.warning("stop time ignored", pod=_key(pod), error=str(error))
        return self._context.rng.between(
            *self.delays.stop_s, "stop", _key(pod), pod["metadata"]["uid"]
        )

    def _remove(self, pod: Json, *, killed: bool) -> None:
        """Write the last status and delete the pod from the API."""
        metadata = pod["metadata"]
        self._write(pod, lambda old, now: pod_status.ended(old, now, killed=killed))
        options = DeleteOptions(grace_s=0, uid=metadata["uid"])
        try:
            self._store.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], options=options
            )
        except (NotFound, Conflict):
            return

    def _resume(self, held: RunningPod) -> None:
        pod = self._store.find(PODS, held.record.name, held.record.namespace)
        if pod is None or pod["metadata"]["uid"] != held.record.uid:
            return
        if held.started_s is None:
            kubelet = self.kubelets[held.record.node]
            step = partial(self._start, kubelet, pod, held)
            held.reschedule(self._context.timers.after(self.delays.start_s[1], step))
        else:
            self._write(pod, pod_status.ready_again)

    def _write(self, pod: Json, change: Callable[[Json, str], Json]) -> None:
        """Change the status of a pod, if it is still the same pod."""
        metadata, now = pod["metadata"], timestamp(self._context.time_scale.clock.now())
        current = self._store.find(PODS, metadata["name"], metadata["namespace"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return
        self._store.modify(
            PODS,
            metadata["name"],
            lambda old: {**old, "status": change(old, now)},
            namespace=metadata["namespace"],
            status=True,
        )

    def _record(
        self, about: Json, reason: str, note: str, action: str, *, warning: bool = False
    ) -> None:
        self._context.recorder.record(
            about, by=_NAME, reason=reason, note=note, action=action, warning=warning
        )

    def _address(self, prefix: str) -> str:
        high, low = divmod(next(self._addresses) % 65_536, 256)
        return f"{prefix}.{high}.{low}"


def is_over(pod: Json) -> bool:
    """Return whether a pod will never run again."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
