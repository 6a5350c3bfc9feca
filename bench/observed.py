# SPDX-License-Identifier: Apache-2.0
"""The builder's manifests as the API server would return them, ready for the cluster cache."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from common.api.objects import Node, Object, Pod
from simulator.build import Manifest

STAMP = "2026-11-16T08:00:00Z"

W = TypeVar("W", bound=Object)


def observed(kind: type[W], manifest: Manifest, **metadata: Any) -> W:
    """Return an object with the metadata that the API server adds."""
    return msgspec.convert(stored(manifest, **metadata), kind)


def ready_node(manifest: Manifest) -> Node:
    """Return a node whose kubelet reports Ready."""
    status = {**manifest["status"], "conditions": [_true("Ready", STAMP)]}
    return observed(Node, {**manifest, "status": status})


def running_pod(manifest: Manifest, owner: Manifest, *, since: str = STAMP) -> Pod:
    """Return a Ready pod of a controller."""
    conditions = [_true(kind, since) for kind in ("PodScheduled", "Ready")]
    status = {"phase": "Running", "conditions": conditions}
    references = [owner_reference(owner)]
    return observed(Pod, {**manifest, "status": status}, ownerReferences=references)


def owner_reference(owner: Manifest) -> Manifest:
    """Return a reference to an object as the controller of another."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": _uid(owner),
        "controller": True,
    }


def stored(manifest: Manifest, **metadata: Any) -> Manifest:
    """Return a manifest with a uid, a creation time and further metadata."""
    server = {"uid": _uid(manifest), "resourceVersion": "1", "creationTimestamp": STAMP}
    return {**manifest, "metadata": {**manifest["metadata"], **server, **metadata}}


def uid_of(kind: str, name: str) -> str:
    """Return the uid that an object gets here: the same for the same name."""
    return f"uid-{kind.lower()}-{name}"


def _uid(manifest: Manifest) -> str:
    return uid_of(manifest["kind"], manifest["metadata"]["name"])


def _true(kind: str, since: str) -> Manifest:
    return {"type": kind, "status": "True", "lastTransitionTime": since}
