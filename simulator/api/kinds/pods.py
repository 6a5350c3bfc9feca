# SPDX-License-Identifier: Apache-2.0
"""Pods: their defaults, and what may change after creation.

Follows pkg/registry/core/pod/strategy.go and ValidatePodUpdate
(pkg/apis/core/validation/validation.go) of v1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from simulator.api.errors import Cause, not_allowed, wrong
from simulator.api.kind import NAME_FIELDS, Fields, Strategy, keep
from simulator.api.kinds import shapes, templates
from simulator.api.kinds.pod_admission import (
    assign_priority,
    merge_label_keys,
    tolerate_lost_nodes,
    topology_labels,
)
from simulator.api.kinds.pod_resources import default_requests, quality_of_service
from simulator.api.metadata import timestamp
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_UNTOUCHED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)
_UNTIMED: Final[Json] = {"lastProbeTime": None, "lastTransitionTime": None}
_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"


_FIELDS: Final[Fields] = {
    **NAME_FIELDS,
    "spec.nodeName": lambda pod: pod["spec"].get("nodeName", ""),
    "spec.restartPolicy": lambda pod: pod["spec"].get("restartPolicy", ""),
    "spec.schedulerName": lambda pod: pod["spec"].get("schedulerName", ""),
    "spec.serviceAccountName": lambda pod: pod["spec"].get("serviceAccountName", ""),
    "spec.hostNetwork": lambda pod: str(bool(pod["spec"].get("hostNetwork"))).lower(),
    "status.phase": lambda pod: pod.get("status", {}).get("phase", ""),
    "status.podIP": lambda pod: pod.get("status", {}).get("podIP", ""),
    "status.nominatedNodeName": lambda pod: pod.get("status", {}).get("nominatedNodeName", ""),
}


class PodStrategy(Strategy):
    """A pod."""

    generation = True
    graceful = True
    returns_deleted = True
    standard_finalizers = True
    shape = shapes.Pod
    field_message = "field label not supported: {}"
    fields = _FIELDS

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        templates.default_spec(spec, "Pod")
        spec.setdefault("enableServiceLinks", True)
        default_requests(spec)
        if spec.get("hostNetwork"):
            for container in templates.containers(spec):
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port.get("containerPort"))

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        spec = obj["spec"]
        assign_priority(obj, registry)
        tolerate_lost_nodes(spec)
        here = topology_labels(registry, spec.get("nodeName"))
        if here:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **here}
        merge_label_keys(spec, obj["metadata"].get("labels") or {})
        obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
        if spec.get("schedulingGates"):
            now = timestamp(registry.clock.now())
            gate = condition("PodScheduled", "False", now, reason="SchedulingGated", message=_GATED)
            obj["status"]["conditions"] = [gate]

    def prepare_update(self, obj: Json, old: Json) -> None:
        spec = obj["spec"]
        for key in ("priority", "preemptionPolicy"):
            if spec.get(key) is None:
                keep(spec, old["spec"], key)
        tolerate_lost_nodes(spec)
        super().prepare_update(obj, old)

    def prepare_status(self, obj: Json, old: Json) -> None:
        super().prepare_status(obj, old)
        # Old kubelets corrupted owner references here; the real server protects them too.
        keep(obj["metadata"], old["metadata"], "ownerReferences")
        status = obj.setdefault("status", {})
        if not status.get("qosClass"):
            keep(status, old.get("status", {}), "qosClass")
        if status.get("conditions"):
            status["conditions"] = [{**_UNTIMED, **each} for each in status["conditions"]]

    def validate(self, obj: Json) -> Iterable[Cause]:
        return templates.spec_causes(obj["spec"], "spec")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        new_spec, old_spec = obj["spec"], old["spec"]
        if new_spec == old_spec:
            return
        yield from self.validate(obj)
        yield from _toleration_changes(new_spec, old_spec)
        yield from _gate_changes(new_spec, old_spec)
        yield from _deadline_changes(new_spec, old_spec)
        gated = bool(old_spec.get("schedulingGates"))
        if _fixed_part(new_spec, gated=gated) != _fixed_part(old_spec, gated=gated):
            yield not_allowed("spec", _UNTOUCHED)


def condition(type_: str, status: str, now: str, *, reason: str = "", message: str = "") -> Json:
    """Return a pod condition."""
    return {
        "type": type_,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": now,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def with_condition(pod: Json, new: Json) -> Json:
    """Return the pod with a condition; its transition time moves only with its status."""
    status = pod.get("status", {})
    conditions: list[Json] = list(status.get("conditions") or ())
    for index, old in enumerate(conditions):
        if old["type"] == new["type"]:
            if old.get("status") == new["status"]:
                new = {**new, "lastTransitionTime": old.get("lastTransitionTime")}
            conditions[index] = new
            break
    else:
        conditions.append(new)
    return {**pod, "status": {**status, "conditions": conditions}}


def is_ready(pod: Json) -> bool:
    """Return whether the Ready condition of a pod is true."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _toleration_changes(new: Json, old: Json) -> Iterator[Cause]:
    kept = new.get("tolerations") or []
    if any(each not in kept for each in old.get("tolerations") or ()):
        why = "existing toleration can not be modified except its tolerationSeconds"
        yield not_allowed("spec.tolerations", why)


def _gate_changes(new: Json, old: Json) -> Iterator[Cause]:
    before = [gate["name"] for gate in old.get("schedulingGates") or ()]
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate["name"] not in before:
            why = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield not_allowed(f"spec.schedulingGates[{index}]", why)


def _deadline_changes(new: Json, old: Json) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if before is not None and after is None:
        yield wrong(path, None, "must not update from a positive integer to nil value")
    elif before is not None and after > before:
        yield wrong(path, after, "must be less than or equal to previous value")


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    """Return the immutable part of a pod spec."""
    free = {"tolerations", "schedulingGates", "activeDeadlineSeconds"}
    if gated:
        free.add("nodeSelector")
    fixed = {key: value for key, value in spec.items() if key not in free}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            fixed[key] = [{**container, "image": ""} for container in spec[key]]
    return fixed
