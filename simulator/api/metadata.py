# SPDX-License-Identifier: Apache-2.0
"""`metadata`: what the server sets, and what it rejects.

The rules are those of apimachinery/pkg/api/validation/objectmeta.go and of BeforeCreate
and BeforeUpdate in apiserver/pkg/registry/rest (v0.36).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from simulator.api import names
from simulator.api.errors import Cause, not_allowed, required, wrong
from simulator.api.kind import Kind
from simulator.api.storage import Json

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
STANDARD_FINALIZERS: Final = frozenset({"kubernetes", ORPHAN, FOREGROUND})

_SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_LONGEST_BASE: Final = 63 - _SUFFIX_LENGTH
_ANNOTATIONS_LIMIT: Final = 256 * 1024
_EMPTYABLE: Final = ("labels", "annotations", "finalizers", "ownerReferences", "managedFields")
_UNCHANGING: Final = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
_IMMUTABLE: Final = "field is immutable"


def timestamp(seconds: float) -> str:
    """Return a time in the format of objects, in whole seconds."""
    return _stamp(int(seconds))


@lru_cache(maxsize=64)
def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid(rng: random.Random) -> str:
    """Draw a version 4 UUID."""
    bits = rng.getrandbits(128) & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x4000 << 64 | 0x8000 << 48
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def generate_name(base: str, rng: random.Random) -> str:
    """Return a name that starts with `base` (apiserver/pkg/storage/names/generate.go)."""
    suffix = "".join(rng.choices(_SUFFIX_CHARACTERS, k=_SUFFIX_LENGTH))
    return base[:_LONGEST_BASE] + suffix


def fill_in(
    obj: Json, kind: Kind, namespace: str | None, *, now: float, rng: random.Random
) -> None:
    """Set what only the server decides about a new object."""
    metadata = obj["metadata"]
    for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(key, None)
    metadata.pop("managedFields", None)
    metadata.pop("generation", None)
    if namespace:
        metadata["namespace"] = namespace
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = timestamp(now)
    if kind.strategy.generation:
        metadata["generation"] = 1
    drop_empty(metadata)


def carry_over(obj: Json, old: Json, manager: str = "unknown") -> None:
    """Reset what no update can change, and set what may be omitted."""
    metadata, before = obj["metadata"], old["metadata"]
    for key in ("generation", "creationTimestamp", "resourceVersion"):
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)
    for key in ("namespace", "name", "uid", "deletionGracePeriodSeconds", "generateName"):
        if key in before and not metadata.get(key):
            metadata[key] = before[key]
    if "deletionTimestamp" in before:
        metadata["deletionTimestamp"] = before["deletionTimestamp"]
    metadata["managedFields"] = _managers(obj, old, manager)
    metadata.pop("selfLink", None)
    drop_empty(metadata)


def _managers(obj: Json, old: Json, manager: str) -> list[Json]:
    """Return who has set the count of a workload last; nothing else is recorded here."""
    before: list[Json] = old["metadata"].get("managedFields") or []
    counts = [(each.get("spec") or {}).get("replicas") for each in (obj, old)]
    if counts[0] == counts[1]:
        return before
    fields = {"f:spec": {"f:replicas": dict[str, str]()}}
    entry = {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1"}
    return [{**entry, "fieldsV1": fields}]


def drop_empty(metadata: Json) -> None:
    """Remove empty fields, as Go does (omitempty)."""
    for key in _EMPTYABLE:
        if key in metadata and not metadata[key]:
            del metadata[key]


def creation_causes(metadata: Json, kind: Kind) -> Iterator[Cause]:
    """Return what is wrong with the metadata of a new object."""
    if not metadata.get("name"):
        yield required("metadata.name", "name or generateName is required")
    else:
        for problem in kind.strategy.name_problems(metadata["name"]):
            yield wrong("metadata.name", metadata["name"], problem)
    if not kind.resource.namespaced and metadata.get("namespace"):
        yield not_allowed("metadata.namespace", "not allowed on this type")
    yield from _common(metadata)
    if kind.strategy.standard_finalizers:
        yield from _bare_finalizers(metadata.get("finalizers") or ())


def update_causes(metadata: Json, old: Json) -> Iterator[Cause]:
    """Return what is wrong with turning `old` into this metadata."""
    yield from _common(metadata)
    if "deletionTimestamp" in old:
        extra = sorted(set(metadata.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{each}"' for each in extra)
            why = "no new finalizers can be added if the object is being deleted, found new "
            yield not_allowed("metadata.finalizers", f"{why}finalizers []string{{{listed}}}")
    for key in _UNCHANGING:
        if metadata.get(key) != old.get(key):
            yield wrong(f"metadata.{key}", metadata.get(key), _IMMUTABLE)


def _common(metadata: Json) -> Iterator[Cause]:
    labels = metadata.get("labels")
    if labels:
        yield from label_causes(labels, "metadata.labels")
    annotations = metadata.get("annotations")
    if annotations:
        yield from _annotation_causes(annotations)
    references = metadata.get("ownerReferences")
    if references:
        yield from _owner_causes(references)
    for finalizer in metadata.get("finalizers") or ():
        for problem in names.label_key(finalizer):
            yield wrong("metadata.finalizers", finalizer, problem)


def label_causes(labels: Json, path: str) -> Iterator[Cause]:
    """Return what is wrong with labels."""
    for key in sorted(labels):
        for problem in names.label_key(key):
            yield wrong(path, key, problem)
        for problem in names.label_value(labels[key]):
            yield wrong(path, labels[key], problem)


def _annotation_causes(annotations: Json) -> Iterator[Cause]:
    for key in sorted(annotations):
        for problem in names.label_key(key.lower()):
            yield wrong("metadata.annotations", key, problem)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > _ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        yield Cause("FieldValueTooLong", message, "metadata.annotations")


def _owner_causes(references: list[Json]) -> Iterator[Cause]:
    path = "metadata.ownerReferences"
    controllers = []
    for reference in references:
        if not reference.get("apiVersion"):
            yield wrong(f"{path}.apiVersion", "", "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not reference.get(key):
                yield wrong(f"{path}.{key}", "", "must not be empty")
        if reference.get("controller"):
            controllers.append(f"{reference.get('kind')}/{reference.get('name')}")
    if len(controllers) > 1:
        why = 'Only one reference can have Controller set to true. Found "true" in references for '
        yield wrong(path, references, f"{why}{controllers[0]} and {controllers[1]}")


def _bare_finalizers(finalizers: Iterable[str]) -> Iterator[Cause]:
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield wrong(f"metadata.finalizers[{index}]", finalizer, why)
