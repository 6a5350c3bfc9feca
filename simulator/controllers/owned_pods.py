# SPDX-License-Identifier: Apache-2.0
"""Pods of controllers: their owner, their state, and how they are created."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.kube.resources import PODS, Resource
from common.kube.timestamps import parse_time
from simulator.api import Json, Store, is_ready

_OVER: Final = ("Succeeded", "Failed")


def controller_of(obj: Json) -> Json | None:
    """Return the reference to the owner that controls an object."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


def owner_reference(owner: Json, resource: Resource) -> Json:
    """Return an owner reference to the controller of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pods_of(store: Store, owner: Json) -> Iterator[Json]:
    """Return the pods that an object controls."""
    return owned(store, owner, PODS)


def owned(store: Store, owner: Json, resource: Resource) -> Iterator[Json]:
    """Return the objects of a kind that an object controls."""
    uid = owner["metadata"]["uid"]
    for found, obj in store.owned_by(uid):
        reference = controller_of(obj) if found == resource else None
        if reference is not None and reference["uid"] == uid:
            yield obj


def new_pod(template: Json, owner: Json, resource: Resource) -> Json:
    """Return the pod that a controller creates from a template, without a name."""
    metadata = template.get("metadata") or {}
    kept = {key: dict(metadata[key]) for key in ("labels", "annotations") if metadata.get(key)}
    if metadata.get("finalizers"):
        kept["finalizers"] = metadata["finalizers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **kept,
            "namespace": owner["metadata"]["namespace"],
            "ownerReferences": [owner_reference(owner, resource)],
        },
        "spec": template["spec"],
    }


def is_over(pod: Json) -> bool:
    """Return whether the pod has finished."""
    return pod.get("status", {}).get("phase") in _OVER


def is_terminating(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_active(pod: Json) -> bool:
    """Return whether a pod counts as a replica."""
    return not is_over(pod) and not is_terminating(pod)


def ready_since(pod: Json) -> float | None:
    """Return since when a pod has been ready."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return parse_time(condition["lastTransitionTime"])
    return None


def waits_s(pod: Json, min_ready_s: float, now: float) -> float | None:
    """Return how long until a pod is available: 0 if it is, None if it is not even ready."""
    if not is_ready(pod):
        return None
    if not min_ready_s:
        return 0.0
    return max(0.0, (ready_since(pod) or 0.0) + min_ready_s - now)
