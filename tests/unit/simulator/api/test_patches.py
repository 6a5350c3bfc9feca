# SPDX-License-Identifier: Apache-2.0
"""Patches, by their RFCs and by what kubectl expects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube.api import PatchKind
from simulator.api.errors import BadRequest, Invalid, Refusal, UnsupportedMedia
from simulator.api.patches import Patch, apply_patch, kind_of, merge
from simulator.api.strategic import strategic_merge

# The examples of RFC 7396, appendix A.
_RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "expected"), _RFC_7396)
def test_merge_patches_follow_the_rfc(target: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(target)
    assert merge(target, patch) == expected
    assert target == before


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=2), below, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2), _JSON, max_size=4), _JSON)
def test_a_merge_patch_applied_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = merge(target, patch)
    assert merge(once, patch) == once


_OPERATIONS = [
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}),
    ({"a": [{"b": 1}]}, [{"op": "replace", "path": "/a/0/b", "value": 2}], {"a": [{"b": 2}]}),
    ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
    ({"a": {"c": 1}}, [{"op": "copy", "from": "/a/c", "path": "/b"}], {"a": {"c": 1}, "b": 1}),
    ({"~/": 1}, [{"op": "test", "path": "/~0~1", "value": 1}], {"~/": 1}),
    ({"a": [{"b": 1}]}, [{"op": "remove", "path": "/a/0/b"}], {"a": [{}]}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
]


@pytest.mark.parametrize(("target", "operations", "expected"), _OPERATIONS)
def test_json_patches_follow_the_rfc(target: Any, operations: Any, expected: Any) -> None:
    before = copy.deepcopy(target)
    assert apply_patch(Patch(PatchKind.JSON, operations), target) == expected
    assert target == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/5", "value": 1},
        {"op": "add", "path": "/a/01", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "add", "path": "/a/0"},
        {"op": "remove", "path": "/a/-1"},
        {"op": "remove", "path": "/b"},
        {"op": "test", "path": "/a/0", "value": 2},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "dance", "path": "/a", "from": "/a"},
        {"op": "replace", "path": "", "value": 1},
        {"path": "/a"},
        "nonsense",
    ],
)
def test_json_patches_that_do_not_apply_are_invalid(operation: Any) -> None:
    with pytest.raises(Invalid):
        apply_patch(Patch(PatchKind.JSON, [operation]), {"a": [1]})


def test_a_flood_of_operations_is_too_large() -> None:
    operations = [{"op": "test", "path": "/a", "value": 1}] * 10_001
    with pytest.raises(Refusal) as refused:
        apply_patch(Patch(PatchKind.JSON, operations), {"a": 1})
    assert refused.value.code == 413


@pytest.mark.parametrize("body", [[], 1, "x", None])
def test_patches_must_be_objects(body: Any) -> None:
    for kind in (PatchKind.MERGE, PatchKind.STRATEGIC):
        with pytest.raises(BadRequest):
            apply_patch(Patch(kind, body), {})


@pytest.mark.parametrize(
    ("content_type", "custom", "expected"),
    [
        ("application/merge-patch+json", True, PatchKind.MERGE),
        ("application/json-patch+json; charset=utf-8", True, PatchKind.JSON),
        ("application/strategic-merge-patch+json", False, PatchKind.STRATEGIC),
        ("application/strategic-merge-patch+json", True, None),
        ("application/json", False, None),
        ("", False, None),
    ],
)
def test_the_content_type_says_how_a_patch_is_meant(
    content_type: str, custom: bool, expected: PatchKind | None
) -> None:
    if expected is None:
        with pytest.raises(UnsupportedMedia):
            kind_of(content_type, custom=custom)
    else:
        assert kind_of(content_type, custom=custom) is expected


_CONTAINERS = {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": {"b": 1}}, {"a": {"b": None}}, {"a": {}}),
        ({"args": [1, 2]}, {"args": [3]}, {"args": [3]}),
        (
            _CONTAINERS,
            {"containers": [{"name": "b", "image": "3"}]},
            {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]},
        ),
        (
            _CONTAINERS,
            {"containers": [{"name": "c", "image": "3"}]},
            {
                "containers": [
                    {"name": "c", "image": "3"},
                    {"name": "a", "image": "1"},
                    {"name": "b", "image": "2"},
                ]
            },
        ),
        (
            _CONTAINERS,
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": [{"name": "b", "image": "2"}]},
        ),
        (
            _CONTAINERS,
            {"containers": [{"$patch": "replace"}, {"name": "z", "image": "9"}]},
            {"containers": [{"name": "z", "image": "9"}]},
        ),
        (
            _CONTAINERS,
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            {"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}]},
        ),
        ({"finalizers": ["a"]}, {"finalizers": ["b"]}, {"finalizers": ["b", "a"]}),
        (
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
        ),
        ({"a": 1, "b": 2}, {"$patch": "replace", "c": 3}, {"c": 3}),
        ({"x": {"a": 1}}, {"x": {"$patch": "delete"}}, {"x": {}}),
        (
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
        ),
        (
            {"ports": [{"containerPort": 80, "name": "a"}]},
            {"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]},
            {"ports": [{"containerPort": 80, "name": "b"}, {"containerPort": 81}]},
        ),
        (
            {"ports": [{"port": 80, "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}]},
            {"ports": [{"port": 80, "name": "b"}]},
        ),
    ],
)
def test_strategic_patches_merge_by_key(original: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy(original)
    assert strategic_merge(original, patch) == expected
    assert original == before


@pytest.mark.parametrize(
    "patch", [{"containers": [{"image": "1"}]}, {"containers": ["x"]}, {"a": {"$patch": "dance"}}]
)
def test_strategic_patches_that_make_no_sense_are_refused(patch: Any) -> None:
    with pytest.raises(Refusal):
        strategic_merge({"containers": [{"name": "a"}], "a": {}}, patch)
