# SPDX-License-Identifier: Apache-2.0
"""Volumes, claims and storage classes.

The simulator has no controllers that protect volumes in use, so it does not add their
finalizers either: a claim that is deleted is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from common.kube.resources import STORAGECLASSES
from simulator.api.errors import Cause, not_allowed, required, wrong
from simulator.api.kind import Strategy
from simulator.api.kinds import quantities, shapes
from simulator.api.metadata import timestamp
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_CLASS_FIXED: Final = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


class ReturnedData(Strategy):
    """Plain data whose deletion returns the object, as in most of the storage group."""

    returns_deleted = True


class VolumeStrategy(Strategy):
    """A persistent volume."""

    returns_deleted = True
    standard_finalizers = True
    shape = shapes.Volume

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        quantities.tidy(spec.get("capacity"), "PersistentVolume")

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        now = timestamp(registry.clock.now())
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}

    def validate(self, obj: Json) -> Iterator[Cause]:
        for key in ("accessModes", "capacity"):
            if not obj["spec"].get(key):
                yield required(f"spec.{key}")


class ClaimStrategy(Strategy):
    """A claim; only a bound one can be resized or get a volume."""

    returns_deleted = True
    standard_finalizers = True
    shape = shapes.Claim

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("volumeMode", "Filesystem")
        for key in ("requests", "limits"):
            quantities.tidy((spec.get("resources") or {}).get(key), "PersistentVolumeClaim")

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = {"phase": "Pending"}
        if obj["spec"].get("storageClassName") is None:
            chosen = _default_class(registry)
            if chosen:
                obj["spec"]["storageClassName"] = chosen

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec = obj["spec"]
        if not spec.get("accessModes"):
            yield required("spec.accessModes", "at least 1 access mode is required")
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            yield required("spec.resources[storage]")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        free = {"resources", "volumeAttributesClassName"}
        if not old["spec"].get("volumeName"):
            free.add("volumeName")
        fixed = [{k: v for k, v in each["spec"].items() if k not in free} for each in (obj, old)]
        if fixed[0] != fixed[1]:
            why = "spec is immutable after creation except resources.requests and "
            yield not_allowed("spec", f"{why}volumeAttributesClassName for bound claims")


def _default_class(registry: Registry) -> str | None:
    """Return the newest default class, as the admission plugin `storageclass/setdefault` does."""
    defaults = [
        each["metadata"]
        for each in registry.list(STORAGECLASSES)
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
    ]
    newest = max(defaults, key=lambda each: str(each["creationTimestamp"]), default=None)
    return newest["name"] if newest else None


class StorageClassStrategy(Strategy):
    """A storage class; most of it is immutable."""

    returns_deleted = True
    shape = shapes.StorageClass

    def default(self, obj: Json) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Json) -> Iterator[Cause]:
        if not obj.get("provisioner"):
            yield required("provisioner")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        for key in _CLASS_FIXED:
            if obj.get(key) != old.get(key):
                if key in ("parameters", "provisioner"):
                    yield not_allowed(key, f"updates to {key} are forbidden.")
                else:
                    yield wrong(key, obj.get(key), "field is immutable")
