# SPDX-License-Identifier: Apache-2.0
"""The node controllers: unresponsive kubelets, taints from conditions, and pod eviction.

A simplified pkg/controller/nodelifecycle, tainteviction and podgc of v1.36. Kubelets renew no
leases here; the fleet knows which ones are silent, and the grace period is 40 seconds. Node
conditions become taints; NoExecute taints delete the pods that do not tolerate them, at once or
when their toleration expires; pods of a node that no longer exists are removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from common.api.objects import Effect, Taint, Toleration
from common.cluster.tolerations import tolerates
from common.kube.resources import NODES, PODS
from simulator.api import (
    Change,
    DeleteOptions,
    EventType,
    Json,
    SyncQueue,
    condition,
    is_ready,
    timestamp,
    with_condition,
)
from simulator.api.errors import Conflict, NotFound
from simulator.context import Context
from simulator.nodes import node_status, pod_status
from simulator.nodes.fleet import Fleet
from simulator.time_scale import Timer

_NAME: Final = "node-controller"
MONITOR_S: Final = 5.0
GRACE_S: Final = 40.0
QUARANTINE_S: Final = 40.0

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MANAGED: Final = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE})


class NodeLifecycleController:
    """Turns node conditions into taints, and taints into evictions."""

    def __init__(self, context: Context, fleet: Fleet) -> None:
        self._context = context
        self._store = context.store
        self._fleet = fleet
        self._queue: SyncQueue[str] = SyncQueue(_NAME, context.time_scale.clock)
        self._doomed: dict[str, Timer] = {}
        self._store.subscribe(NODES, self._on_change, replay=True)
        self._store.subscribe(PODS, self._on_pod, replay=True)

    async def run(self) -> None:
        """Run forever."""
        self._monitor()
        await self._queue.run(self.sync)

    def work_off(self) -> None:
        """Sync all queued nodes now."""
        self._queue.work_off(self.sync)

    def _monitor(self) -> None:
        for node in self._store.list(NODES):
            name = node["metadata"]["name"]
            silent = self._fleet.silence_s(name) > GRACE_S
            if silent and node_status.ready_status(node) != "Unknown":
                self._lose(name)
        self._context.timers.after(MONITOR_S, self._monitor)

    def _lose(self, name: str) -> None:
        now = self._now()
        self._store.modify(
            NODES, name, lambda old: {**old, "status": node_status.unknown(old, now)}, status=True
        )
        for pod in self._fleet.pods_on(name):
            if is_ready(pod):
                self._write(pod, {**pod, "status": pod_status.not_ready(pod, now)})

    def _on_change(self, change: Change) -> None:
        self._queue.add(change.obj["metadata"]["name"])

    def _on_pod(self, change: Change) -> None:
        node = change.obj["spec"].get("nodeName")
        if node and change.type is not EventType.DELETED and self._is_news(change, node):
            self._queue.add(node)

    def _is_news(self, change: Change, node: str) -> bool:
        """Return whether a pod was assigned to a node that is gone or has NoExecute taints."""
        old = change.old_obj
        if old is not None and old["spec"].get("nodeName") == node:
            return False
        found = self._store.find(NODES, node)
        return found is None or any(_evicts(t) for t in found["spec"].get("taints") or ())

    def sync(self, name: str) -> None:
        """Sync the taints of one node and the eviction of its pods."""
        node = self._store.find(NODES, name)
        if node is None:
            self._context.timers.after(QUARANTINE_S, partial(self._collect, name))
            return
        wanted = self._wanted_taints(node)
        if wanted != (node["spec"].get("taints") or []):
            node = self._store.modify(
                NODES, name, lambda old: {**old, "spec": {**old["spec"], "taints": wanted}}
            )
        evicting = [_taint(t) for t in node["spec"].get("taints") or () if _evicts(t)]
        for pod in self._fleet.pods_on(name) if evicting or self._doomed else ():
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
        """Delete a pod now, later or not, as its tolerations require."""
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
            self._doomed[uid] = self._context.timers.after(patience_s, partial(self._evict, pod))

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
        self._context.recorder.record(
            current,
            by="taint-eviction-controller",
            reason="TaintManagerEviction",
            note=f"Marking for deletion Pod {metadata['namespace']}/{metadata['name']}",
            action="Evict",
        )
        self._delete(current, DeleteOptions(uid=metadata["uid"]))

    def _collect(self, name: str) -> None:
        """Remove the pods of a node that no longer exists."""
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
        return timestamp(self._context.time_scale.clock.now())


def patience(pod: Json, evicting: Iterable[Taint]) -> float | None:
    """Return how long a pod tolerates these taints: None means forever, 0 not at all."""
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
