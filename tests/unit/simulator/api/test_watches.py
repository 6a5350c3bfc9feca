# SPDX-License-Identifier: Apache-2.0
"""One client's view of changes, without a connection."""

from __future__ import annotations

import json
import random

import pytest

from common.kube.resources import PODS
from simulator import build
from simulator.api import Json, Store, watches
from simulator.api.kubectl.presentation import Presenter
from simulator.api.lists import ListOptions, StreamOptions
from simulator.api.watches import Watch
from tests.support.clock import FakeClock


@pytest.fixture
def store() -> Store:
    return Store(clock=FakeClock(), rng=random.Random(1))


def _watch(store: Store, *, version: str = "", bookmarks: bool = False) -> Watch:
    kind = store.kind(PODS)
    chosen = ListOptions(version=version, watch=True, stream=StreamOptions(bookmarks=bookmarks))
    return Watch(store.storage, kind, "default", chosen, Presenter(kind))


def _events(watch: Watch) -> list[Json]:
    return [json.loads(line) for line in watch.take().splitlines()]


def _brief(watch: Watch) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in _events(watch)]


async def test_nothing_is_told_twice(store: Store) -> None:
    version = str(store.resource_version)
    store.create(PODS, build.pod("a"))
    watch = _watch(store, version=version)
    assert _brief(watch) == [("ADDED", "a")]
    store.create(PODS, build.pod("b"))
    assert _brief(watch) == [("ADDED", "b")]
    assert watch.take() == b""


async def test_a_bookmark_comes_only_with_news(store: Store) -> None:
    store.create(PODS, build.pod("a"))
    watch = _watch(store, bookmarks=True)
    assert _brief(watch) == [("ADDED", "a")]
    watch.bookmark()
    assert watch.take() == b""
    store.create(PODS, build.pod("b", namespace="kube-system"))
    watch.bookmark()
    (event,) = _events(watch)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"] == {"resourceVersion": str(store.resource_version)}
    watch.bookmark()
    assert watch.take() == b""


async def test_an_ended_watch_hears_nothing_more(store: Store) -> None:
    watch = _watch(store)
    watch.end()
    store.create(PODS, build.pod("a"))
    assert watch.take() == b""
    await watch.wait()


async def test_a_client_that_does_not_read_loses_its_watch(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "_LONGEST_BACKLOG", 3)
    watch = _watch(store)
    for name in "abcdefg":
        store.create(PODS, build.pod(name))
    assert watch.ended
    assert len(_events(watch)) == 4


async def test_a_version_that_history_no_longer_reaches_ends_the_watch() -> None:
    store = Store(clock=FakeClock(), rng=random.Random(1), history=2)
    version = str(store.resource_version)
    for name in "abc":
        store.create(PODS, build.pod(name))
    watch = _watch(store, version=version)
    (event,) = _events(watch)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert watch.ended
