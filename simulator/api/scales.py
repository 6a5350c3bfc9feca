# SPDX-License-Identifier: Apache-2.0
"""The `scale` subresource: the number of replicas of a workload, and nothing else."""

from __future__ import annotations

import msgspec

from simulator.api.errors import BadRequest, invalid, wrong
from simulator.api.kind import Kind
from simulator.api.kinds.selectors import selector_of
from simulator.api.objects import check_place, copied, unusable_patch
from simulator.api.patches import Patch, apply_patch
from simulator.api.registry import Registry
from simulator.api.storage import Entry, Json


def scale_of(obj: Json) -> Json:
    """Return the scale of a workload."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = spec.get("replicas", 0)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {"replicas": status.get("replicas", 0), "selector": _selector_text(spec)},
    }


def _selector_text(spec: Json) -> str:
    selector = spec.get("selector") or {}
    plain = "matchLabels" not in selector and "matchExpressions" not in selector
    return str(selector_of({"matchLabels": selector} if plain else selector))


def replace_scale(
    registry: Registry,
    kind: Kind,
    scale: Json,
    name: str,
    namespace: str | None,
    *,
    manager: str = "",
    dry_run: bool = False,
) -> Json:
    """Set the replicas of a workload, if the scale is of the version that is stored."""
    if not isinstance(scale.get("metadata"), dict):
        scale["metadata"] = {}
    check_place(scale, name, namespace)
    old = registry.entry(kind, name, namespace)
    registry.check_uid(kind, scale["metadata"].get("uid"), old)
    registry.check_version(kind, scale["metadata"].get("resourceVersion"), old)
    return _resized(registry, kind, old, scale, manager, dry_run=dry_run)


def patch_scale(
    registry: Registry,
    kind: Kind,
    patch: Patch,
    name: str,
    namespace: str | None,
    *,
    dry_run: bool = False,
) -> Json:
    """Patch the replicas of a workload."""
    old = registry.entry(kind, name, namespace)
    scale = apply_patch(patch, scale_of(old.obj))
    try:
        return replace_scale(registry, kind, copied(scale), name, namespace, dry_run=dry_run)
    except BadRequest as error:
        raise unusable_patch(scale, error.message) from None


def _resized(
    registry: Registry, kind: Kind, old: Entry, scale: Json, manager: str, *, dry_run: bool
) -> Json:
    name = old.obj["metadata"]["name"]
    try:
        replicas = msgspec.convert((scale.get("spec") or {}).get("replicas", 0), int)
    except msgspec.ValidationError as error:
        message = f'Scale in version "v1" cannot be handled as a Scale: {error}'
        raise BadRequest(message) from None
    if replicas < 0:
        cause = wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid("Scale", "autoscaling", name, [cause])
    obj = copied(old.obj)
    obj["spec"]["replicas"] = replicas
    written = registry.finish_update(kind, obj, old, dry_run=dry_run, manager=manager or "unknown")
    return scale_of(written.obj)
