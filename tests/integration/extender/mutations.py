# SPDX-License-Identifier: Apache-2.0
"""Requests of kube-scheduler with something wrong in them.

A question is a tree in which an object is a list of pairs, so that it may hold a key twice,
and a leaf may be any bytes, so that it need not be JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from tests.support.stands.extender_service import args, full_args, preemption_args

Tree = Any  # Pairs, list, bytes or a JSON leaf
Spot = tuple[Any, int]
"""A container and the index of one of its entries."""


class Pairs(list[tuple[str, Tree]]):
    """An object that may hold a key twice."""


def tree(value: Any) -> Tree:
    """Return a JSON value as a tree."""
    if isinstance(value, dict):
        return Pairs((key, tree(item)) for key, item in value.items())
    return [tree(item) for item in value] if isinstance(value, list) else value


def written(value: Tree) -> bytes:
    """Return a tree as bytes."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, Pairs):
        entries = (json.dumps(key).encode() + b":" + written(item) for key, item in value)
        return b"{" + b",".join(entries) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(written, value)) + b"]"
    return json.dumps(value).encode()


def spots(value: Tree) -> Iterator[Spot]:
    """Return every place of a tree at which something can be changed."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield value, index
            yield from spots(entry[1] if isinstance(value, Pairs) else entry)


def _put(spot: Spot, item: Tree) -> None:
    where, index = spot
    where[index] = (where[index][0], item) if isinstance(where, Pairs) else item


def _got(spot: Spot) -> Tree:
    where, index = spot
    return where[index][1] if isinstance(where, Pairs) else where[index]


def _drop(spot: Spot, _: st.DataObject) -> None:
    where, index = spot
    del where[index]


def _rename(spot: Spot, data: st.DataObject) -> None:
    where, index = spot
    if isinstance(where, Pairs):
        key, item = where[index]
        other = data.draw(st.sampled_from([key.lower(), key.upper(), key.title(), "", "\x00"]))
        where[index] = (other, item)


def _retype(spot: Spot, data: st.DataObject) -> None:
    _put(spot, tree(data.draw(JSON)))


def _spoil(spot: Spot, data: st.DataObject) -> None:
    _put(spot, data.draw(st.sampled_from(LITERALS)))


def _nest(spot: Spot, data: st.DataObject) -> None:
    opening, closing = data.draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
    depth = data.draw(st.sampled_from([1, 50, 5_000]))
    _put(spot, opening * depth + written(_got(spot)) + closing * depth)


def _repeat(spot: Spot, data: st.DataObject) -> None:
    where, index = spot
    where.insert(data.draw(st.integers(0, len(where))), where[index])


LITERALS = [
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e400",
    b"1" * 400,
    b"9223372036854775808",
    b"1.0",
    b"null",
    b"[null]",
    b'{"":null}',
    b'"\xff\xfe"',
    b'"\\ud800"',
    b'"\\ud83d\\ude00"',
    b'"a',
    b"",
    b"\x00",
]
MUTATIONS: tuple[Callable[[Spot, st.DataObject], None], ...] = (
    _drop,
    _rename,
    _retype,
    _spoil,
    _nest,
    _repeat,
)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
_KEYS = st.sampled_from(["Pod", "Nodes", "NodeNames", "metadata", "items", "UID"]) | st.text(
    max_size=4
)
JSON: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=10,
)
PROPER = {
    "filter": [args("a", "closed-1", "b"), full_args("a", "closed-1")],
    "prioritize": [args("a", "bb", "ccc"), full_args("a", "bb")],
    "preempt": [
        preemption_args({"a": ["u1", "u2"], "closed-1": ["u3"]}),
        preemption_args({}, NodeNameToVictims={"a": {"Pods": [], "NumPDBViolations": 1}}),
    ],
}


@st.composite
def mutated(draw: st.DrawFn, verb: str) -> bytes:
    """Return a proper request after one to four mutations."""
    data, question = draw(st.data()), tree(draw(st.sampled_from(PROPER[verb])))
    for mutate in draw(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4)):
        found = list(spots(question))
        if found:
            mutate(draw(st.sampled_from(found)), data)
    return written(question)
