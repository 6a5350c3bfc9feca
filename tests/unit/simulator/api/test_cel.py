# SPDX-License-Identifier: Apache-2.0
"""The part of CEL that the simulator understands, and that it refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.api import cel

OBJECT = {"a": "x", "b": "y", "list": ["x", "z"], "in": {"side": 5}, "on": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("self.a == 'x'", True),
        ('self.a == "x"', True),
        ("self.a != self.b", True),
        ("self.a in self.list", True),
        ("!(self.b in self.list)", True),
        ("self.in.side == 5", True),
        ("self.on", True),
        ("self.on == true", True),
        ("self.on == false", False),
        ("!!self.on", True),
        ("has(self.a)", True),
        ("has(self.nothing)", False),
        ("has(self.in.side) && self.in.side == 5", True),
        ("has(self.nothing) != has(self.a)", True),
        ("!has(self.nothing) || self.nothing == 'x'", True),
        # && binds tighter than ||.
        ("true || false && false", True),
        ("(true || false) && false", False),
        # What decides is enough, wherever it stands.
        ("self.nothing == 'x' || true", True),
        ("self.nothing == 'x' && false", False),
        ("  self.a  ==  'x'  ", True),
    ],
)
def test_expressions_hold_or_not(text: str, holds: bool) -> None:
    assert cel.parse(text).holds(OBJECT) is holds


@pytest.mark.parametrize("text", ["self.nothing", "self.nothing == 'x' || false", "self.a.b == 1"])
def test_a_missing_field_is_an_error(text: str) -> None:
    with pytest.raises(cel.NoSuchKey, match="no such key"):
        cel.parse(text).holds(OBJECT)


@pytest.mark.parametrize(("old", "holds"), [({"a": 1}, True), ({"a": 2}, False)])
def test_old_and_new_are_compared(old: Any, holds: bool) -> None:
    rule = cel.parse("self == oldSelf")
    assert rule.transition
    assert rule.holds({"a": 1}, old) is holds
    assert not cel.parse("self.a == 'oldSelf'").transition


@pytest.mark.parametrize(
    "text",
    [
        "",
        "self.a > 1",
        "self.a ==",
        "self.a == 'x",
        "self.a == 1.5",
        "self.size() > 3",
        "self.list.all(x, x == 'y')",
        "self.list[0] == 'x'",
        "other.a == 'x'",
        "self.a ? true : false",
        "has(self)",
        "has('x')",
        "has(self.a",
        "(self.a == 'x'",
        "self.a == 'x' 'y'",
        "self.'a' == 'x'",
        "self.a == 'it\\'s'",
        "self.a + 'x' == 'xx'",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(cel.NotUnderstood):
        cel.parse(text)
