# SPDX-License-Identifier: Apache-2.0
"""What the API server knows about a kind: where it is served and how it behaves.

A `Strategy` defines how a kind differs from plain data; the base class is plain data. Its
methods get copies that they may change, except `old`, which is the stored object. They follow
pkg/registry/*/strategy.go of Kubernetes v1.36: fields that a create or an update cannot change
are reset, missing fields get defaults, and invalid fields are causes of a 422.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from common.kube.resources import Resource
from simulator.api import names
from simulator.api.errors import BadRequest, Cause
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

Fields = Mapping[str, Callable[[Json], str]]

ALL_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip


def _name(obj: Json) -> str:
    return str(obj["metadata"].get("name", ""))


def _namespace(obj: Json) -> str:
    return str(obj["metadata"].get("namespace", ""))


NAME_FIELDS: Final[Fields] = {"metadata.name": _name, "metadata.namespace": _namespace}


class Strategy:
    """Plain data: stored as received, once its metadata is valid."""

    generation: ClassVar[bool] = False
    """Counts changes of the spec in `metadata.generation`."""
    create_on_update: ClassVar[bool] = False
    unconditional_update: ClassVar[bool] = True
    """Accepts an update without a resourceVersion."""
    graceful: ClassVar[bool] = False
    returns_deleted: ClassVar[bool] = False
    orphans: ClassVar[bool] = False
    """Orphans dependents by default."""
    collected: ClassVar[bool] = True
    """Takes part in garbage collection at all."""
    cleanup: ClassVar[str] = ""
    """A finalizer that a deletion adds, because something else must be deleted first."""
    standard_finalizers: ClassVar[bool] = False
    """Rejects finalizers without a domain, as the core group does."""
    fields: Fields = NAME_FIELDS
    """What field selectors may name."""
    field_message: ClassVar[str] = (
        '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    shape: type[msgspec.Struct] | None = None
    """The types of fields: what Go must be able to decode."""

    def name_problems(self, name: str) -> Sequence[str]:
        return names.dns_subdomain(name)

    def default(self, obj: Json) -> None:
        """Set defaults."""

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        """Reset what a create cannot set; admission happens here too."""

    def prepare_update(self, obj: Json, old: Json) -> None:
        """Reset what an update cannot change."""
        keep(obj, old, "status")
        if self.generation and self.means_more(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def means_more(self, obj: Json, old: Json) -> bool:
        """Return whether an update changes the desired state."""
        return bool(obj.get("spec") != old.get("spec"))

    def prepare_status(self, obj: Json, old: Json) -> None:
        """Reset what an update of the status cannot change."""
        for key in old.keys() | obj.keys():
            if key not in ("status", "metadata"):
                keep(obj, old, key)

    def validate(self, obj: Json) -> Iterable[Cause]:
        """Return what is wrong with an object."""
        return ()

    def validate_update(self, obj: Json, old: Json) -> Iterable[Cause]:
        """Return what is wrong with turning `old` into this object."""
        return self.validate(obj)

    def validate_status(self, obj: Json, old: Json) -> Iterable[Cause]:
        """Return what is wrong with the status of an object."""
        return ()

    def check_shape(self, obj: Json, kind: str, version: str) -> None:
        """Reject what Go could not decode."""
        if self.shape is None:
            return
        try:
            msgspec.convert(obj, self.shape)
        except msgspec.ValidationError as error:
            message = f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
            raise BadRequest(message) from None


def keep(obj: Json, old: Json, key: str) -> None:
    """Reset a field to its old value."""
    if key in old:
        obj[key] = old[key]
    else:
        obj.pop(key, None)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource as discovery shows it."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a kind besides those of its resource."""

    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresources:
    """The subresources of a kind."""

    status: bool = False
    others: tuple[Subresource, ...] = ()
    unsupported: frozenset[str] = frozenset()
    """Subresources that only the real server has."""


@dataclass(frozen=True, slots=True)
class Alias:
    """The kind whose objects these are, in another form (Events have two APIs)."""

    stored_as: Resource
    from_stored: Callable[[Json], Json]
    to_stored: Callable[[Json], Json]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One served kind."""

    resource: Resource
    strategy: Strategy = field(default_factory=Strategy)
    names: Names = Names()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Subresources = Subresources()
    columns: tuple[Json, ...] | None = None
    """Additional printer columns of a custom resource; None for a built-in kind."""
    alias: Alias | None = None
    """How objects are stored that another kind shows too."""

    @property
    def custom(self) -> bool:
        """Whether a CRD defines the kind."""
        return self.columns is not None

    @property
    def list_kind(self) -> str:
        return self.names.list_kind or f"{self.resource.kind}List"

    @property
    def storage(self) -> Resource:
        """The kind under which objects are stored."""
        return self.alias.stored_as if self.alias is not None else self.resource


class Kinds:
    """All served kinds; CRDs add and remove some while the server runs."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._served: dict[tuple[str, str], dict[str, Kind]] = {}
        self._by_resource: dict[Resource, Kind] = {}
        self._on_added: list[Callable[[Kind], None]] = []
        self._on_removed: list[Callable[[Kind], None]] = []
        for kind in kinds:
            self.add(kind)

    def listen(
        self,
        *,
        added: Callable[[Kind], None] | None = None,
        removed: Callable[[Kind], None] | None = None,
    ) -> None:
        """Subscribe to kinds: existing, added and removed ones."""
        if added is not None:
            self._on_added.append(added)
            for kind in self:
                added(kind)
        if removed is not None:
            self._on_removed.append(removed)

    def add(self, kind: Kind) -> None:
        """Serve a kind, or replace how it is served."""
        resource = kind.resource
        self._served.setdefault((resource.group, resource.version), {})[resource.plural] = kind
        known = resource in self._by_resource
        self._by_resource[resource] = kind
        if not known:
            for listener in self._on_added:
                listener(kind)

    def remove(self, resource: Resource) -> None:
        """Stop serving a kind; its group is removed with its last kind."""
        place = (resource.group, resource.version)
        gone = self._by_resource.pop(resource, None)
        self._served.get(place, {}).pop(resource.plural, None)
        if not self._served.get(place):
            self._served.pop(place, None)
        if gone is not None:
            for listener in self._on_removed:
                listener(gone)

    def group_version(self, group: str, version: str) -> Mapping[str, Kind] | None:
        """Return the kinds of a group version by plural, or nothing if there is none."""
        return self._served.get((group, version))

    def group_versions(self) -> Iterable[tuple[str, str]]:
        return tuple(self._served)

    def of(self, resource: Resource) -> Kind:
        """Return a served kind; raise KeyError if it is none."""
        return self._by_resource[resource]

    def find(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that objects with this type are of."""
        group, _, version = api_version.rpartition("/")
        for served in (self._served.get((group, version)) or {}).values():
            if served.resource.kind == kind:
                return served
        return None

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_resource.values()))
