# SPDX-License-Identifier: Apache-2.0
"""Objects as values: copying them, and checks before any validation."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from simulator.api.errors import BadRequest, Cause, Conflict, Invalid, conflict, invalid
from simulator.api.kind import Kind
from simulator.api.storage import Entry, Json

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode

_WRONG_NAMESPACE: Final = (
    "the namespace of the provided object does not match the namespace sent on the request"
)


class _OwnerReference(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_OwnerReference] | None = None


def copied(obj: Json) -> Json:
    """Return a copy that shares nothing with the original."""
    made: Json = _decode(_encode(obj))
    return made


def shallow(obj: Json) -> Json:
    """Return a copy whose metadata and status may be changed, and nothing else."""
    made = {**obj, "metadata": dict(obj["metadata"])}
    if obj.get("status"):
        made["status"] = dict(obj["status"])
    return made


def shown_as(kind: Kind, obj: Json) -> Json:
    """Return a stored object as this kind shows it."""
    return kind.alias.from_stored(obj) if kind.alias is not None else obj


def data_of(kind: Kind, entry: Entry) -> bytes:
    """Return a stored object as JSON, as this kind shows it."""
    return entry.data if kind.alias is None else _encode(kind.alias.from_stored(entry.obj))


def check_types(obj: Json, kind: Kind) -> None:
    """Reject what Go could not decode, for any kind."""
    if not isinstance(obj.get("metadata"), dict):
        obj["metadata"] = {}
    try:
        msgspec.convert(obj["metadata"], _Metadata)
    except msgspec.ValidationError as error:
        raise cannot_be_handled(kind, str(error)) from None
    for key in ("spec", "status"):
        if not isinstance(obj.get(key, {}), dict | None):
            raise cannot_be_handled(kind, f"`{key}` must be an object")
        if obj.get(key, {}) is None:
            del obj[key]


def drop_nulls(value: Any) -> None:
    """Remove null fields in place, because Go treats them alike."""
    if type(value) is dict:
        below = value.values()
        if None in below:
            for key in [key for key, each in value.items() if each is None]:
                del value[key]
    else:
        below = value
    for each in below:
        if type(each) is dict or type(each) is list:
            drop_nulls(each)


def cannot_be_handled(kind: Kind, why: str) -> BadRequest:
    name, version = kind.resource.kind, kind.resource.version
    return BadRequest(f'{name} in version "{version}" cannot be handled as a {name}: {why}')


def check_place(obj: Json, name: str, namespace: str | None) -> None:
    """Reject an object whose name differs from the URL."""
    metadata = obj["metadata"]
    if metadata.get("name", name) != name:
        message = f"the name of the object ({metadata['name']}) does not match the name on the URL "
        raise BadRequest(f"{message}({name})")
    check_namespace(obj, namespace)


def check_namespace(obj: Json, namespace: str | None) -> None:
    """Reject an object whose namespace differs from the URL."""
    if namespace and (obj["metadata"].get("namespace") or namespace) != namespace:
        raise BadRequest(_WRONG_NAMESPACE)


def storage_conflict(kind: Kind, old: Entry, why: str) -> Conflict:
    """Return the conflict that the real server's storage layer reports."""
    plural = kind.resource.plural
    message = f"StorageError: invalid object, Code: 4, Key: /registry/{plural}/{old.key}, "
    more = f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {why}"
    return conflict(kind.resource, old.obj["metadata"]["name"], message + more)


def unusable_patch(obj: Any, why: str) -> Invalid:
    """Return the error of a patch whose result is not a valid object."""
    message = f"Invalid value: {_encode(_encode(obj).decode()).decode()}: {why}"
    return invalid("", "", "", [Cause("FieldValueInvalid", message, "patch")])
