# SPDX-License-Identifier: Apache-2.0
"""Nodes, namespaces, leases, priority classes and services."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from common.kube.resources import PRIORITYCLASSES
from common.kube.timestamps import parse_time
from simulator.api import names
from simulator.api.errors import (
    BadRequest,
    Cause,
    forbidden,
    not_allowed,
    required,
    unknown_value,
    wrong,
)
from simulator.api.kind import NAME_FIELDS, Fields, Strategy, keep
from simulator.api.kinds import quantities, shapes
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_SYSTEM_CLASSES: Final = ("system-cluster-critical", "system-node-critical")
_HIGHEST_PRIORITY: Final = 1_000_000_000
_KUBERNETES: Final = "kubernetes"


_NODE_FIELDS: Final[Fields] = {
    "metadata.name": NAME_FIELDS["metadata.name"],
    "spec.unschedulable": lambda node: str(bool(node["spec"].get("unschedulable"))).lower(),
}


class NodeStrategy(Strategy):
    """A node; every new one is tainted until the node controller has seen it ready."""

    standard_finalizers = True
    shape = shapes.Node
    field_message = "field label not supported: {}"
    fields = _NODE_FIELDS

    def default(self, obj: Json) -> None:
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        quantities.tidy(status.get("capacity"), "Node")
        quantities.tidy(status.get("allocatable"), "Node")
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        # plugin/pkg/admission/nodetaint: otherwise pods could be scheduled before it is ready.
        taints = obj["spec"].get("taints") or []
        if not any(_same_taint(taint, _NOT_READY) for taint in taints):
            obj["spec"]["taints"] = [*taints, dict(_NOT_READY)]

    def prepare_update(self, obj: Json, old: Json) -> None:
        super().prepare_update(obj, old)
        for key in ("unschedulable", "taints"):
            if not obj["spec"].get(key, True):
                del obj["spec"][key]

    def validate(self, obj: Json) -> Iterator[Cause]:
        taints = obj["spec"].get("taints") or ()
        for index, taint in enumerate(taints):
            yield from _taint_causes(taint, f"metadata.taints[{index}]")
            if any(_same_taint(taint, other) for other in taints[:index]):
                message = "Duplicate value: taints must be unique by key and effect pair"
                yield Cause("FieldValueDuplicate", message, f"metadata.taints[{index}]")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        before, after = old["spec"].get("providerID"), obj["spec"].get("providerID")
        if before and after != before:
            why = 'node updates may not change providerID except from "" to valid'
            yield not_allowed("spec.providerID", why)


class ServiceStrategy(Strategy):
    """A service: stored so that manifests with one work; it gets no address and routes nothing."""

    returns_deleted = True
    shape = shapes.Service
    field_message = "field label not supported: {}"

    def name_problems(self, name: str) -> Sequence[str]:
        return names.dns_label(name)

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = {"loadBalancer": {}}

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        headless = spec["type"] == "ExternalName" or spec.get("clusterIP") == "None"
        if not spec.get("ports") and not headless:
            yield required("spec.ports")


def _same_taint(one: Json, other: Json) -> bool:
    return bool(one.get("key") == other.get("key") and one.get("effect") == other.get("effect"))


def _taint_causes(taint: Json, at: str) -> Iterator[Cause]:
    for problem in names.label_key(taint.get("key") or ""):
        yield wrong(f"{at}.key", taint.get("key") or "", problem)
    for problem in names.label_value(taint.get("value") or ""):
        yield wrong(f"{at}.value", taint["value"], problem)
    if not taint.get("effect"):
        yield required(f"{at}.effect")
    elif taint["effect"] not in _EFFECTS:
        yield unknown_value(f"{at}.effect", taint["effect"], _EFFECTS)


_NAMESPACE_FIELDS: Final[Fields] = {
    "metadata.name": NAME_FIELDS["metadata.name"],
    "status.phase": lambda each: each.get("status", {}).get("phase", ""),
}


class NamespaceStrategy(Strategy):
    """A namespace; it is removed after the last object in it."""

    shape = shapes.Namespace
    field_message = "field label not supported: {}"
    fields = _NAMESPACE_FIELDS

    def name_problems(self, name: str) -> Sequence[str]:
        return names.dns_label(name)

    def default(self, obj: Json) -> None:
        obj.setdefault("spec", {})
        name = obj["metadata"].get("name")
        if name:
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        self.default(obj)  # again, because a generated name is set by now
        finalizers = obj["spec"].get("finalizers") or []
        if _KUBERNETES not in finalizers:
            obj["spec"]["finalizers"] = [*finalizers, _KUBERNETES]
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: Json, old: Json) -> None:
        super().prepare_update(obj, old)
        keep(obj["spec"], old["spec"], "finalizers")


class LeaseStrategy(Strategy):
    """A lease; the only kind besides events that an update may create."""

    create_on_update = True
    unconditional_update = False
    shape = shapes.Lease

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        for key in ("acquireTime", "renewTime"):
            if spec.get(key) is not None:
                check_micro_time(spec[key], "Lease")

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            yield wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")
        if transitions is not None and transitions < 0:
            yield wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def check_micro_time(given: Any, kind: str) -> None:
    """Reject a time without exactly six fractional digits."""
    text = str(given)
    fraction = text[19:26]
    try:
        if len(fraction) == 7 and fraction[0] == "." and fraction[1:].isdigit():
            parse_time(text)
            return
    except ValueError:
        pass
    message = f'{kind} in version "v1" cannot be handled as a {kind}: parsing time "{text}" as '
    raise BadRequest(f'{message}"2006-01-02T15:04:05.000000Z07:00": cannot parse')


class PriorityClassStrategy(Strategy):
    """A priority class; its value never changes."""

    generation = True
    shape = shapes.PriorityClass

    def default(self, obj: Json) -> None:
        obj.setdefault("value", 0)
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        others = [each for each in registry.list(PRIORITYCLASSES) if each.get("globalDefault")]
        if obj.get("globalDefault") and others:
            name = others[0]["metadata"]["name"]
            why = f"PriorityClass {name} is already marked as default. Only one default can exist"
            raise forbidden(PRIORITYCLASSES, obj["metadata"].get("name", ""), why)

    def validate(self, obj: Json) -> Iterator[Cause]:
        name, value = obj["metadata"].get("name", ""), obj["value"]
        if name in _SYSTEM_CLASSES:
            return
        if name.startswith("system-"):
            why = "priority class names with 'system-' prefix are reserved for system use only. "
            why += f"error: {name} is not a known system priority class"
            yield not_allowed("metadata.name", why)
        if value > _HIGHEST_PRIORITY:
            why = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
            yield not_allowed("value", why)

    def validate_update(self, obj: Json, old: Json) -> Iterable[Cause]:
        for key in ("value", "preemptionPolicy"):
            if obj.get(key) != old.get(key):
                yield wrong(key, obj.get(key), "field is immutable")
