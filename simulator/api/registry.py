# SPDX-License-Identifier: Apache-2.0
"""Creating and changing objects, with the checks in the order of the real server.

The order follows BeforeCreate, BeforeUpdate and Store.Update in apiserver/pkg/registry
(v0.36), because it decides which of two errors a client sees. Objects that are passed in
belong to the registry, which changes them before they are stored.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from common.clock import Clock
from common.cluster.selectors import Selector
from common.kube.resources import NAMESPACES, Resource
from simulator.api import deletion, metadata
from simulator.api.catalog import built_in
from simulator.api.errors import (
    BadRequest,
    Cause,
    InternalError,
    NotFound,
    already_exists,
    forbidden,
    invalid,
    modified,
    not_found,
    qualified,
    wrong,
)
from simulator.api.kind import Kind, Kinds
from simulator.api.objects import (
    check_namespace,
    check_place,
    check_types,
    copied,
    drop_nulls,
    shown_as,
    storage_conflict,
    unusable_patch,
)
from simulator.api.patches import Patch, apply_patch
from simulator.api.storage import HISTORY, Entry, Json, Storage, key_of

_GENERATE_ATTEMPTS: Final = 8


class Registry:
    """All kinds and objects, and the operations on them."""

    def __init__(
        self, *, clock: Clock, rng: random.Random | None = None, history: int = HISTORY
    ) -> None:
        self.clock = clock
        self.rng = rng or random.Random()
        self.kinds = Kinds(built_in())
        self.storage = Storage(history=history)
        self.evictions: list[str] = []
        """The uids of pods whose eviction was accepted, one for each time, in order."""
        for kind in self.kinds:
            self.storage.collection(kind.storage)

    def kind(self, resource: Resource) -> Kind:
        """Return a kind; one that is not served is a 404."""
        try:
            return self.kinds.of(resource)
        except KeyError:
            raise NotFound(f"{qualified(resource)} is not served", details={}) from None

    def entry(self, kind: Kind, name: str, namespace: str | None = None) -> Entry:
        """Return the stored version of an object."""
        found = self.storage.get(kind.storage, key_of(namespace, name))
        if found is None:
            raise not_found(kind.resource, name)
        return found

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """Return an object; raise NotFound if there is none."""
        kind = self.kind(resource)
        return shown_as(kind, self.entry(kind, name, namespace).obj)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        """Return an object if there is one."""
        kind = self.kind(resource)
        found = self.storage.get(kind.storage, key_of(namespace, name))
        return shown_as(kind, found.obj) if found is not None else None

    def list(
        self, resource: Resource, namespace: str | None = None, *, labels: Selector | None = None
    ) -> list[Json]:
        """Return the objects of a kind, in no particular order."""
        kind = self.kind(resource)
        entries = self.storage.collection(kind.storage).within(namespace).values()
        return [
            shown_as(kind, entry.obj)
            for entry in entries
            if labels is None or labels.matches(entry.obj["metadata"].get("labels") or {})
        ]

    def decoded(self, kind: Kind, obj: Json) -> Json:
        """Return the object that a client sent, with defaults."""
        check_types(obj, kind)
        if kind.alias is not None:
            obj = kind.alias.to_stored(obj)
        obj["kind"], obj["apiVersion"] = kind.resource.kind, kind.storage.api_version
        if not kind.custom:
            drop_nulls(obj)
            kind.strategy.check_shape(obj, kind.resource.kind, kind.resource.version)
        kind.strategy.default(obj)
        return obj

    def create_decoded(
        self, kind: Kind, obj: Json, namespace: str | None, *, dry_run: bool = False
    ) -> Entry:
        """Create an object."""
        check_namespace(obj, namespace)
        if obj["metadata"].get("resourceVersion"):
            raise InternalError("resourceVersion should not be set on objects to be created")
        self._admit_to_namespace(kind, obj, namespace)
        metadata.fill_in(obj, kind, namespace, now=self.clock.now(), rng=self.rng)
        if not obj["metadata"].get("name") and obj["metadata"].get("generateName"):
            obj["metadata"]["name"] = self._free_name(kind, obj, namespace)
        kind.strategy.prepare_create(obj, self)
        causes = metadata.creation_causes(obj["metadata"], kind)
        self._refuse(kind, obj, [*causes, *kind.strategy.validate(obj)])
        key = key_of(namespace, obj["metadata"]["name"])
        if self.storage.get(kind.storage, key) is not None:
            raise already_exists(kind.resource, obj["metadata"]["name"])
        return Entry(key, obj, 0) if dry_run else self.put(kind, key, obj)

    def update_decoded(
        self,
        kind: Kind,
        obj: Json,
        name: str,
        namespace: str | None,
        *,
        status: bool = False,
        dry_run: bool = False,
    ) -> tuple[Entry, bool]:
        """Replace an object; return whether that created it."""
        check_place(obj, name, namespace)
        old = self.storage.get(kind.storage, key_of(namespace, name))
        if old is None:
            if status or not kind.strategy.create_on_update:
                raise not_found(kind.resource, name)
            obj["metadata"].pop("resourceVersion", None)
            return self.create_decoded(kind, obj, namespace, dry_run=dry_run), True
        self.check_uid(kind, obj["metadata"].get("uid"), old)
        self.check_version(kind, obj["metadata"].get("resourceVersion"), old)
        return self.finish_update(kind, obj, old, status=status, dry_run=dry_run), False

    def patch_decoded(
        self,
        kind: Kind,
        patch: Patch,
        name: str,
        namespace: str | None,
        *,
        status: bool = False,
        dry_run: bool = False,
    ) -> Entry:
        """Patch an object."""
        old = self.entry(kind, name, namespace)
        obj = copied(apply_patch(patch, shown_as(kind, old.obj)))
        if (obj.get("kind"), obj.get("apiVersion")) != (
            kind.resource.kind,
            kind.resource.api_version,
        ):
            raise unusable_patch(obj, f"not a {kind.resource.kind}")
        try:
            obj = self.decoded(kind, obj)
        except BadRequest as error:
            raise unusable_patch(obj, error.message) from None
        check_place(obj, name, namespace)
        self.check_version(kind, obj["metadata"].get("resourceVersion") or str(old.version), old)
        return self.finish_update(kind, obj, old, status=status, dry_run=dry_run)

    def finish_update(
        self,
        kind: Kind,
        obj: Json,
        old: Entry,
        *,
        status: bool = False,
        dry_run: bool = False,
        manager: str = "unknown",
    ) -> Entry:
        """Validate and store a new version of an object."""
        metadata.carry_over(obj, old.obj, manager)
        if status:
            kind.strategy.prepare_status(obj, old.obj)
            causes = kind.strategy.validate_status(obj, old.obj)
        else:
            kind.strategy.prepare_update(obj, old.obj)
            causes = kind.strategy.validate_update(obj, old.obj)
        changes = metadata.update_causes(obj["metadata"], old.obj["metadata"])
        self._refuse(kind, obj, [*changes, *causes])
        if deletion.is_over(obj, old.obj):
            if not dry_run:
                self.storage.remove(kind.storage, old.key, obj)
            return Entry(old.key, obj, old.version)
        if obj == old.obj:
            return old
        return Entry(old.key, obj, old.version) if dry_run else self.put(kind, old.key, obj)

    def put(self, kind: Kind, key: str, obj: Json) -> Entry:
        """Store a version without validation."""
        return self.storage.put(kind.storage, key, obj)

    def check_uid(self, kind: Kind, uid: str | None, old: Entry) -> None:
        """Check the uid of the object that is written."""
        found = old.obj["metadata"]["uid"]
        if uid and uid != found:
            why = f"UID in precondition: {uid}, UID in object meta: {found}"
            raise storage_conflict(kind, old, why)

    def check_version(self, kind: Kind, version: str | None, old: Entry) -> None:
        """Check that the writer has seen the stored version."""
        name = old.obj["metadata"]["name"]
        if not version or version == "0":
            if not kind.strategy.unconditional_update:
                cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid(kind.resource.plural, kind.resource.group, name, [cause])
            return
        if not version.isdecimal():
            raise InternalError(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if int(version) != old.version:
            raise modified(kind.resource, name)

    def _admit_to_namespace(self, kind: Kind, obj: Json, namespace: str | None) -> None:
        if not kind.resource.namespaced or namespace is None:
            return
        found = self.storage.get(NAMESPACES, namespace)
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being "
            message = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            name = obj["metadata"].get("name", "")
            raise forbidden(kind.resource, name, f"{why}terminated", causes=[cause])

    def _free_name(self, kind: Kind, obj: Json, namespace: str | None) -> str:
        base = obj["metadata"]["generateName"]
        for _ in range(_GENERATE_ATTEMPTS):
            name = metadata.generate_name(base, self.rng)
            if self.storage.get(kind.storage, key_of(namespace, name)) is None:
                break
        return name

    def _refuse(self, kind: Kind, obj: Json, causes: Iterable[Cause]) -> None:
        found = list(causes)
        if found:
            name = obj["metadata"].get("name", "")
            raise invalid(kind.resource.kind, kind.storage.group, name, found)
