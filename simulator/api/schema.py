# SPDX-License-Identifier: Apache-2.0
"""Structural schemas of custom resources: prune, default, validate.

A part of apiextensions-apiserver/pkg/apiserver/schema and of its validation (v0.36), with
its messages. Unsupported parts are rejected when the schema is registered, so that nothing is
silently accepted: see `unsupported`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any, Final

from simulator.api import cel
from simulator.api.errors import Cause, required, shown, unknown_value, wrong
from simulator.api.storage import Json

_KNOWN: Final = frozenset(
    {
        "type", "properties", "additionalProperties", "items", "required", "enum", "minimum",
        "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
        "minItems", "maxItems", "minProperties", "maxProperties", "format", "nullable", "default",
        "description", "title", "example", "externalDocs",
        "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
        "x-kubernetes-validations", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    }
)  # fmt: skip
_RULE_KEYS: Final = frozenset({"rule", "message"})
# Rules are not evaluated for an object with structural errors
# (hasBlockingErr in apiextensions-apiserver/pkg/registry/customresource/strategy.go).
_BLOCKING: Final = frozenset(
    {
        "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid",
        "FieldValueNotSupported",
    }
)  # fmt: skip
_ROOT: Final = "<nil>"
_UNCHECKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation"
)
_TYPES: Final[Mapping[type, str]] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
    float: "number", type(None): "null",
}  # fmt: skip
_WHOLE: Final = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")


def unsupported(schema: Json, path: str = "") -> Iterator[str]:
    """Name the parts of a schema that the simulator does not understand."""
    for key in schema.keys() - _KNOWN:
        yield f"{path or '.'}: {key}"
    for rule in schema.get("x-kubernetes-validations") or ():
        if not _understood(rule):
            yield f"{path or '.'}: the rule {rule.get('rule')!r}"
    if "pattern" in schema and not _compiles(schema["pattern"]):
        yield f"{path or '.'}: the pattern {schema['pattern']!r}"
    for below, more in _children(schema):
        yield from unsupported(more, f"{path}.{below}")


def _understood(rule: Json) -> bool:
    try:
        cel.parse(rule.get("rule", ""))
    except cel.NotUnderstood:
        return False
    return rule.keys() <= _RULE_KEYS


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _children(schema: Json) -> Iterator[tuple[str, Json]]:
    yield from (schema.get("properties") or {}).items()
    if isinstance(schema.get("items"), dict):
        yield "items", schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield "additionalProperties", schema["additionalProperties"]


def prune(value: Any, schema: Json) -> list[str]:
    """Prune unknown fields in place; return their paths."""
    dropped: list[str] = []
    _prune(value, schema, "", dropped)
    return dropped


def _prune(value: Any, schema: Json, path: str, dropped: list[str]) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            _prune(item, schema.get("items") or {}, f"{path}[{index}]", dropped)
    if not isinstance(value, dict):
        return
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in list(value):
        below = f"{path}.{key}" if path else key
        if key in known:
            _prune(value[key], known[key], below, dropped)
        elif isinstance(others, dict):
            _prune(value[key], others, below, dropped)
        elif not others and not schema.get("x-kubernetes-preserve-unknown-fields"):
            del value[key]
            dropped.append(below)


def fill_in(value: Any, schema: Json) -> None:
    """Set defaults in place, outer ones first; null counts as missing where not nullable."""
    if isinstance(value, list):
        for item in value:
            fill_in(item, schema.get("items") or {})
    if not isinstance(value, dict):
        return
    for key, below in (schema.get("properties") or {}).items():
        missing = key not in value or (value[key] is None and not below.get("nullable"))
        if "default" in below and missing:
            value[key] = deepcopy(below["default"])
        if key in value:
            fill_in(value[key], below)
    others = schema.get("additionalProperties")
    if isinstance(others, dict):
        for key in value.keys() - (schema.get("properties") or {}).keys():
            fill_in(value[key], others)


def causes(value: Any, schema: Json, path: str = "") -> Iterator[Cause]:
    """Return what is wrong with a value."""
    if value is None and schema.get("nullable"):
        return
    if not _has_type(value, schema):
        yield _mistyped(value, schema, path)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unknown_value(path, value, [str(each) for each in schema["enum"]])
    if isinstance(value, str):
        yield from _text_causes(value, schema, path)
    elif isinstance(value, list):
        yield from _list_causes(value, schema, path)
    elif isinstance(value, dict):
        yield from _map_causes(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_causes(value, schema, path)


def rule_causes(value: Any, schema: Json, path: str = "", *, old: Any = None) -> Iterator[Cause]:
    """Return which rules a value breaks; transition rules need the old value."""
    for rule in schema.get("x-kubernetes-validations") or ():
        expression = cel.parse(rule["rule"])
        if old is not None or not expression.transition:
            yield from _broken(rule, expression, value, old, schema, path)
    if isinstance(value, dict):
        yield from _member_rule_causes(value, schema, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        # Items of an atomic list have no old value.
        for index, item in enumerate(value):
            yield from rule_causes(item, schema.get("items") or {}, f"{path}[{index}]")


def _member_rule_causes(value: Json, schema: Json, path: str, old: Json) -> Iterator[Cause]:
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in sorted(value):
        below = known.get(key) or (others if isinstance(others, dict) else None)
        if below is not None and value[key] is not None:
            at = f"{path}.{key}" if path else key
            yield from rule_causes(value[key], below, at, old=old.get(key))


def _broken(
    rule: Json, expression: cel.Expression, value: Any, old: Any, schema: Json, path: str
) -> Iterator[Cause]:
    message = (rule.get("message") or "").strip()
    try:
        if expression.holds(value, old):
            return
    except cel.NoSuchKey as error:
        kind = schema.get("type", "")
        yield wrong(path, kind, f"{error} evaluating rule: {message or rule['rule']}")
        return
    path = path or _ROOT
    why = message or f"failed rule: {rule['rule'].strip()}"
    if schema.get("type") in ("object", "array"):
        yield Cause("FieldValueInvalid", f"Invalid value: {why}", path)
    else:
        yield wrong(path, value, why)


def all_causes(value: Any, schema: Json, *, root: Any, old: Any = None) -> Iterator[Cause]:
    """Return everything that is wrong with an object.

    `root` is the object as its outermost rules see it, which is with its metadata, and
    `old` what it replaces, seen alike.
    """
    found = list(causes(value, schema))
    yield from found
    if any(cause.reason in _BLOCKING for cause in found):
        if _has_rules(schema):
            yield Cause("FieldValueInvalid", _UNCHECKED, _ROOT)
        return
    yield from rule_causes(root, schema, old=old)


def _has_rules(schema: Json) -> bool:
    return "x-kubernetes-validations" in schema or any(
        _has_rules(below) for _, below in _children(schema)
    )


def _has_type(value: Any, schema: Json) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    wanted, found = schema.get("type"), _TYPES[type(value)]
    if not wanted:
        return True
    return (
        found == wanted or (wanted == "number" and found == "integer") or _is_whole(value, wanted)
    )


def _is_whole(value: Any, wanted: str) -> bool:
    return wanted == "integer" and isinstance(value, float) and value.is_integer()


def _mistyped(value: Any, schema: Json, path: str) -> Cause:
    wanted = "integer,string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
    found = _TYPES[type(value)]
    why = f'{path} in body must be of type {wanted}: "{found}"'
    return Cause("FieldValueTypeInvalid", f'Invalid value: "{found}": {why}', path)


def _text_causes(value: str, schema: Json, path: str) -> Iterator[Cause]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        message = f"Too long: may not be more than {schema['maxLength']} bytes"
        yield Cause("FieldValueTooLong", message, path)
    elif len(value) < schema.get("minLength", 0):
        why = f"{path} in body should be at least {schema['minLength']} chars long"
        yield wrong(path, value, why)
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield wrong(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield wrong(path, value, f"{path} in body must be of type date-time: {shown(value)}")


def _is_time(text: str) -> bool:
    try:
        return "T" in text and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _number_causes(value: float, schema: Json, path: str) -> Iterator[Cause]:
    if "minimum" in schema:
        least, strict = schema["minimum"], schema.get("exclusiveMinimum", False)
        if value < least or (strict and value == least):
            word = "greater than" if strict else "greater than or equal to"
            yield wrong(path, value, f"{path} in body should be {word} {least}")
    if "maximum" in schema:
        most, strict = schema["maximum"], schema.get("exclusiveMaximum", False)
        if value > most or (strict and value == most):
            word = "less than" if strict else "less than or equal to"
            yield wrong(path, value, f"{path} in body should be {word} {most}")


def _list_causes(value: list[Any], schema: Json, path: str) -> Iterator[Cause]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        message = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
        yield Cause("FieldValueTooMany", message, path)
    if len(value) < schema.get("minItems", 0):
        why = f"{path} in body should have at least {schema['minItems']} items"
        yield wrong(path, len(value), why)
    for index, item in enumerate(value):
        yield from causes(item, schema.get("items") or {}, f"{path}[{index}]")
    yield from _repetition_causes(value, schema, path)


def _repetition_causes(value: list[Any], schema: Json, path: str) -> Iterator[Cause]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys")
    if kind not in ("set", "map"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = item if kind == "set" else {key: item.get(key) for key in keys or ()}
        if identity in seen:
            message = f"Duplicate value: {shown(identity)}"
            yield Cause("FieldValueDuplicate", message, f"{path}[{index}]")
        seen.append(identity)


def _map_causes(value: Json, schema: Json, path: str) -> Iterator[Cause]:
    for key in schema.get("required") or ():
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        message = f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        yield Cause("FieldValueTooMany", message, path)
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in sorted(value):
        below = known.get(key) or (others if isinstance(others, dict) else None)
        if below is not None:
            yield from causes(value[key], below, f"{path}.{key}" if path else key)
