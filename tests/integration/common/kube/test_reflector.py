# SPDX-License-Identifier: Apache-2.0
"""A reflector on a good day: lists, watches, windows, bookmarks, bad objects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.stands.reflector import Stand, bookmark, event, reflecting, thing
from tests.support.stands.scripted_api import LiveWatch, Step, no_answer, page, silence, watch


async def test_the_first_list_is_read_page_by_page(tmp_path: Path) -> None:
    steps = (
        page([thing("x", 1, size=1), thing("y", 2, size=2)], "9", token="more"),
        page([thing("z", 3, size=3)], "9"),
    )
    async with reflecting(tmp_path, *steps, page_size=2) as stand:
        await stand.reflector.wait_synced()
        assert stand.shelf.sizes == {"a/x": 1, "a/y": 2, "a/z": 3}
        assert stand.reflector.resource_version == 9
        first, second = stand.api.lists
        assert (first.path, first.params) == ("/api/v1/pods", {"limit": "2"})
        assert second.params == {"limit": "2", "continue": "more"}


async def test_nothing_is_synced_before_the_last_page(tmp_path: Path) -> None:
    async with reflecting(tmp_path, page([thing("x", 1)], "9", token="more")) as stand:
        await stand.eventually(lambda: len(stand.api.lists) == 2)
        assert stand.shelf.sizes == {"a/x": 0}
        assert not stand.reflector.synced
        assert stand.reflector.resource_version is None


async def test_the_watch_starts_where_the_list_ended(tmp_path: Path) -> None:
    async with reflecting(tmp_path, page([], "9")) as stand:
        await stand.watching(1)
        params = dict(stand.api.watches[0].params)
        assert 300 <= int(params.pop("timeoutSeconds")) <= 600
        assert params == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "9"}


async def test_selector_and_namespace_choose_what_is_read(tmp_path: Path) -> None:
    chosen = {"field_selector": "spec.nodeName=n", "namespace": "a"}
    async with reflecting(tmp_path, page([], "9"), selection=chosen) as stand:
        await stand.watching(1)
        for request in stand.api.requests:
            assert request.path == "/api/v1/namespaces/a/pods"
            assert request.params["fieldSelector"] == "spec.nodeName=n"


async def test_events_are_applied_as_they_come(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([thing("x", 1, size=1)], "9"), live) as stand:
        live.send(event("ADDED", "y", 10, size=2))
        live.send(event("MODIFIED", "x", 11, size=5))
        await stand.holds(x=5, y=2)
        live.send(event("DELETED", "x", 12, size=5))
        await stand.holds(y=2)
        assert stand.reflector.resource_version == 12
        assert stand.figure("evenkeel_reflector_events_total", type="MODIFIED") == 1
        assert stand.figure("evenkeel_reflector_lists_total") == 1
        assert stand.figure("evenkeel_reflector_watches_total") == 1


async def test_the_version_is_never_ahead_of_the_sink(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([thing("x", 1)], "9"), live) as stand:
        seen: list[int | None] = []
        await stand.watching(1)
        stand.shelf.on_upsert = lambda _: seen.append(stand.reflector.resource_version)
        live.send(event("ADDED", "y", 10))
        live.send(event("ADDED", "z", 11))
        await stand.holds(x=0, y=0, z=0)
        assert seen == [9, 10]
        assert stand.reflector.resource_version == 11


async def test_a_watch_that_ends_in_time_goes_on_without_a_pause(tmp_path: Path) -> None:
    first, second = LiveWatch(), LiveWatch()
    async with reflecting(tmp_path, page([], "9"), first, second) as stand:
        await stand.watching(1)
        await stand.clock.advance(100)
        first.send(event("ADDED", "x", 10))
        first.end()
        await stand.watching(2)
        assert stand.api.watches[1].params["resourceVersion"] == "10"
        assert len(stand.api.lists) == 1


async def test_a_quiet_day_costs_no_list(tmp_path: Path) -> None:
    live, version = LiveWatch(), 1000
    async with reflecting(tmp_path, page([thing("x", 1)], str(version)), live) as stand:
        await stand.watching(1)
        began_s = stand.clock.monotonic()
        for _ in range(24 * 60):
            await stand.clock.advance(60)
            version += 1
            live.send(bookmark(version))
            await _reached(stand, version)
            assert stand.reflector.synced
            window_s = int(stand.api.watches[-1].params["timeoutSeconds"])
            if stand.clock.monotonic() + 60 > began_s + window_s:
                began_s, live = stand.clock.monotonic(), await _next_watch(stand, live)
                assert stand.api.watches[-1].params["resourceVersion"] == str(version)
        assert len(stand.api.lists) == 1
        assert 144 <= len(stand.api.watches) <= 290
        assert stand.shelf.sizes == {"a/x": 0}
        assert stand.figure("evenkeel_reflector_events_total", type="BOOKMARK") == 24 * 60


async def _next_watch(stand: Stand, ended: LiveWatch) -> LiveWatch:
    count, live = len(stand.api.watches), LiveWatch()
    stand.api.then(live)
    ended.end()
    await stand.watching(count + 1)
    return live


async def _reached(stand: Stand, version: int) -> None:
    await stand.eventually(lambda: stand.reflector.resource_version == version)


async def test_a_server_that_forgets_to_end_a_watch_is_left(tmp_path: Path) -> None:
    async with reflecting(tmp_path, page([], "9"), silence, silence) as stand:
        await stand.watching(1)
        window_s = int(stand.api.watches[0].params["timeoutSeconds"])
        await stand.clock.advance(window_s + 14)
        assert len(stand.api.watches) == 1
        await stand.clock.advance(1)
        await stand.watching(2)
        assert stand.api.watches[1].params["resourceVersion"] == "9"
        await stand.eventually(lambda: stand.api.connections == 1)


async def test_an_object_larger_than_any_buffer_is_read(tmp_path: Path) -> None:
    filling = "x" * (8 << 20)
    steps = (page([], "9"), watch(event("ADDED", "large", 10, filling=filling), ending="stay"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.holds(large=0)
        assert stand.shelf.fillings["a/large"] == filling


async def test_a_cache_that_hears_nothing_is_not_synced(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([], "9"), live, stale_after_s=120) as stand:
        await stand.reflector.wait_synced()
        await stand.watching(1)
        await stand.clock.advance(120)
        assert stand.reflector.synced
        await stand.clock.advance(1)
        assert not stand.reflector.synced
        assert stand.figure("evenkeel_cache_staleness_seconds") == 121
        waiting = asyncio.create_task(stand.reflector.wait_synced())
        live.send(bookmark(10))
        await waiting
        assert stand.reflector.synced
        assert stand.figure("evenkeel_cache_staleness_seconds") == 0


async def test_jumps_of_the_wall_clock_change_nothing(tmp_path: Path) -> None:
    live, later = LiveWatch(), LiveWatch()
    async with reflecting(tmp_path, page([thing("x", 1)], "9"), live, later) as stand:
        await stand.watching(1)
        for jump_s in (1e7, -2e7):
            stand.clock.jump_wall(jump_s)
            await stand.clock.advance(1)
            assert stand.reflector.synced
            assert stand.reflector.staleness_s() <= 2
        live.send(event("ADDED", "y", 10))
        await stand.holds(x=0, y=0)
        live.end()
        stand.clock.jump_wall(-1e7)
        await stand.watching(2)
        later.send(event("DELETED", "y", 11))
        await stand.holds(x=0)
        assert len(stand.api.requests) == 3


@pytest.mark.parametrize(
    ("bad", "cause"),
    [({"size": "large"}, "undecodable"), ({"size": -1}, "nonsense")],
    ids=["undecodable", "nonsense"],
)
async def test_a_bad_object_in_a_list_is_skipped_and_counted(
    tmp_path: Path, bad: dict[str, Any], cause: str
) -> None:
    items = [thing("x", 1, size=1), thing("bad", 2, **bad), thing("y", 3, size=3)]
    with capture_logs() as logs:
        async with reflecting(tmp_path, page(items, "9")) as stand:
            await stand.reflector.wait_synced()
            assert stand.shelf.sizes == {"a/x": 1, "a/y": 3}
            assert stand.figure("evenkeel_objects_skipped_total", cause=cause) == 1
    (told,) = [entry for entry in logs if entry["event"] == "object skipped"]
    assert (told["log_level"], told["kind"], told["object"]) == ("warning", "Pod", "a/bad")


@pytest.mark.parametrize("bad", [{"size": "large"}, {"size": -1}], ids=["undecodable", "nonsense"])
async def test_a_bad_object_in_a_watch_is_forgotten_until_it_is_fixed(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    live = LiveWatch()
    with capture_logs() as logs:
        async with reflecting(tmp_path, page([thing("x", 1, size=1)], "9"), live) as stand:
            live.send(event("MODIFIED", "x", 10, **bad))
            live.send(event("MODIFIED", "x", 11, **bad))
            await _reached(stand, 11)
            assert stand.shelf.sizes == {}
            assert stand.shelf.forgotten == ["a/x"]
            live.send(event("MODIFIED", "x", 12, size=2))
            await stand.holds(x=2)
            live.send(event("MODIFIED", "x", 13, **bad))
            await stand.holds()
            assert len(stand.api.requests) == 2
    assert [entry["event"] for entry in logs].count("object skipped") == 2


async def test_a_bad_object_that_is_deleted_is_forgotten(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([thing("x", 1)], "9"), live) as stand:
        live.send(event("DELETED", "x", 10, size="large"))
        await stand.holds()
        await _reached(stand, 10)


async def test_an_object_without_a_name_does_not_stop_the_watch(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([], "9"), live) as stand:
        live.send({"type": "ADDED", "object": {"metadata": 5}})
        live.send(event("ADDED", "x", 11))
        await stand.holds(x=0)
        assert len(stand.api.requests) == 2


@pytest.mark.parametrize(
    "steps",
    [(no_answer,), (page([], "9"), silence), (page([], "9"), watch(ending="reset"))],
    ids=["listing", "watching", "pausing"],
)
async def test_cancelling_ends_cleanly(tmp_path: Path, steps: tuple[Step, ...]) -> None:
    async with reflecting(tmp_path, *steps) as stand:
        await stand.eventually(lambda: len(stand.api.requests) == len(steps))
        stand.task.cancel()
        await asyncio.wait([stand.task])
        assert stand.task.cancelled()
        idle = 1 if stand.api.lists and len(steps) > 1 else 0
        await stand.api.until(lambda: stand.api.connections <= idle)
        assert stand.clock.sleeping == 0
