# SPDX-License-Identifier: Apache-2.0
"""Deletion: graceful for pods, delayed by finalizers, with or without dependents.

Follows BeforeDelete (apiserver/pkg/registry/rest/delete.go), Store.Delete
(pkg/registry/generic/registry/store.go) and CheckGracefulDelete of pods. The policy for
dependents is only recorded here, as a finalizer; the garbage collector acts on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common.kube.resources import NAMESPACES
from common.kube.timestamps import parse_time
from simulator.api.errors import (
    forbidden,
    invalid_options,
    unknown_value,
    unmet_precondition,
    wrong,
)
from simulator.api.kind import Kind
from simulator.api.metadata import FOREGROUND, ORPHAN, timestamp
from simulator.api.objects import shown_as
from simulator.api.storage import Entry, Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_POLICIES: Final = ("Foreground", "Background", "Orphan", "nil")
_FINISHED: Final = ("Failed", "Succeeded")
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete; unset means the default of the object."""

    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    orphan_dependents: bool | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a deletion: the last state of the object, and whether it is gone."""

    obj: Json
    gone: bool


def is_over(obj: Json, old: Json) -> bool:
    """Return whether an update removed the last finalizer of a deleted object."""
    metadata = old["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    held = obj["metadata"].get("finalizers")
    return not held and not (obj["kind"] == "Namespace" and obj["spec"].get("finalizers"))


def delete(
    registry: Registry, kind: Kind, name: str, namespace: str | None, options: DeleteOptions
) -> Deleted:
    """Delete an object, or begin to."""
    old = registry.entry(kind, name, namespace)
    _check_options(options)
    check_preconditions(kind, old, options)
    if kind.resource == NAMESPACES:
        return _end_namespace(registry, kind, old, options)
    return _Deletion(registry, kind, old, options).run()


class _Deletion:
    """One deletion of an object whose preconditions hold."""

    def __init__(self, registry: Registry, kind: Kind, old: Entry, options: DeleteOptions) -> None:
        self._registry = registry
        self._kind = kind
        self._old = old
        self._options = options

    def run(self) -> Deleted:
        """Mark the object as terminating, remove it, or both in turn."""
        metadata = self._old.obj["metadata"]
        ending = self._graceful(dict(metadata)) if self._kind.strategy.graceful else None
        if ending == metadata:  # already terminating, and a second request does not make it faster
            return self._done(self._old.obj, gone=False)
        finalizers = self._finalizers()
        if ending is None and not finalizers:
            return self._remove(self._old.obj)
        ending = ending or self._held_back(metadata)
        ending = _with_finalizers(ending, finalizers)
        obj = {**self._old.obj, "metadata": ending}
        if not finalizers and not ending["deletionGracePeriodSeconds"]:
            return self._remove(self._put(obj))
        return self._done(obj if ending == metadata else self._put(obj), gone=False)

    def _graceful(self, metadata: Json) -> Json | None:
        """Return the metadata of a terminating pod; None if it is removed at once."""
        wanted = self._options.grace_s
        wanted = 1 if wanted is not None and wanted < 0 else wanted
        if "deletionTimestamp" in metadata:
            return self._shortened(metadata, wanted)
        period = self._period(wanted)
        now = self._registry.clock.now()
        return _told_to_end(metadata, timestamp(now + period), period)

    def _shortened(self, metadata: Json, wanted: int | None) -> Json | None:
        before = metadata.get("deletionGracePeriodSeconds")
        if not before:
            return None
        if wanted is None or wanted >= before:
            return metadata
        now = self._registry.clock.now()
        end = parse_time(metadata["deletionTimestamp"]) - before + wanted
        if end < now:
            end, wanted = now, min(wanted, 1)
        metadata["deletionTimestamp"] = timestamp(end)
        metadata["deletionGracePeriodSeconds"] = wanted
        return metadata

    def _period(self, wanted: int | None) -> int:
        pod = self._old.obj
        unbound = not pod["spec"].get("nodeName")
        if unbound or pod.get("status", {}).get("phase") in _FINISHED:
            return 0
        own = pod["spec"].get("terminationGracePeriodSeconds")
        period: int = wanted if wanted is not None else own or 0
        return 1 if period < 0 else period

    def _held_back(self, metadata: Json) -> Json:
        """Return the metadata of an object that is deleted once its finalizers are done."""
        if "deletionTimestamp" in metadata:
            return {**metadata, "deletionGracePeriodSeconds": 0}
        return _told_to_end(dict(metadata), timestamp(self._registry.clock.now()), 0)

    def _finalizers(self) -> list[str]:
        """Return the finalizers, including those for the deletion of dependents."""
        before = self._old.obj["metadata"].get("finalizers") or []
        own = [each for each in before if each not in (ORPHAN, FOREGROUND)]
        cleanup = self._kind.strategy.cleanup
        if cleanup and "deletionTimestamp" not in self._old.obj["metadata"]:
            own.append(cleanup)
        return own + self._fate(before) if self._kind.strategy.collected else list(before)

    def _fate(self, before: list[str]) -> list[str]:
        options = self._options
        if options.orphan_dependents is not None:
            return [ORPHAN] if options.orphan_dependents else []
        if options.propagation is not None:
            return {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(options.propagation, [])
        noted = [each for each in before if each in (ORPHAN, FOREGROUND)]
        return noted or ([ORPHAN] if self._kind.strategy.orphans else [])

    def _put(self, obj: Json) -> Json:
        if self._options.dry_run:
            return obj
        return self._registry.put(self._kind, self._old.key, obj).obj

    def _remove(self, obj: Json) -> Deleted:
        if not self._options.dry_run:
            obj = self._registry.storage.remove(self._kind.storage, self._old.key, obj).obj
        return self._done(obj, gone=True)

    def _done(self, obj: Json, *, gone: bool) -> Deleted:
        return Deleted(shown_as(self._kind, obj), gone)


def _told_to_end(metadata: Json, at: str, period: int) -> Json:
    metadata["deletionTimestamp"] = at
    metadata["deletionGracePeriodSeconds"] = period
    if metadata.get("generation"):
        metadata["generation"] += 1
    return metadata


def _with_finalizers(metadata: Json, finalizers: list[str]) -> Json:
    metadata = {key: value for key, value in metadata.items() if key != "finalizers"}
    return {**metadata, "finalizers": finalizers} if finalizers else metadata


def _end_namespace(registry: Registry, kind: Kind, old: Entry, options: DeleteOptions) -> Deleted:
    """Mark a namespace as terminating; its content is deleted first."""
    obj, name = old.obj, old.obj["metadata"]["name"]
    if name in _IMMORTAL:
        raise forbidden(NAMESPACES, name, "this namespace may not be deleted")
    if "deletionTimestamp" in obj["metadata"]:
        return Deleted(obj, gone=False)
    metadata = {**obj["metadata"], "deletionTimestamp": timestamp(registry.clock.now())}
    ending = {**obj, "metadata": metadata, "status": {**obj["status"], "phase": "Terminating"}}
    if not options.dry_run:
        ending = registry.put(kind, old.key, ending).obj
    return Deleted(ending, gone=False)


def _check_options(options: DeleteOptions) -> None:
    if options.propagation is not None and options.propagation not in _POLICIES[:3]:
        cause = unknown_value("propagationPolicy", options.propagation, _POLICIES)
        raise invalid_options("DeleteOptions", cause)
    if options.propagation is not None and options.orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid_options("DeleteOptions", wrong("propagationPolicy", options.propagation, why))


def check_preconditions(kind: Kind, old: Entry, options: DeleteOptions) -> None:
    """Check the uid and resourceVersion preconditions."""
    metadata, resource = old.obj["metadata"], kind.resource
    if options.uid is not None and options.uid != metadata["uid"]:
        why = f"the UID in the precondition ({options.uid}) does not match the UID in record "
        why += f"({metadata['uid']}). The object might have been deleted and then recreated"
        raise unmet_precondition(resource.kind, resource.group, metadata["name"], why)
    version = options.resource_version
    if version is not None and version != metadata["resourceVersion"]:
        why = f"the ResourceVersion in the precondition ({version}) does not match the "
        why += f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have "
        raise unmet_precondition(
            resource.kind, resource.group, metadata["name"], f"{why}been modified"
        )
