# SPDX-License-Identifier: Apache-2.0
"""From the builder's manifests to wire structs, as the API server would send them."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

import msgspec

from common.api.objects import Node, Object, Pod
from simulator.build import Manifest

W = TypeVar("W", bound=Object)

_IDS = uuid.UUID("6b1f6f1c-0000-4000-8000-000000000000")


def wire(kind: type[W], manifest: Manifest) -> W:
    """Decode a manifest as if it had come over the network."""
    return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)


def uid_of(text: str) -> str:
    """Return a uid that is always the same for the same text."""
    return str(uuid.uuid5(_IDS, text))


def stamped(manifest: Manifest, **metadata: Any) -> Manifest:
    """Return the manifest with what the API server adds: a uid and a time of creation."""
    found = manifest["metadata"]
    server = {
        "uid": uid_of(f"{manifest['kind']}/{found.get('namespace', '')}/{found['name']}"),
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-16T08:00:00Z",
    }
    return {**manifest, "metadata": {**found, **server, **metadata}}


def wire_node(manifest: Manifest) -> Node:
    """Return a Ready node."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T08:00:00Z"}
    status = {"conditions": [ready], **manifest["status"]}
    return wire(Node, stamped({**manifest, "status": status}))


def wire_pod(
    manifest: Manifest,
    *,
    owner: Manifest | None = None,
    phase: str = "Running",
    scheduled: str = "2026-11-16T08:00:00Z",
    status: Manifest | None = None,
    **metadata: Any,
) -> Pod:
    """Return a pod; one with a node was scheduled at the given time and is Ready."""
    bound = bool(manifest["spec"].get("nodeName"))
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": scheduled}
        for kind in ("PodScheduled", "Ready")
        if bound
    ]
    if owner is not None:
        metadata["ownerReferences"] = [owner_reference(owner)]
    whole = {"phase": phase if bound else "Pending", "conditions": conditions, **(status or {})}
    return wire(Pod, stamped({**manifest, "status": whole}, **metadata))


def owner_reference(owner: Manifest) -> Manifest:
    """Return a reference to a stamped owner as its controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": stamped(owner)["metadata"]["uid"],
        "controller": True,
    }
