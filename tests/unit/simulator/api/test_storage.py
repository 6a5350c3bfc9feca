# SPDX-License-Identifier: Apache-2.0
"""Versioned storage: order, history, and values that never change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kube.resources import NODES, PODS
from simulator.api.storage import Change, EventType, Json, Storage, key_of, namespace_of


def _obj(name: str, **more: Any) -> Json:
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, **more}


def test_versions_count_every_change_of_every_kind() -> None:
    storage = Storage()
    first = storage.put(PODS, "a/x", _obj("x")).version
    assert storage.put(NODES, "n", _obj("n")).version == first + 1
    assert storage.remove(PODS, "a/x").version == first + 2
    assert storage.version == first + 2


def test_what_was_read_never_changes() -> None:
    storage = Storage()
    first = storage.put(PODS, "a/x", _obj("x", size=1))
    storage.put(PODS, "a/x", _obj("x", size=2))
    assert first.obj["size"] == 1
    assert json.loads(first.data)["size"] == 1


def test_bytes_are_encoded_once() -> None:
    entry = Storage().put(PODS, "a/x", _obj("x"))
    assert entry.data is entry.data
    assert json.loads(entry.data) == entry.obj
    assert entry.data.startswith(b'{"kind":"Pod","apiVersion":"v1",')


def test_subscribers_see_changes_in_order() -> None:
    storage = Storage()
    seen: list[tuple[str, str]] = []
    storage.subscribe(PODS, lambda change: seen.append((change.type, change.entry.key)))
    storage.put(PODS, "a/x", _obj("x"))
    storage.put(PODS, "a/x", _obj("x", size=2))
    storage.remove(PODS, "a/x")
    storage.put(NODES, "n", _obj("n"))
    assert seen == [("ADDED", "a/x"), ("MODIFIED", "a/x"), ("DELETED", "a/x")]


def test_a_subscriber_that_writes_does_not_disturb_the_order() -> None:
    storage = Storage()
    seen: list[int] = []

    def writer(change: Change) -> None:
        if change.type is EventType.ADDED and change.entry.key == "a/x":
            storage.put(PODS, "a/y", _obj("y"))

    storage.subscribe(PODS, writer)
    storage.subscribe(PODS, lambda change: seen.append(change.version))
    storage.put(PODS, "a/x", _obj("x"))
    assert seen == sorted(seen)
    assert len(seen) == 2


def test_an_unsubscribed_one_hears_nothing_more() -> None:
    storage = Storage()
    seen: list[Change] = []
    stop = storage.subscribe(PODS, seen.append)
    storage.put(PODS, "a/x", _obj("x"))
    stop()
    storage.put(PODS, "a/y", _obj("y"))
    assert len(seen) == 1


def test_replay_tells_what_exists() -> None:
    storage = Storage()
    storage.put(PODS, "a/x", _obj("x"))
    seen: list[Change] = []
    storage.subscribe(PODS, seen.append, replay=True)
    assert [(change.type, change.entry.key) for change in seen] == [("ADDED", "a/x")]


def test_the_past_can_be_seen_until_it_is_compacted() -> None:
    storage = Storage()
    storage.put(PODS, "a/x", _obj("x"))
    then = storage.version
    storage.put(PODS, "a/y", _obj("y"))
    storage.remove(PODS, "a/x")
    collection = storage.collection(PODS)
    assert set(collection.at(then, None)) == {"a/x"}
    assert set(collection.at(storage.version, None)) == {"a/y"}
    assert len(collection.since(then)) == 2
    storage.compact()
    assert collection.compacted == storage.version
    assert collection.since(storage.version) == []


def test_history_is_bounded() -> None:
    storage = Storage(history=3)
    for index in range(10):
        storage.put(PODS, f"a/{index}", _obj(str(index)))
    collection = storage.collection(PODS)
    assert len(collection.since(0)) == 3
    assert collection.compacted == storage.version - 3


def test_owners_are_known_by_uid() -> None:
    storage = Storage()
    owner = {"uid": "1", "kind": "ReplicaSet", "name": "rs"}
    owned = _obj("x")
    owned["metadata"]["ownerReferences"] = [owner]
    storage.put(PODS, "a/x", owned)
    assert [entry.key for _, entry in storage.owned_by("1")] == ["a/x"]
    storage.put(PODS, "a/x", _obj("x"))
    assert list(storage.owned_by("1")) == []
    storage.put(PODS, "a/x", owned)
    storage.remove(PODS, "a/x")
    assert list(storage.owned_by("1")) == []


@pytest.mark.parametrize(("namespace", "name"), [("a", "x"), (None, "x")])
def test_a_key_names_its_namespace(namespace: str | None, name: str) -> None:
    assert namespace_of(key_of(namespace, name)) == (namespace or "")


_STEPS = st.lists(st.tuples(st.sampled_from("xyz"), st.booleans()), max_size=30)


@given(_STEPS, st.integers(0, 30))
def test_any_moment_of_the_past_is_shown_as_it_was(
    steps: list[tuple[str, bool]], moment: int
) -> None:
    storage = Storage()
    collection = storage.collection(PODS)
    moments: list[tuple[int, set[str]]] = [(storage.version, set())]
    for name, remove in steps:
        key = f"a/{name}"
        if remove and key in collection.entries:
            storage.remove(PODS, key)
        else:
            storage.put(PODS, key, _obj(name))
        moments.append((storage.version, set(collection.entries)))
    version, expected = moments[moment % len(moments)]
    assert set(collection.at(version, None)) == expected
    assert set(collection.at(version, "a")) == expected
    assert set(collection.at(version, "b")) == set()
