# SPDX-License-Identifier: Apache-2.0
"""A reflector on bad days: each test is one way in which API servers fail."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.stands.reflector import Stand, bookmark, event, reflecting, thing
from tests.support.stands.scripted_api import (
    LiveWatch,
    Step,
    answer,
    page,
    silence,
    status,
    status_object,
    watch,
)

TEN_MINUTES_S = 600.0


def error_event(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": "ERROR", "object": status_object(code, reason, message)}


EXPIRED = status(410, "Expired", "too old resource version: 9 (500)")


async def _pauses_within(stand: Stand, seconds: float) -> list[float]:
    """Let the reflector fail for a while; return the pauses that it made."""
    pauses: list[float] = []
    while sum(pauses) < seconds:
        pauses.append(await stand.clock.pass_pause())
    return pauses


async def test_a_restarted_server_is_watched_on_from_the_last_version(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, page([thing("x", 1)], "9"), live) as stand:
        live.send(event("ADDED", "y", 10))
        await stand.holds(x=0, y=0)
        await stand.api.stop()
        for _ in range(3):
            await stand.clock.pass_pause()
        await stand.clock.until_pausing()
        stand.api.then(watch(event("DELETED", "x", 11), ending="stay"))
        await stand.api.start()
        await stand.clock.pass_pause()
        await stand.holds(y=0)
        assert stand.api.watches[-1].params["resourceVersion"] == "10"
        assert len(stand.api.lists) == 1
        assert stand.figure("evenkeel_reflector_errors_total", cause="Unreachable") >= 3


async def test_a_server_that_is_down_from_the_start_is_waited_for(tmp_path: Path) -> None:
    async with reflecting(tmp_path, status(503)) as stand:
        await stand.eventually(lambda: len(stand.api.requests) == 1)
        await stand.api.stop()
        for _ in range(5):
            await stand.clock.pass_pause()
        await stand.clock.until_pausing()
        assert not stand.reflector.synced
        stand.api.then(page([thing("x", 1)], "9"))
        await stand.api.start()
        await stand.clock.pass_pause()
        await stand.reflector.wait_synced()
        assert stand.shelf.sizes == {"a/x": 0}


@pytest.mark.parametrize("ending", ["reset", "end"])
async def test_a_watch_dropped_in_the_middle_of_an_event_is_resumed(
    tmp_path: Path, ending: str
) -> None:
    half = b'{"type":"ADDED","object":{"metadata":{"name":"y","resourceVersi'
    steps = (
        page([], "9"),
        watch(event("ADDED", "x", 10), cut=half, ending=ending),
        watch(event("ADDED", "y", 11), ending="stay"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0, y=0)
        assert stand.api.watches[1].params["resourceVersion"] == "10"
        assert len(stand.api.lists) == 1


@pytest.mark.parametrize(
    "refusal",
    [EXPIRED, watch(error_event(410, "Expired")), watch(error_event(410, "Gone"))],
    ids=["at once", "as an event", "as an event of old servers"],
)
async def test_an_expired_version_is_answered_with_a_new_list(
    tmp_path: Path, refusal: Step
) -> None:
    steps = (
        page([thing("x", 1, size=1), thing("y", 2, size=2)], "9"),
        refusal,
        page([thing("y", 20, size=3), thing("z", 21, size=4)], "30"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(y=3, z=4)
        assert stand.shelf.forgotten == ["a/x"]
        await stand.watching(2)
        assert stand.api.watches[1].params["resourceVersion"] == "30"
        assert stand.figure("evenkeel_reflector_lists_total") == 2
        assert stand.figure("evenkeel_reflector_errors_total", cause="Gone") == 1


async def test_the_old_version_stands_until_the_new_list_is_whole(tmp_path: Path) -> None:
    steps = (page([thing("x", 1)], "9"), EXPIRED, page([thing("y", 20)], "30", token="more"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.eventually(lambda: len(stand.api.lists) == 3)
        assert stand.reflector.resource_version == 9
        assert stand.shelf.sizes == {"a/x": 0, "a/y": 0}


async def test_a_list_that_expires_between_pages_begins_anew(tmp_path: Path) -> None:
    steps = (
        page([thing("gone", 1)], "9", token="more"),
        status(410, "Expired", "The provided continue parameter is too old"),
        page([thing("x", 20)], "30", token="again"),
        page([thing("y", 21)], "30"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.reflector.wait_synced()
        assert stand.shelf.sizes == {"a/x": 0, "a/y": 0}
        assert stand.reflector.resource_version == 30
        tokens = [request.params.get("continue") for request in stand.api.lists]
        assert tokens == [None, "more", None, "again"]


@pytest.mark.parametrize("trouble", [status(500), status(429), answer(502, b"<p>")])
async def test_a_list_that_stumbles_goes_on_at_the_same_page(tmp_path: Path, trouble: Step) -> None:
    steps = (
        page([thing("x", 1)], "9", token="more"),
        trouble,
        trouble,
        page([thing("y", 2)], "9"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        for _ in range(2):
            await stand.clock.pass_pause()
        await stand.reflector.wait_synced()
        assert stand.shelf.sizes == {"a/x": 0, "a/y": 0}
        tokens = [request.params.get("continue") for request in stand.api.lists]
        assert tokens == [None, "more", "more", "more"]


@pytest.mark.parametrize("code", [500, 503])
async def test_a_storm_of_errors_is_met_with_growing_pauses(tmp_path: Path, code: int) -> None:
    async with reflecting(tmp_path, *[status(code)] * 1000) as stand:
        pauses = await _pauses_within(stand, TEN_MINUTES_S)
        assert all(0.8 <= pause <= 30 for pause in pauses)
        assert len(set(pauses)) == len(pauses)
        # Evenly spread up to 30 s is 15 s on average: 40 requests, and a few quick ones first.
        assert len(pauses) <= 60
        assert len(stand.api.requests) <= len(pauses) + 1


async def test_a_storm_of_refusals_is_met_as_patiently_as_asked(tmp_path: Path) -> None:
    refusal = status(429, "TooManyRequests", headers={"Retry-After": "60"})
    async with reflecting(tmp_path, *[refusal] * 1000) as stand:
        pauses = await _pauses_within(stand, TEN_MINUTES_S)
        assert all(60 <= pause <= 61 for pause in pauses)
        assert len(set(pauses)) == len(pauses)
        assert len(stand.api.requests) <= 11
        assert stand.figure("evenkeel_reflector_errors_total", cause="TooManyRequests") >= 10


async def test_a_watch_is_resumed_after_a_storm_without_a_list(tmp_path: Path) -> None:
    steps = (
        page([], "9"),
        *[status(429, headers={"Retry-After": "1"}), status(500)] * 5,
        watch(event("ADDED", "x", 10), ending="stay"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        for _ in range(10):
            await stand.clock.pass_pause()
        await stand.holds(x=0)
        assert len(stand.api.lists) == 1


async def test_no_server_can_make_us_wait_for_ever(tmp_path: Path) -> None:
    refusal = status(503, headers={"Retry-After": "999999999"})
    async with reflecting(tmp_path, refusal, page([], "9")) as stand:
        assert await stand.clock.pass_pause() <= 301
        await stand.reflector.wait_synced()


async def test_a_silent_connection_is_given_up_and_what_it_hid_is_listed(tmp_path: Path) -> None:
    resumed = watch(event("ADDED", "y", 13), ending="stay")
    steps = (page([], "9"), silence, page([thing("x", 11)], "12"), resumed)
    async with reflecting(tmp_path, *steps, silence_s=0.1) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0, y=0)
        assert stand.api.watches[1].params["resourceVersion"] == "12"


async def test_a_kind_of_which_nothing_happens_stays_synced(tmp_path: Path) -> None:
    """No bookmark comes for it where etcd notifies no progress (seen on a real API server)."""
    steps = [step for _ in range(1000) for step in (page([thing("x", 1)], "9"), silence)]
    async with reflecting(tmp_path, *steps, silence_s=0.25, stale_after_s=60) as stand:
        await stand.reflector.wait_synced()
        await _pauses_within(stand, 200)
        assert stand.reflector.synced
        assert stand.figure("evenkeel_reflector_errors_total", cause="TimedOut") == 0


async def test_a_server_that_falls_silent_and_lists_nothing_makes_us_stale(
    tmp_path: Path,
) -> None:
    broken = status(500, "InternalError", "out of order")
    steps = (page([], "9"), silence, *[broken] * 1000)
    async with reflecting(tmp_path, *steps, silence_s=0.25, stale_after_s=60) as stand:
        await stand.reflector.wait_synced()
        await _pauses_within(stand, 61)
        assert not stand.reflector.synced


async def test_objects_removed_while_disconnected_are_forgotten(tmp_path: Path) -> None:
    live = LiveWatch()
    items = [thing(name, 1) for name in ("x", "y", "z")]
    async with reflecting(tmp_path, page(items, "9"), live) as stand:
        await stand.watching(1)
        await stand.api.stop()
        await stand.clock.until_pausing()
        stand.api.then(EXPIRED, page([thing("y", 5)], "700"))
        await stand.api.start()
        await stand.clock.pass_pause()
        await stand.clock.pass_pause()
        await stand.holds(y=0)
        assert sorted(stand.shelf.forgotten) == ["a/x", "a/z"]
        assert stand.reflector.resource_version == 700


async def test_other_errors_inside_a_watch_are_waited_out(tmp_path: Path) -> None:
    steps = (
        page([], "9"),
        watch(error_event(500, "InternalError", "etcd is down")),
        watch(event("ADDED", "x", 10), ending="stay"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0)
        assert stand.api.watches[1].params["resourceVersion"] == "9"
        assert len(stand.api.lists) == 1


async def test_a_version_from_the_future_is_answered_with_a_list(tmp_path: Path) -> None:
    refusal = status_object(504, "Timeout", "Too large resource version: 9, current: 3")
    refusal["details"] = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
    steps = (page([], "9"), answer(504, refusal), page([thing("x", 2)], "3"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0)
        assert stand.reflector.resource_version == 3


@pytest.mark.parametrize("late", [event("MODIFIED", "x", 4, size=4), bookmark(4)])
async def test_a_history_that_goes_back_is_answered_with_a_list(
    tmp_path: Path, late: dict[str, Any]
) -> None:
    steps = (
        page([thing("x", 8, size=8)], "9"),
        watch(late, ending="stay"),
        page([thing("x", 3, size=3)], "5"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.watching(1)
        await stand.clock.pass_pause()
        await stand.holds(x=3)
        assert stand.reflector.resource_version == 5
        assert stand.figure("evenkeel_reflector_errors_total", cause="Malformed") == 1


async def test_versions_are_compared_as_numbers(tmp_path: Path) -> None:
    steps = (page([], "9"), watch(event("ADDED", "x", 10), event("ADDED", "y", 100), ending="stay"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.holds(x=0, y=0)
        assert len(stand.api.requests) == 2


@pytest.mark.parametrize("events", [(), (bookmark(9),)], ids=["empty", "the same bookmark"])
async def test_watches_that_end_at_once_are_no_busy_loop(
    tmp_path: Path, events: tuple[dict[str, Any], ...]
) -> None:
    async with reflecting(tmp_path, page([], "9"), *[watch(*events)] * 1000) as stand:
        pauses = await _pauses_within(stand, TEN_MINUTES_S)
        assert len(pauses) <= 60
        assert len(stand.api.lists) == 1


async def test_watches_that_end_after_each_event_are_spaced(tmp_path: Path) -> None:
    steps = [watch(event("ADDED", "x", 10 + number)) for number in range(1000)]
    async with reflecting(tmp_path, page([], "9"), *steps) as stand:
        pauses = await _pauses_within(stand, 60)
        assert all(pause >= 0.8 for pause in pauses)


async def test_versions_that_always_expire_are_no_busy_loop(tmp_path: Path) -> None:
    async with reflecting(tmp_path, *[page([], "9"), EXPIRED] * 500) as stand:
        pauses = await _pauses_within(stand, TEN_MINUTES_S)
        assert len(pauses) <= 60


async def test_pauses_begin_small_again_after_a_watch_that_worked(tmp_path: Path) -> None:
    live = LiveWatch()
    async with reflecting(tmp_path, *[status(500)] * 10, page([], "9"), live) as stand:
        for _ in range(10):
            await stand.clock.pass_pause()
        await stand.watching(1)
        live.send(event("ADDED", "x", 10))
        await stand.holds(x=0)
        await stand.api.stop()
        assert await stand.clock.pass_pause() <= 1.6


@pytest.mark.parametrize("code", [403, 404])
async def test_a_refusal_is_told_once_in_the_words_of_the_server(tmp_path: Path, code: int) -> None:
    words = f"pods is refused with {code}"
    with capture_logs() as logs:
        refusal = status(code, "Refused", words)
        other = status(code, "Refused", "other words")
        steps = (*[refusal] * 3, *[other] * 2, page([thing("x", 1)], "9"))
        async with reflecting(tmp_path, *steps) as stand:
            for _ in range(5):
                await stand.clock.pass_pause()
            await stand.reflector.wait_synced()
            assert stand.shelf.sizes == {"a/x": 0}
    told = [entry.get("error", "") for entry in logs if entry["event"] == "reading failed"]
    assert [words in text for text in told] == [True, False]
    assert [entry["event"] for entry in logs].count("reading recovered") == 1


async def test_a_watch_that_is_forbidden_for_a_while_needs_no_list(tmp_path: Path) -> None:
    steps = (page([], "9"), status(403), watch(event("ADDED", "x", 10), ending="stay"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0)
        assert len(stand.api.lists) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        answer(200, {"kind": "PodList", "metadata": {"resourceVersion": "50"}}),
        answer(200, {"metadata": {}, "items": []}),
        answer(200, {}),
        answer(200, b"[]"),
        answer(200, b"<html>", headers={"Content-Type": "text/html"}),
        answer(200, b""),
    ],
)
async def test_an_answer_that_is_no_list_does_not_empty_the_cache(
    tmp_path: Path, nonsense: Step
) -> None:
    steps = (page([thing("x", 1)], "9"), EXPIRED, nonsense, page([thing("x", 2, size=2)], "50"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.clock.pass_pause()
        await stand.holds(x=2)
        assert stand.shelf.forgotten == []


@pytest.mark.parametrize("line", ["hello", {"type": "HELLO", "object": {}}, {}])
async def test_a_line_that_is_no_event_is_answered_with_a_list(tmp_path: Path, line: Any) -> None:
    steps = (page([], "9"), watch(line, ending="stay"), page([thing("x", 1)], "20"))
    async with reflecting(tmp_path, *steps) as stand:
        await stand.clock.pass_pause()
        await stand.holds(x=0)
        assert stand.reflector.resource_version == 20


async def test_a_sink_that_fails_is_filled_anew(tmp_path: Path) -> None:
    steps = (
        page([], "9"),
        watch(event("ADDED", "x", 10, size=666), ending="stay"),
        page([thing("x", 11, size=1)], "12"),
    )
    with capture_logs() as logs:
        async with reflecting(tmp_path, *steps) as stand:
            await stand.clock.pass_pause()
            await stand.holds(x=1)
            assert stand.figure("evenkeel_reflector_errors_total", cause="Unexpected") == 1
    assert [entry["event"] for entry in logs].count("reflector failed") == 1


async def test_reflectors_of_many_programs_do_not_end_their_watches_together(
    tmp_path: Path,
) -> None:
    steps = [watch(event("ADDED", "x", number)) for number in range(10, 40)]
    async with reflecting(tmp_path, page([], "9"), *steps) as stand:
        for _ in range(30):
            await stand.clock.pass_pause()
        windows = [int(request.params["timeoutSeconds"]) for request in stand.api.watches]
        assert all(300 <= window <= 600 for window in windows)
        assert sum(one != other for one, other in pairwise(windows)) > 20


async def test_a_page_that_is_too_large_is_asked_for_in_smaller_ones(tmp_path: Path) -> None:
    large = answer(200, BOMB, headers={"Content-Encoding": "gzip"})
    steps = (
        page([thing("x", 1)], "9", token="second"),
        large,
        large,
        page([thing("y", 1)], "9"),
        watch(ending="stay"),
    )
    async with reflecting(tmp_path, *steps) as stand:
        await stand.holds(x=0, y=0)
        asked = [(r.params["limit"], r.params.get("continue")) for r in stand.api.lists]
        assert asked == [("500", None), ("500", "second"), ("125", "second"), ("31", "second")]


async def test_one_object_that_is_too_large_is_said_and_waited_for(tmp_path: Path) -> None:
    large = answer(200, BOMB, headers={"Content-Encoding": "gzip"})
    async with reflecting(tmp_path, *[large] * 6, page([thing("x", 1)], "9")) as stand:
        await stand.clock.until_pausing()
        assert [r.params["limit"] for r in stand.api.lists] == ["500", "125", "31", "7", "1"]
        assert stand.figure("evenkeel_reflector_errors_total", cause="TooLarge") == 1
        await stand.clock.pass_pause()
        await stand.holds(x=0)


BOMB = gzip.compress(b" " * (65 << 20), 1)


async def test_it_knows_when_the_server_was_last_out_of_reach(tmp_path: Path) -> None:
    async with reflecting(tmp_path, page([thing("x", 1)], "9"), status(403), status(500)) as stand:
        await stand.holds(x=0)
        await stand.clock.until_pausing()
        assert stand.reflector.last_unreachable_s == float("-inf"), "a refusal is an answer"
        await stand.clock.pass_pause()
        await stand.clock.until_pausing()
        assert stand.reflector.last_unreachable_s == stand.clock.monotonic()
        await stand.api.stop()
        await stand.clock.pass_pause()
        await stand.clock.until_pausing()
        assert stand.reflector.last_unreachable_s == stand.clock.monotonic()
