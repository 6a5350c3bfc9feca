# SPDX-License-Identifier: Apache-2.0
"""The StatefulSet controller: pods with stable names, in order.

Follows pkg/controller/statefulset of v1.36; the order is in `ordinals`. A pod's successor has
its name, so it is created only when the pod is gone. Claims are created from the templates of
the set and stay; nothing provisions them.
"""

from __future__ import annotations

import re
from typing import Final

from common.kube.resources import PODS, PVCS, STATEFULSETS
from simulator.api import (
    CONTROLLER_REVISIONS,
    DeleteOptions,
    Json,
    is_ready,
)
from simulator.api.errors import AlreadyExists, Forbidden, NotFound
from simulator.context import Context
from simulator.controllers.controller import Controller, Key, key_of, template_hash
from simulator.controllers.ordinals import Action, ActionType, DesiredSet, Member, actions
from simulator.controllers.owned_pods import (
    is_over,
    is_terminating,
    new_pod,
    owned,
    owner_reference,
    pods_of,
    waits_s,
)

REVISION_LABEL: Final = "controller-revision-hash"
_NAME: Final = "statefulset-controller"
_ORDINAL: Final = re.compile(r"(.*)-([0-9]+)", re.ASCII)


class StatefulSetController(Controller):
    """Syncs StatefulSets."""

    def __init__(self, context: Context) -> None:
        super().__init__(_NAME, STATEFULSETS, context)
        self._store.subscribe(PODS, self._on_owned)

    def sync(self, key: Key) -> None:
        """Sync one set."""
        namespace, name = key
        stateful_set = self._store.find(STATEFULSETS, name, namespace)
        if stateful_set is None:
            return
        update = self._revision_of(stateful_set)
        current = (stateful_set.get("status") or {}).get("currentRevision") or update
        if not is_terminating(stateful_set):
            desired = _desired(stateful_set, current, update)
            for action in actions(desired, self._members(stateful_set)):
                self._do(stateful_set, action)
        self._report(stateful_set, current, update)

    def _members(self, stateful_set: Json) -> dict[int, Member]:
        found = {}
        for pod in pods_of(self._store, stateful_set):
            ordinal = ordinal_of(pod)
            if ordinal is None:
                continue
            wait = None if is_terminating(pod) else self._wait_s(stateful_set, pod)
            if wait:
                self._queue.add_after(key_of(stateful_set), wait)
            found[ordinal] = Member(
                revision=(pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""),
                available=wait == 0.0,
                terminating=is_terminating(pod),
                over=is_over(pod),
            )
        return found

    def _wait_s(self, stateful_set: Json, pod: Json) -> float | None:
        least_s = self._time_scale.real_s(stateful_set["spec"].get("minReadySeconds") or 0)
        return waits_s(pod, least_s, self._time_scale.clock.now())

    def _revision_of(self, stateful_set: Json) -> str:
        """Return the name of the revision of a set, which is stored as a ControllerRevision."""
        namespace, name = key_of(stateful_set)
        template = stateful_set["spec"]["template"]
        revision = f"{name}-{template_hash(template)}"
        if self._store.find(CONTROLLER_REVISIONS, revision, namespace) is None:
            known = list(owned(self._store, stateful_set, CONTROLLER_REVISIONS))
            self._store.create(
                CONTROLLER_REVISIONS,
                {
                    "metadata": {
                        "name": revision,
                        "namespace": namespace,
                        "labels": dict(template["metadata"].get("labels") or {}),
                        "ownerReferences": [owner_reference(stateful_set, STATEFULSETS)],
                    },
                    "revision": max((each["revision"] for each in known), default=0) + 1,
                    "data": {"spec": {"template": template}},
                },
            )
        return revision

    def _do(self, stateful_set: Json, action: Action) -> None:
        namespace, name = key_of(stateful_set)
        pod_name = f"{name}-{action.ordinal}"
        if action.type is ActionType.DELETE:
            self._delete(stateful_set, pod_name)
            return
        revision = self._store.get(CONTROLLER_REVISIONS, action.revision, namespace)
        template = revision["data"]["spec"]["template"]
        pod = _identified(
            new_pod(template, stateful_set, STATEFULSETS), stateful_set, action, pod_name
        )
        self._claim(stateful_set, pod)
        try:
            self._store.create(PODS, pod)
        except (AlreadyExists, Forbidden) as refusal:
            message = f"create Pod {pod_name} in StatefulSet {name} failed error: {refusal.message}"
            self._record(stateful_set, "FailedCreate", message, warning=True)
            self._queue.add_after(key_of(stateful_set), self._time_scale.real_s(1.0))
            return
        message = f"create Pod {pod_name} in StatefulSet {name} successful"
        self._record(stateful_set, "SuccessfulCreate", message)

    def _delete(self, stateful_set: Json, pod_name: str) -> None:
        namespace, name = key_of(stateful_set)
        try:
            self._store.delete(PODS, pod_name, namespace=namespace, options=DeleteOptions())
        except NotFound:
            return
        message = f"delete Pod {pod_name} in StatefulSet {name} successful"
        self._record(stateful_set, "SuccessfulDelete", message)

    def _claim(self, stateful_set: Json, pod: Json) -> None:
        """Create the missing claims of a pod, and mount them."""
        templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
        volumes = list(pod["spec"].get("volumes") or ())
        for template in templates:
            base = template["metadata"]["name"]
            claim = f"{base}-{pod['metadata']['name']}"
            namespace = pod["metadata"]["namespace"]
            if self._store.find(PVCS, claim, namespace) is None:
                labels = stateful_set["spec"]["selector"].get("matchLabels") or {}
                metadata = {"name": claim, "namespace": namespace, "labels": dict(labels)}
                self._store.create(PVCS, {"metadata": metadata, "spec": template["spec"]})
            volumes = [each for each in volumes if each["name"] != base]
            volumes.append({"name": base, "persistentVolumeClaim": {"claimName": claim}})
        if volumes:
            pod["spec"] = {**pod["spec"], "volumes": volumes}

    def _report(self, stateful_set: Json, current: str, update: str) -> None:
        namespace, name = key_of(stateful_set)
        status = self._status(stateful_set, current, update)
        if status != stateful_set.get("status"):
            self._store.modify(
                STATEFULSETS,
                name,
                lambda old: {**old, "status": status},
                namespace=namespace,
                status=True,
            )

    def _status(self, stateful_set: Json, current: str, update: str) -> Json:
        pods = list(pods_of(self._store, stateful_set))
        living = [pod for pod in pods if not is_terminating(pod)]
        revisions = [(pod["metadata"].get("labels") or {}).get(REVISION_LABEL) for pod in living]
        ready = [p for p in pods if p.get("status", {}).get("phase") == "Running" and is_ready(p)]
        counts = {
            "readyReplicas": len(ready),
            "currentReplicas": revisions.count(current),
            "updatedReplicas": revisions.count(update),
        }
        wanted = stateful_set["spec"]["replicas"]
        if counts["updatedReplicas"] == len(ready) == len(pods) == wanted:
            current, counts["currentReplicas"] = update, counts["updatedReplicas"]
        return {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "replicas": len(pods),
            **{key: count for key, count in counts.items() if count},
            "availableReplicas": sum(self._wait_s(stateful_set, pod) == 0.0 for pod in ready),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        }

    def _record(self, about: Json, reason: str, note: str, *, warning: bool = False) -> None:
        action = "Delete" if "Delete" in reason else "Create"
        self._recorder.record(
            about, by=_NAME, reason=reason, note=note, action=action, warning=warning
        )


def ordinal_of(pod: Json) -> int | None:
    """Return the number at the end of a pod's name."""
    match = _ORDINAL.fullmatch(pod["metadata"]["name"])
    return int(match[2]) if match else None


def _desired(stateful_set: Json, current: str, update: str) -> DesiredSet:
    spec = stateful_set["spec"]
    strategy = spec.get("updateStrategy") or {}
    return DesiredSet(
        replicas=spec["replicas"],
        current=current,
        update=update,
        start=(spec.get("ordinals") or {}).get("start", 0),
        partition=(strategy.get("rollingUpdate") or {}).get("partition") or 0,
        parallel=spec.get("podManagementPolicy") == "Parallel",
        on_delete=strategy.get("type") == "OnDelete",
    )


def _identified(pod: Json, stateful_set: Json, action: Action, name: str) -> Json:
    labels = {
        **(pod["metadata"].get("labels") or {}),
        REVISION_LABEL: action.revision,
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(action.ordinal),
    }
    spec = {**pod["spec"], "hostname": name}
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    return {**pod, "metadata": {**pod["metadata"], "name": name, "labels": labels}, "spec": spec}
