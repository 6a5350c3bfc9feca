# SPDX-License-Identifier: Apache-2.0
"""Structural schemas: pruning, defaults, validation, and what is not understood."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.api import schema as schemas
from simulator.api.storage import Json


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "value", "kept", "dropped"),
    [
        (_object(a=TEXT), {"a": "x", "b": 1}, {"a": "x"}, ["b"]),
        (_object(a=_object(b=TEXT)), {"a": {"c": 1}}, {"a": {}}, ["a.c"]),
        (
            _object(a={"type": "array", "items": _object(b=TEXT)}),
            {"a": [{"b": "x", "c": 1}, {}]},
            {"a": [{"b": "x"}, {}]},
            ["a[0].c"],
        ),
        (
            {"type": "object", "additionalProperties": _object(b=TEXT)},
            {"any": {"b": "x", "c": 1}},
            {"any": {"b": "x"}},
            ["any.c"],
        ),
        ({"type": "object", "additionalProperties": True}, {"a": 1}, {"a": 1}, []),
        (
            {**_object(a=_object()), "x-kubernetes-preserve-unknown-fields": True},
            {"b": 1, "a": {"c": 2}},
            {"b": 1, "a": {}},
            ["a.c"],
        ),
    ],
)
def test_unknown_fields_are_pruned(schema: Json, value: Any, kept: Any, dropped: list[str]) -> None:
    assert schemas.prune(value, schema) == dropped
    assert value == kept


@pytest.mark.parametrize(
    ("schema", "value", "filled"),
    [
        (_object(a={**NUMBER, "default": 2}), {}, {"a": 2}),
        (_object(a={**NUMBER, "default": 2}), {"a": 3}, {"a": 3}),
        (_object(a={**NUMBER, "default": 2}), {"a": None}, {"a": 2}),
        (_object(a={**NUMBER, "default": 2, "nullable": True}), {"a": None}, {"a": None}),
        (_object(a={**_object(b={**NUMBER, "default": 1}), "default": {}}), {}, {"a": {"b": 1}}),
        (_object(a=_object(b={**NUMBER, "default": 1})), {}, {}),
        (
            _object(a={"type": "array", "items": _object(b={**NUMBER, "default": 1})}),
            {"a": [{}]},
            {"a": [{"b": 1}]},
        ),
        (
            {"type": "object", "additionalProperties": _object(b={**NUMBER, "default": 1})},
            {"x": {}},
            {"x": {"b": 1}},
        ),
    ],
)
def test_defaults_are_filled_in(schema: Json, value: Any, filled: Any) -> None:
    schemas.fill_in(value, schema)
    assert value == filled


def test_a_default_is_not_shared_between_objects() -> None:
    schema = _object(a={**_object(b=NUMBER), "default": {}})
    first: Json = {}
    schemas.fill_in(first, schema)
    first["a"]["b"] = 1
    second: Json = {}
    schemas.fill_in(second, schema)
    assert second == {"a": {}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT, "x"),
        ({**TEXT, "nullable": True}, None),
        (NUMBER, 3),
        (NUMBER, 3.0),
        ({"type": "number"}, 3),
        ({"type": "boolean"}, True),
        ({}, ["anything"]),
        ({"x-kubernetes-int-or-string": True}, 5),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({**TEXT, "format": "date-time"}, "2026-11-16T09:25:53Z"),
        ({**NUMBER, "minimum": 1, "maximum": 1}, 1),
        ({"type": "array", "x-kubernetes-list-type": "set"}, [1, 2]),
    ],
)
def test_good_values_pass(schema: Json, value: Any) -> None:
    assert list(schemas.causes(value, schema, "x")) == []


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (TEXT, 1, "FieldValueTypeInvalid"),
        (TEXT, None, "FieldValueTypeInvalid"),
        (NUMBER, True, "FieldValueTypeInvalid"),
        (NUMBER, 1.5, "FieldValueTypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, True, "FieldValueTypeInvalid"),
        ({**TEXT, "enum": ["a"]}, "b", "FieldValueNotSupported"),
        ({**TEXT, "minLength": 2}, "a", "FieldValueInvalid"),
        ({**TEXT, "maxLength": 2}, "abc", "FieldValueTooLong"),
        ({**TEXT, "pattern": "^a+$"}, "b", "FieldValueInvalid"),
        ({**TEXT, "format": "date-time"}, "2026-11-16", "FieldValueInvalid"),
        ({**TEXT, "format": "date-time"}, "2026-11-16T09:25:53", "FieldValueInvalid"),
        ({**NUMBER, "minimum": 1}, 0, "FieldValueInvalid"),
        ({**NUMBER, "minimum": 1, "exclusiveMinimum": True}, 1, "FieldValueInvalid"),
        ({**NUMBER, "maximum": 1}, 2, "FieldValueInvalid"),
        ({**NUMBER, "maximum": 1, "exclusiveMaximum": True}, 1, "FieldValueInvalid"),
        ({"type": "array", "maxItems": 1}, [1, 2], "FieldValueTooMany"),
        ({"type": "array", "minItems": 1}, [], "FieldValueInvalid"),
        ({"type": "array", "items": TEXT}, [1], "FieldValueTypeInvalid"),
        ({"type": "array", "x-kubernetes-list-type": "set"}, [1, 1], "FieldValueDuplicate"),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a"],
            },
            [{"a": 1}, {"a": 1, "b": 2}],
            "FieldValueDuplicate",
        ),
        ({"type": "object", "required": ["a"]}, {}, "FieldValueRequired"),
        ({"type": "object", "maxProperties": 1}, {"a": 1, "b": 2}, "FieldValueTooMany"),
        ({"type": "object", "additionalProperties": TEXT}, {"a": 1}, "FieldValueTypeInvalid"),
        (_object(a=_object(b=TEXT)), {"a": {"b": 1}}, "FieldValueTypeInvalid"),
    ],
)
def test_bad_values_have_a_cause(schema: Json, value: Any, reason: str) -> None:
    (cause,) = schemas.causes(value, schema, "x")
    assert cause.reason == reason
    assert cause.field.startswith("x")


def test_an_unchanging_part_is_held_to_it() -> None:
    rule = {"rule": "self == oldSelf", "message": "no"}
    schema = _object(a={**_object(b=NUMBER), "x-kubernetes-validations": [rule]})
    old = {"a": {"b": 1}}
    assert list(schemas.rule_causes({"a": {"b": 1}}, schema, old=old)) == []
    (cause,) = schemas.rule_causes({"a": {"b": 2}}, schema, old=old)
    assert (cause.field, cause.message) == ("a", "Invalid value: no")


def test_nothing_is_unchanging_before_it_exists() -> None:
    schema = _object(a={**NUMBER, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]})
    assert list(schemas.rule_causes({"a": 1}, schema)) == []
    assert list(schemas.rule_causes({"a": 1}, schema, old={})) == []


RULED = _object(
    a=TEXT,
    b={
        **_object(c=TEXT, d=TEXT),
        "x-kubernetes-validations": [
            {"rule": "self.c != self.d", "message": "must differ"},
            {"rule": "!has(self.c) || self.c != 'bad'"},
        ],
    },
)


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ({"b": {"c": "x", "d": "y"}}, []),
        ({}, []),
        ({"b": {"c": "x", "d": "x"}}, ["Invalid value: must differ"]),
        (
            {"b": {"d": "x"}},
            ['Invalid value: "object": no such key: c evaluating rule: must differ'],
        ),
        (
            {"b": {"c": "bad", "d": "x"}},
            ["Invalid value: failed rule: !has(self.c) || self.c != 'bad'"],
        ),
    ],
)
def test_rules_are_kept(value: Any, messages: list[str]) -> None:
    found = list(schemas.all_causes(value, RULED, root=value))
    assert [(cause.field, cause.message) for cause in found] == [("b", m) for m in messages]


def test_rules_are_not_asked_about_an_object_of_the_wrong_form() -> None:
    value = {"a": 1, "b": {"c": "x", "d": "x"}}
    causes = list(schemas.all_causes(value, RULED, root=value))
    assert [cause.field for cause in causes] == ["a", "<nil>"]
    assert "some validation rules were not checked" in causes[1].message


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"oneOf": []}, ".: oneOf"),
        (_object(a={"not": {}}), ".a: not"),
        ({"type": "array", "items": {"anyOf": []}}, ".items: anyOf"),
        ({"additionalProperties": {"allOf": []}}, ".additionalProperties: allOf"),
        ({"x-kubernetes-validations": [{"rule": "self > 1"}]}, ".: the rule 'self > 1'"),
        (
            {"x-kubernetes-validations": [{"rule": "self.a", "messageExpression": "'x'"}]},
            ".: the rule 'self.a'",
        ),
        ({"pattern": "("}, ".: the pattern '('"),
        ({"x-kubernetes-embedded-resource": True}, ".: x-kubernetes-embedded-resource"),
    ],
)
def test_what_is_not_understood_is_named(schema: Json, named: str) -> None:
    assert list(schemas.unsupported(schema)) == [named]


def test_what_is_understood_is_not_named() -> None:
    rule = {"rule": "self == oldSelf"}
    schema = _object(a={**TEXT, "pattern": "^a$", "x-kubernetes-validations": [rule]})
    assert list(schemas.unsupported(schema)) == []
