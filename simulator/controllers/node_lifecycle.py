"""The node controllers: silent kubelets, taints from conditions, and what becomes of pods.

A simplified pkg/controller/nodelifecycle, tainteviction and podgc of v1.36. Kubelets renew no
leases here; whether one is silent is asked of it directly, and forty seconds count as long.
A node's condition becomes taints, taints that evict delete the pods that do not tolerate
them, at once or when their toleration runs out, and pods of a node that no longer exists are
removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from common.cluster.tolerations import Effect, Taint, Toleration, tolerates
from common.kube.resources import NODES, PODS
from simulator.api import (
    Change,
    DeleteOptions,
    EventType,
    Json,
    WorkQueue,
    condition,
    is_ready,
    timestamp,
    with_condition,
)
from simulator.api.errors import Conflict, NotFound
from simulator.machinery import Machinery
from simulator.nodes import node_status, pod_status
from simulator.pace import Appointment

_NAME: Final = "node-controller"
MONITOR_S: Final = 5.0
GRACE_S: Final = 40.0
QUARANTINE_S: Final = 40.0

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MANAGED: Final = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE})


class Heartbeats(Protocol):
    """Knows which kubelets still speak."""

    def silence_s(self, node: str) -> float:
        """Return for how long a kubelet has been silent, in simulated seconds."""
        ...


class NodeLifecycleController:
    """Turns what is known about nodes into taints, and taints into evictions."""

    def __init__(
        self,
        machinery: Machinery,
        heartbeats: Heartbeats,
        *,
        on_node: Callable[[str], Iterable[Json]] | None = None,
    ) -> None:
        self._m = machinery
        self._store = machinery.store
        self._heartbeats = heartbeats
        self._on_node = on_node or self._scan
        self._queue: WorkQueue[str] = WorkQueue(_NAME, machinery.pace.clock)
        self._doomed: dict[str, Appointment] = {}
        self._store.subscribe(NODES, self._on_change, replay=True)
        self._store.subscribe(PODS, self._on_pod, replay=True)

    async def run(self) -> None:
        """Look after nodes for ever."""
        self._monitor()
        await self._queue.run(self.sync)

    def work_off(self) -> None:
        """Do everything that is to be done now."""
        self._queue.work_off(self.sync)

    def _monitor(self) -> None:
        for node in self._store.list(NODES):
            name = node["metadata"]["name"]
            silent = self._heartbeats.silence_s(name) > GRACE_S
            if silent and node_status.ready_status(node) != "Unknown":
                self._lose(name)
        self._m.agenda.after(MONITOR_S, self._monitor)

    def _lose(self, name: str) -> None:
        now = self._now()
        self._store.modify(
            NODES, name, lambda old: {**old, "status": node_status.unknown(old, now)}, status=True
        )
        for pod in tuple(self._on_node(name)):
            if is_ready(pod):
                self._write(pod, {**pod, "status": pod_status.not_ready(pod, now)})

    def _on_change(self, change: Change) -> None:
        self._queue.add(change.obj["metadata"]["name"])

    def _on_pod(self, change: Change) -> None:
        node = change.obj["spec"].get("nodeName")
        if node and change.type is not EventType.DELETED and self._is_news(change, node):
            self._queue.add(node)

    def _is_news(self, change: Change, node: str) -> bool:
        """Tell whether a pod came to a node that is gone or evicts."""
        old = change.old_obj
        if old is not None and old["spec"].get("nodeName") == node:
            return False
        found = self._store.find(NODES, node)
        return found is None or any(_evicts(t) for t in found["spec"].get("taints") or ())

    def sync(self, name: str) -> None:
        """Bring the taints of one node, and its pods' fate, up to date."""
        node = self._store.find(NODES, name)
        if node is None:
            self._m.agenda.after(QUARANTINE_S, partial(self._collect, name))
            return
        wanted = self._wanted_taints(node)
        if wanted != (node["spec"].get("taints") or []):
            node = self._store.modify(
                NODES, name, lambda old: {**old, "spec": {**old["spec"], "taints": wanted}}
            )
        evicting = [_taint(t) for t in node["spec"].get("taints") or () if _evicts(t)]
        for pod in tuple(self._on_node(name)) if evicting or self._doomed else ():
            self._judge(pod, evicting)

    def _wanted_taints(self, node: Json) -> list[Json]:
        keys = {"True": "", "False": NOT_READY, "Unknown": UNREACHABLE}
        key = keys[node_status.ready_status(node)]
        fresh = not (node.get("status") or {}).get("conditions")
        wanted = [] if fresh or not key else [(key, "NoSchedule"), (key, "NoExecute")]
        if fresh:
            wanted = [(NOT_READY, "NoSchedule")]
        if node["spec"].get("unschedulable"):
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        before = node["spec"].get("taints") or []
        kept = [
            taint
            for taint in before
            if taint["key"] not in _MANAGED or (taint["key"], taint["effect"]) in wanted
        ]
        present = {(taint["key"], taint["effect"]) for taint in kept}
        new = [
            {"key": key, "effect": effect, "timeAdded": self._now()}
            for key, effect in wanted
            if (key, effect) not in present
        ]
        return kept + new

    def _judge(self, pod: Json, evicting: list[Taint]) -> None:
        """Delete a pod, now or later, or let it stay."""
        uid = pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            return
        patience_s = patience(pod, evicting)
        if patience_s is None:
            doomed = self._doomed.pop(uid, None)
            if doomed is not None:
                doomed.cancel()
        elif patience_s <= 0:
            self._evict(pod)
        elif uid not in self._doomed:
            self._doomed[uid] = self._m.agenda.after(patience_s, partial(self._evict, pod))

    def _evict(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self._doomed.pop(metadata["uid"], None)
        current = self._store.find(PODS, metadata["name"], metadata["namespace"])
        if current is None or current["metadata"]["uid"] != metadata["uid"]:
            return
        target = condition(
            "DisruptionTarget",
            "True",
            self._now(),
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
        )
        self._write(current, with_condition(current, target))
        self._m.recorder.tell(
            current,
            by="taint-eviction-controller",
            reason="TaintManagerEviction",
            note=f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}",
            action="Evict",
        )
        self._delete(current, DeleteOptions(uid=metadata["uid"]))

    def _collect(self, name: str) -> None:
        """Remove the pods of a node that does not exist any more."""
        if self._store.find(NODES, name) is None:
            for pod in tuple(self._scan(name)):
                self._delete(pod, DeleteOptions(grace_s=0, uid=pod["metadata"]["uid"]))

    def _delete(self, pod: Json, options: DeleteOptions) -> None:
        metadata = pod["metadata"]
        try:
            self._store.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], options=options
            )
        except (NotFound, Conflict):
            return

    def _write(self, pod: Json, changed: Json) -> None:
        metadata = pod["metadata"]
        self._store.modify(
            PODS, metadata["name"], lambda _: changed, namespace=metadata["namespace"], status=True
        )

    def _scan(self, node: str) -> Iterable[Json]:
        return [pod for pod in self._store.list(PODS) if pod["spec"].get("nodeName") == node]

    def _now(self) -> str:
        return timestamp(self._m.pace.clock.now())


def patience(pod: Json, evicting: Iterable[Taint]) -> float | None:
    """Return how long a pod endures these taints: None for ever, 0 not at all."""
    given = pod["spec"].get("tolerations") or ()
    tolerations = [msgspec.convert(each, Toleration) for each in given]
    shortest: float | None = None
    for taint in evicting:
        matching = [each for each in tolerations if tolerates(each, taint)]
        if not matching:
            return 0.0
        limits = [
            each.toleration_seconds for each in matching if each.toleration_seconds is not None
        ]
        if limits:
            least = max(0.0, float(min(limits)))
            shortest = least if shortest is None else min(shortest, least)
    return shortest


def _evicts(taint: Json) -> bool:
    return taint.get("effect") == Effect.NO_EXECUTE


def _taint(taint: Json) -> Taint:
    return Taint(taint["key"], taint.get("value") or "", taint["effect"])
