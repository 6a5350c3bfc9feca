# SPDX-License-Identifier: Apache-2.0
"""CustomResourceDefinitions, and the kinds that they define.

A CRD adds routes at once; names within a group are first come, first served. Schema features
beyond `simulator.api.schema`, several served versions and conversion are rejected with a 501.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from common.kube.resources import Resource
from simulator.api import schema as schemas
from simulator.api.errors import Cause, NotSupported, required, wrong
from simulator.api.kind import NAME_FIELDS, Fields, Kind, Names, Strategy, Subresources, keep
from simulator.api.kinds.event_shapes import Definition
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
_ROOT: Final = ("apiVersion", "kind", "metadata")


class DefinitionStrategy(Strategy):
    """A definition of a kind."""

    generation = True
    unconditional_update = False
    cleanup = CLEANUP
    shape = Definition

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = names.get("kind") or ""
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        obj["status"] = {}
        _refuse_unsupported(obj["spec"])

    def prepare_update(self, obj: Json, old: Json) -> None:
        super().prepare_update(obj, old)
        _refuse_unsupported(obj["spec"])

    def validate(self, obj: Json) -> Iterator[Cause]:
        spec, name = obj["spec"], obj["metadata"].get("name")
        names = spec["names"]
        for key in ("group", "scope"):
            if not spec.get(key):
                yield required(f"spec.{key}")
        for key in ("plural", "kind"):
            if not names.get(key):
                yield required(f"spec.names.{key}")
        if name != f"{names.get('plural')}.{spec.get('group')}":
            yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
        if not any(version.get("storage") for version in spec.get("versions") or ()):
            why = "must have exactly one version marked as storage version"
            yield wrong("spec.versions", spec.get("versions") or [], why)
        for index, version in enumerate(spec.get("versions") or ()):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                yield required(f"spec.versions[{index}].schema.openAPIV3Schema")

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        yield from self.validate(obj)
        for key in ("group", "scope"):
            if obj["spec"].get(key) != old["spec"].get(key):
                yield wrong(f"spec.{key}", obj["spec"].get(key), "field is immutable")


def _refuse_unsupported(spec: Json) -> None:
    served = [version for version in spec.get("versions") or () if version.get("served")]
    if len(served) > 1:
        raise NotSupported("the simulator serves only one version of a custom resource")
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        raise NotSupported("the simulator does not convert custom resources")
    for version in served:
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        found = sorted(schemas.unsupported(schema))
        if found:
            message = "the simulator does not understand these parts of the schema: "
            raise NotSupported(message + "; ".join(found))
        if "scale" in (version.get("subresources") or {}):
            raise NotSupported("the simulator does not scale custom resources")


class CustomStrategy(Strategy):
    """A custom resource."""

    generation = True
    unconditional_update = False
    field_message = "field label not supported: {}"

    def __init__(self, schema: Json, *, status: bool, selectable: tuple[str, ...]) -> None:
        self._schema = schema
        self._status = status
        self.fields: Fields = {**NAME_FIELDS, **{path: _reader(path) for path in selectable}}

    def default(self, obj: Json) -> None:
        self.prune(obj)
        body = _body(obj)
        schemas.fill_in(body, self._schema)
        obj.update(body)

    def prune(self, obj: Json) -> list[str]:
        """Prune unknown fields; return their paths."""
        body = _body(obj)
        dropped = schemas.prune(body, self._schema)
        for key in obj.keys() - body.keys() - set(_ROOT):
            del obj[key]
        return dropped

    def prepare_create(self, obj: Json, registry: Registry) -> None:
        if self._status:
            obj.pop("status", None)

    def prepare_update(self, obj: Json, old: Json) -> None:
        if self._status:
            keep(obj, old, "status")
        if self.means_more(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def means_more(self, obj: Json, old: Json) -> bool:
        # Everything but metadata and status is desired state.
        wishes = [
            {
                k: v
                for k, v in each.items()
                if k != "metadata" and not (self._status and k == "status")
            }
            for each in (obj, old)
        ]
        return wishes[0] != wishes[1]

    def prepare_status(self, obj: Json, old: Json) -> None:
        super().prepare_status(obj, old)
        obj["metadata"] = dict(old["metadata"])

    def validate(self, obj: Json) -> Iterator[Cause]:
        return schemas.all_causes(_body(obj), self._schema, root=_seen(obj))

    def validate_update(self, obj: Json, old: Json) -> Iterator[Cause]:
        return schemas.all_causes(_body(obj), self._schema, root=_seen(obj), old=_seen(old))

    def validate_status(self, obj: Json, old: Json) -> Iterator[Cause]:
        return self.validate_update(obj, old)


def _body(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in _ROOT}


def _seen(obj: Json) -> Json:
    """Return the object as its rules see it: of the metadata only the name."""
    name = obj["metadata"].get("name")
    return {**_body(obj), "metadata": {} if name is None else {"name": name}}


def _reader(path: str) -> Any:
    parts = path.split(".")

    def read(obj: Json) -> str:
        value: Any = obj
        for part in parts:
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return ""
        return str(value).lower() if isinstance(value, bool) else str(value)

    return read


def kind_of(definition: Json) -> Kind | None:
    """Return the kind of a CRD; None if it serves none."""
    spec, names = definition["spec"], definition["spec"]["names"]
    served = [version for version in spec["versions"] if version.get("served")]
    if not served:
        return None
    version = served[0]
    status = "status" in (version.get("subresources") or {})
    selectable = tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ())
    schema = version["schema"]["openAPIV3Schema"]
    resource = Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        spec["scope"] == "Namespaced",
    )
    return Kind(
        resource=resource,
        strategy=CustomStrategy(_without_root(schema), status=status, selectable=selectable),
        names=Names(
            singular=names["singular"],
            short=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            list_kind=names["listKind"],
        ),
        subresources=Subresources(status=status),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
    )


def _without_root(schema: Json) -> Json:
    """Return the schema without type and metadata, which have their own rules."""
    properties = {k: v for k, v in (schema.get("properties") or {}).items() if k not in _ROOT}
    needed = [key for key in schema.get("required") or () if key not in _ROOT]
    return {**schema, "properties": properties, "required": needed}
