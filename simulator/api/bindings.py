# SPDX-License-Identifier: Apache-2.0
"""The `binding` subresource: a pod gets its node, once.

Follows BindingREST (pkg/registry/core/pod/storage/storage.go) of v1.36.
"""

from __future__ import annotations

from typing import Final

from common.kube.resources import PODS, Resource
from simulator.api.errors import BadRequest, Conflict, InternalError, conflict
from simulator.api.kinds.pod_admission import topology_labels
from simulator.api.kinds.pods import condition, with_condition
from simulator.api.metadata import timestamp
from simulator.api.objects import storage_conflict
from simulator.api.registry import Registry
from simulator.api.storage import Entry, Json

BINDINGS: Final = Resource("", "v1", "pods/binding", "Binding", True)


def bind(
    registry: Registry, binding: Json, name: str, namespace: str | None, *, dry_run: bool = False
) -> Json:
    """Assign a pod to the node that a Binding names; return the pod."""
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if metadata.get("name") != name:
        raise BadRequest("name in URL does not match name in Binding object")
    _check_target(target)
    kind = registry.kind(PODS)
    old = registry.entry(kind, name, namespace)
    registry.check_uid(kind, metadata.get("uid"), old)
    version = metadata.get("resourceVersion")
    if version and version != str(old.version):
        why = f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: "
        raise storage_conflict(kind, old, f"{why}{old.version}")
    _check_unbound(old)
    labels = {**(metadata.get("labels") or {}), **topology_labels(registry, target["name"])}
    pod = _bound(old.obj, target["name"], {**metadata, "labels": labels}, registry)
    return pod if dry_run else registry.put(kind, old.key, pod).obj


def _check_target(target: Json) -> None:
    if target.get("kind") not in (None, "", "Node"):
        kind = target["kind"]
        message = f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        raise InternalError(message)
    if not target.get("name"):
        raise InternalError("target.name: Required value")


def _check_unbound(old: Entry) -> None:
    pod, name = old.obj, old.obj["metadata"]["name"]
    if "deletionTimestamp" in pod["metadata"]:
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        node = pod["spec"]["nodeName"]
        raise _refused(name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")


def _refused(name: str, why: str) -> Conflict:
    return conflict(BINDINGS, name, why)


def _bound(pod: Json, node: str, binding: Json, registry: Registry) -> Json:
    metadata = dict(pod["metadata"])
    for key in ("annotations", "labels"):
        if binding.get(key):
            metadata[key] = {**(metadata.get(key) or {}), **binding[key]}
    status = {k: v for k, v in pod.get("status", {}).items() if k != "nominatedNodeName"}
    bound = {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node},
        "status": status,
    }
    now = timestamp(registry.clock.now())
    return with_condition(bound, condition("PodScheduled", "True", now))
