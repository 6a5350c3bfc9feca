# SPDX-License-Identifier: Apache-2.0
"""The ReplicaSet controller: keeps the desired number of pods.

Follows pkg/controller/replicaset of v1.36. A terminating pod no longer counts, so its
replacement is created at the deletion timestamp, not when the pod is gone. Pods are neither
adopted nor released.
"""

from __future__ import annotations

from typing import Final

from common.kube.resources import PODS, REPLICASETS
from simulator.api import Json, is_ready
from simulator.api.errors import Forbidden, NotFound
from simulator.context import Context
from simulator.controllers.controller import Controller, Key, key_of
from simulator.controllers.deletion_rank import to_delete
from simulator.controllers.owned_pods import (
    controller_of,
    is_active,
    is_terminating,
    new_pod,
    owned,
    pods_of,
    waits_s,
)

BURST: Final = 500
_NAME: Final = "replicaset-controller"


class ReplicaSetController(Controller):
    """Keeps ReplicaSets at their number of replicas."""

    def __init__(self, context: Context) -> None:
        super().__init__(_NAME, REPLICASETS, context)
        self._store.subscribe(PODS, self._on_owned)

    def sync(self, key: Key) -> None:
        """Sync the replicas and the status of one set."""
        namespace, name = key
        replica_set = self._store.find(REPLICASETS, name, namespace)
        if replica_set is None:
            return
        if not is_terminating(replica_set):
            self._manage(replica_set)
        self._report(replica_set)

    def _manage(self, replica_set: Json) -> None:
        active = [pod for pod in pods_of(self._store, replica_set) if is_active(pod)]
        surplus = len(active) - replica_set["spec"]["replicas"]
        if surplus < 0:
            self._create(replica_set, min(-surplus, BURST))
            if -surplus > BURST:
                self._queue.add(key_of(replica_set))
        elif surplus > 0:
            now = self._time_scale.clock.now()
            for pod in to_delete(active, self._related(replica_set), surplus, now):
                self._delete(replica_set, pod)

    def _create(self, replica_set: Json, count: int) -> None:
        pod = new_pod(replica_set["spec"]["template"], replica_set, REPLICASETS)
        pod["metadata"]["generateName"] = f"{replica_set['metadata']['name']}-"
        for _ in range(count):
            try:
                made = self._store.create(PODS, pod)
            except Forbidden as refusal:
                self._record(
                    replica_set, "FailedCreate", f"Error creating: {refusal.message}", warning=True
                )
                return
            self._record(
                replica_set, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}"
            )

    def _delete(self, replica_set: Json, pod: Json) -> None:
        name = pod["metadata"]["name"]
        try:
            self._store.delete(PODS, name, namespace=pod["metadata"]["namespace"])
        except NotFound:
            return
        self._record(replica_set, "SuccessfulDelete", f"Deleted pod: {name}")

    def _related(self, replica_set: Json) -> list[Json]:
        """Return the active pods of all sets of the same workload, which count per node."""
        above = controller_of(replica_set)
        sets = [replica_set]
        if above is not None:
            sets = list(owned(self._store, {"metadata": {"uid": above["uid"]}}, REPLICASETS))
        return [pod for each in sets for pod in pods_of(self._store, each) if is_active(pod)]

    def _report(self, replica_set: Json) -> None:
        namespace, name = key_of(replica_set)
        status = self._status(replica_set)
        if status != replica_set.get("status"):
            self._store.modify(
                REPLICASETS,
                name,
                lambda old: {**old, "status": status},
                namespace=namespace,
                status=True,
            )

    def _status(self, replica_set: Json) -> Json:
        pods = list(pods_of(self._store, replica_set))
        active = [pod for pod in pods if is_active(pod)]
        least_s = self._time_scale.real_s(replica_set["spec"].get("minReadySeconds") or 0)
        now = self._time_scale.clock.now()
        waits = [waits_s(pod, least_s, now) for pod in active]
        soon = [wait for wait in waits if wait]
        if soon:
            self._queue.add_after(key_of(replica_set), min(soon))
        labels = replica_set["spec"]["template"]["metadata"].get("labels") or {}
        counts = {
            "fullyLabeledReplicas": sum(
                labels.items() <= (pod["metadata"].get("labels") or {}).items() for pod in active
            ),
            "readyReplicas": sum(map(is_ready, active)),
            "availableReplicas": sum(wait == 0 for wait in waits),
            "terminatingReplicas": sum(map(is_terminating, pods)),
        }
        return {
            "replicas": len(active),
            **{key: count for key, count in counts.items() if count},
            "observedGeneration": replica_set["metadata"].get("generation", 0),
        }

    def _record(self, about: Json, reason: str, note: str, *, warning: bool = False) -> None:
        action = "Delete" if "Delete" in reason else "Create"
        self._recorder.record(
            about, by=_NAME, reason=reason, note=note, action=action, warning=warning
        )
