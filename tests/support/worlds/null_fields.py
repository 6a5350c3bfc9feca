# SPDX-License-Identifier: Apache-2.0
"""Documents in which every field of a wire type is set, and the same with one field null.

The documents are made from the types, so a field that is added later is covered at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

Json = Any
Path = tuple[str | int, ...]

_NUMBERS = {"resourceVersion": "7", "cpuMilli": 1.0, "memoryBytes": 1.0}
_TEXTS = {
    "operator": "In",
    "maxUnavailable": "25%",
    "minAvailable": 1,
    "claimName": "data",
    "phase": "Running",
}


def full(type_: type[msgspec.Struct]) -> dict[str, Json]:
    """Return a document of a type in which every field is set."""
    found = _value(inspect.type_info(type_), "")
    assert isinstance(found, dict)
    return found


def paths(document: Json, at: Path = ()) -> Iterator[Path]:
    """Yield where the fields and the elements of a document are."""
    children = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, child in children:
        yield (*at, key)
        yield from paths(child, (*at, key))


def nulled(document: Json, path: Path) -> Json:
    """Return the document with null at a place."""
    changed, parent = _copied(document, path)
    parent[path[-1]] = None
    return changed


def absent(document: Json, path: Path) -> Json:
    """Return the document without what stands at a place."""
    changed, parent = _copied(document, path)
    del parent[path[-1]]
    return changed


def _copied(document: Json, path: Path) -> tuple[Json, Json]:
    """Return a copy, of which only what lies on the path is new, and what holds the place."""
    changed = parent = copy.copy(document)
    for step in path[:-1]:
        parent[step] = copy.copy(parent[step])
        parent = parent[step]
    return changed, parent


def _value(info: inspect.Type, name: str) -> Json:
    if isinstance(info, inspect.StructType):
        return {f.encode_name: _value(f.type, f.encode_name) for f in info.fields}
    if isinstance(info, inspect.UnionType):
        return _value(next(t for t in info.types if not isinstance(t, inspect.NoneType)), name)
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
        return [_value(info.item_type, name)]
    if isinstance(info, inspect.DictType):
        return {"storage": "1"} if name == "capacity" else {"a": _value(info.value_type, name)}
    if isinstance(info, inspect.DateTimeType):
        return "2026-11-16T08:00:00Z"
    if isinstance(info, inspect.BoolType):
        return True
    if isinstance(info, inspect.IntType):
        return _NUMBERS.get(name, 1)
    if isinstance(info, inspect.FloatType):
        return 1.5
    return _NUMBERS.get(name, _TEXTS.get(name, "1"))
