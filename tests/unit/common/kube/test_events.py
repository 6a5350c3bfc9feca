# SPDX-License-Identifier: Apache-2.0
"""Events: told once, folded when repeated, never in the way."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from common.kube.events import (
    NOTE_BYTES,
    EventLimits,
    EventType,
    ObjectRef,
    Recorder,
    cut,
    event_name,
)
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import Call, DirectClient, MemoryApi, Refusal, Stall

POD = ObjectRef(kind="Pod", namespace="shop", name="web-1", uid="u-1")
NODE = ObjectRef(kind="Node", name="n1", uid="u-2")


class Desk:
    """A recorder at work on an API server in memory."""

    def __init__(self, limits: EventLimits | None = None, identity: str = "host_1") -> None:
        self.api = MemoryApi()
        self.clock = FakeClock(now=1_794_819_216.0)
        self.metrics = Metrics("test")
        self.recorder = Recorder(
            DirectClient(self.api),
            program="rebalancer",
            identity=identity,
            limits=limits or EventLimits(),
            clock=self.clock,
            metrics=self.metrics,
            rng=random.Random(1),
        )

    def record(
        self,
        regarding: ObjectRef = POD,
        *,
        type_: EventType = "Normal",
        reason: str = "Evicted",
        note: str = "moved to n1",
        action: str = "Evict",
        related: ObjectRef | None = None,
    ) -> None:
        self.recorder.record(
            regarding=regarding,
            type_=type_,
            reason=reason,
            note=note,
            action=action,
            related=related,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
        finally:
            await self.close(task)

    async def close(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        while not task.done():
            await self.clock.advance(0.25)

    async def play(self, seconds: float = 0.25) -> None:
        for _ in range(round(seconds * 4)):
            await self.clock.advance(0.25)

    @property
    def events(self) -> list[dict[str, Any]]:
        return self.api.of("events")

    @property
    def counts(self) -> list[int]:
        return [event.get("series", {"count": 1})["count"] for event in self.events]

    @property
    def methods(self) -> list[str]:
        return [call.method for call in self.api.calls]

    def dropped(self, cause: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "evenkeel_events_dropped_total", {"cause": cause}
        )


async def test_notes_cannot_act_on_a_terminal() -> None:
    desk = Desk()
    async with desk.open():
        desk.record(note="scheduler \x1b[2J\u202e would place it")
        await desk.play()
    [event] = desk.events
    assert event["note"] == "scheduler \\x1b[2J\\u202e would place it"


async def test_tells_everything_that_is_known() -> None:
    desk = Desk()
    async with desk.open():
        desk.record(type_="Warning", related=NODE)
        await desk.play()
    [event] = desk.events
    name = event["metadata"].pop("name")
    assert re.fullmatch(r"web-1\.[0-9a-f]{16}", name)
    del event["metadata"]["resourceVersion"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2026-11-16T08:53:36.000000Z",
        "type": "Warning",
        "reason": "Evicted",
        "action": "Evict",
        "note": "moved to n1",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "web-1",
            "uid": "u-1",
        },
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-2"},
        "reportingController": "evenkeel.io/rebalancer",
        "reportingInstance": "host_1",
    }


async def test_events_of_objects_without_a_namespace_live_in_default() -> None:
    desk = Desk()
    async with desk.open():
        desk.record(NODE)
        await desk.play()
    [event] = desk.events
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


async def test_the_time_is_when_it_happened_and_not_when_it_was_told() -> None:
    desk = Desk()
    desk.record()
    await desk.play(60.0)
    async with desk.open():
        await desk.play()
    assert desk.events[0]["eventTime"] == "2026-11-16T08:53:36.000000Z"


async def test_the_first_repeat_begins_a_series_at_once() -> None:
    desk = Desk()
    async with desk.open():
        desk.record()
        await desk.play(3.0)
        desk.record()
        await desk.play()
        [event] = desk.events
        assert event["series"] == {"count": 2, "lastObservedTime": "2026-11-16T08:53:39.000000Z"}
        assert event["eventTime"] == "2026-11-16T08:53:36.000000Z"
    assert desk.methods == ["POST", "PATCH"]


async def test_further_repeats_are_told_once_per_interval() -> None:
    desk = Desk(EventLimits(update_every_s=30.0))
    async with desk.open():
        for _ in range(240):
            desk.record()
            await desk.play(0.5)
        await desk.play(30.0)
        assert desk.counts == [240]
        assert len(desk.methods) <= 2 + 150 / 30
    assert len(desk.methods) <= 2 + 150 / 30


async def test_nothing_is_written_while_nothing_happens() -> None:
    desk = Desk()
    async with desk.open():
        for _ in range(3):
            desk.record()
        await desk.clock.advance(3600.0)
        assert len(desk.methods) <= 2


@pytest.mark.parametrize(
    "other",
    [
        {"regarding": ObjectRef(kind="Pod", namespace="shop", name="web-1", uid="u-9")},
        {"regarding": ObjectRef(kind="Pod", namespace="bank", name="web-1", uid="u-1")},
        {"type_": "Warning"},
        {"reason": "Failed"},
        {"note": "moved to n2"},
        {"action": "Wait"},
        {"related": NODE},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_whatever_differs_is_another_event(other: dict[str, Any]) -> None:
    desk = Desk()
    async with desk.open():
        desk.record()
        desk.record(**other)
        await desk.play()
    assert desk.counts == [1, 1]


async def test_repeats_before_the_first_could_be_told_arrive_as_a_series() -> None:
    desk = Desk()
    for _ in range(5):
        desk.record()
    async with desk.open():
        await desk.play()
    assert desk.counts == [5]
    assert desk.methods == ["POST"]


async def test_after_a_long_silence_a_repeat_is_a_new_event() -> None:
    desk = Desk(EventLimits(finish_after_s=360.0))
    async with desk.open():
        desk.record()
        desk.record()
        await desk.play(359.0)
        desk.record()
        await desk.play(361.0)
        desk.record()
        await desk.play()
    assert sorted(desk.counts) == [1, 3]


async def test_silence_counts_even_between_two_sweeps() -> None:
    desk = Desk(EventLimits(update_every_s=1000.0, finish_after_s=10.0))
    async with desk.open():
        desk.record()
        await desk.play(11.0)
        desk.record()
        await desk.play()
    assert desk.counts == [1, 1]


async def test_an_event_that_the_server_forgot_is_created_again_with_its_count() -> None:
    desk = Desk()
    async with desk.open():
        desk.record()
        await desk.play()
        desk.api.objects.clear()
        desk.record()
        await desk.play()
    assert desk.counts == [2]
    assert desk.methods == ["POST", "PATCH", "POST"]


async def test_a_create_whose_answer_was_lost_is_not_told_twice() -> None:
    desk = Desk()

    async def lose_one(_: Call) -> None:
        desk.api.after = Stall(lambda _: False).holds
        raise Refusal(504)

    desk.api.after = lose_one
    async with desk.open():
        desk.record()
        await desk.play(5.0)
        desk.record()
        await desk.play()
    assert desk.counts == [2]
    assert desk.dropped("refused") == desk.dropped("gave_up") == 0


async def test_a_repeat_during_a_lost_create_is_still_counted() -> None:
    desk = Desk()
    desk.record()
    desk.record()

    async def lose_one(_: Call) -> None:
        desk.api.after = Stall(lambda _: False).holds
        desk.record()
        raise Refusal(504)

    desk.api.after = lose_one
    async with desk.open():
        await desk.play(5.0)
        assert desk.counts == [3]


async def test_a_repeat_while_the_server_thinks_is_told_later() -> None:
    desk = Desk(EventLimits(update_every_s=30.0))
    async with desk.open():
        desk.record()
        await desk.play()
        stall = Stall()
        desk.api.before = stall.holds
        desk.record()
        await desk.play()
        desk.record()
        stall.release()
        await desk.play(1.0)
        assert desk.counts == [2]
        await desk.play(30.0)
        assert desk.counts == [3]


@pytest.mark.parametrize("status", [401, 409, 429, 500, 503])
async def test_tries_again_with_growing_pauses_while_there_is_hope(status: int) -> None:
    desk, times = Desk(EventLimits(tries=5)), list[float]()

    async def note(_: Call) -> None:
        times.append(desk.clock.monotonic())
        if len(times) < 5:
            raise Refusal(status)

    desk.api.before = note
    async with desk.open():
        desk.record()
        await desk.play(60.0)
    assert desk.counts == [1]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    ceilings = [1.0, 2.0, 4.0, 8.0]
    assert all(0.5 <= gap <= top for top, gap in zip(ceilings, gaps, strict=True))
    assert max(gaps) > 1.0


async def test_gives_up_after_a_bounded_number_of_tries_and_counts_it() -> None:
    desk = Desk(EventLimits(tries=3))
    async with desk.open():
        with desk.api.refusing(Refusal(500)):
            desk.record()
            await desk.play(60.0)
        assert len(desk.methods) == 3
        assert desk.dropped("gave_up") == 1
        desk.record(NODE)
        await desk.play()
    assert [event["regarding"]["kind"] for event in desk.events] == ["Node"]


async def test_waits_as_long_as_a_busy_server_asks() -> None:
    desk = Desk()
    async with desk.open():
        with desk.api.refusing(Refusal(429, retry_after_s=8)):
            desk.record()
            await desk.play(7.75)
        assert len(desk.methods) == 1
        await desk.play(3.0)
    assert desk.counts == [1]


async def test_a_server_that_says_nothing_does_not_hold_the_others_up_for_ever() -> None:
    desk = Desk(EventLimits(tries=2, request_s=5.0))
    desk.api.before = Stall(lambda call: call.body["regarding"]["kind"] == "Pod").holds
    async with desk.open():
        desk.record()
        desk.record(NODE)
        await desk.play(12.0)
        assert [event["regarding"]["kind"] for event in desk.events] == ["Node"]
        assert desk.dropped("gave_up") == 1


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_does_not_repeat_what_was_refused_for_good(status: int) -> None:
    desk = Desk()
    async with desk.open():
        with desk.api.refusing(Refusal(status)):
            desk.record()
            await desk.play(600.0)
    assert len(desk.methods) == 1
    assert desk.dropped("refused") == 1


async def test_a_missing_permission_is_said_once() -> None:
    desk = Desk()
    with capture_logs() as logs:
        async with desk.open():
            with desk.api.refusing(Refusal(403, message="no right to create events")):
                for number in range(5):
                    desk.record(note=str(number))
                await desk.play(2.0)
    said = [entry["error"] for entry in logs if entry["log_level"] == "warning"]
    assert said == ["no right to create events"]
    assert desk.dropped("refused") == 5


async def test_a_namespace_on_its_way_out_is_nothing_to_report() -> None:
    desk = Desk()
    with capture_logs() as logs:
        async with desk.open():
            with desk.api.refusing(Refusal(403, cause="NamespaceTerminating")):
                desk.record()
                await desk.play()
    assert [entry for entry in logs if entry["log_level"] == "warning"] == []


async def test_a_full_queue_drops_the_oldest_and_counts_it() -> None:
    desk = Desk(EventLimits(queue_size=3))
    for number in range(10):
        desk.record(note=str(number))
    assert desk.dropped("overflow") == 7
    async with desk.open():
        await desk.play()
    assert sorted(event["note"] for event in desk.events) == ["7", "8", "9"]


async def test_repeats_need_no_room_in_the_queue() -> None:
    desk = Desk(EventLimits(queue_size=2))
    for _ in range(100):
        desk.record()
        desk.record(NODE)
    assert desk.dropped("overflow") == 0
    async with desk.open():
        await desk.play()
    assert desk.counts == [100, 100]


async def test_an_event_that_was_dropped_comes_back_with_its_repeat() -> None:
    desk = Desk(EventLimits(queue_size=1))
    desk.record()
    desk.record(NODE)
    async with desk.open():
        await desk.play()
        desk.record()
        await desk.play()
    assert sorted(desk.counts) == [1, 2]


async def test_memory_is_bounded_whatever_happens() -> None:
    desk = Desk(EventLimits(queue_size=10, remembered=20))
    async with desk.open():
        for number in range(1000):
            desk.record(note=str(number))
        await desk.play()
        assert len(desk.recorder._series) == 20
        await desk.play(400.0)
        assert len(desk.recorder._series) == 0


async def test_recording_never_raises_however_odd_the_event() -> None:
    desk = Desk()
    odd = ObjectRef(kind="Pod", namespace="../..", name="\ud800 %s \x00", uid="")
    async with desk.open():
        desk.record(odd, reason="", action="\ud800", note="\ud800" * 5000)
        desk.record()
        await desk.play()
    assert [event["reason"] for event in desk.events] == ["Evicted"]
    assert desk.dropped("defect") == 1


async def test_what_is_too_long_is_cut_to_what_the_server_takes() -> None:
    desk = Desk(identity="host" * 100)
    long = ObjectRef(kind="Pod", namespace="shop", name="x" * 253)
    async with desk.open():
        desk.record(long, reason="R" * 500, action="A" * 500, note="ü" * 5000)
        await desk.play()
    [event] = desk.events
    assert len(event["note"].encode()) == NOTE_BYTES - 1
    assert event["note"].endswith("ü…")
    assert len(event["metadata"]["name"]) == 253


async def test_tells_what_is_left_when_it_ends() -> None:
    desk = Desk()
    async with desk.open():
        await desk.play()
        for _ in range(3):
            desk.record()
        desk.record(NODE)
        await desk.play()
        desk.record()
    assert sorted(desk.counts) == [1, 4]


async def test_what_was_being_retried_is_tried_once_more_at_the_end() -> None:
    desk = Desk()
    async with desk.open():
        with desk.api.refusing(Refusal(503)):
            desk.record()
            await desk.play()
            assert desk.events == []
    assert desk.counts == [1]


async def test_what_was_under_way_at_the_end_is_told_once() -> None:
    desk = Desk()
    stall = Stall(lambda _: not stall.parked)
    desk.api.before = stall.holds
    async with desk.open():
        desk.record()
        await desk.play()
        desk.record()
    assert desk.counts == [2]
    assert desk.methods == ["POST", "POST"]


async def test_does_not_hold_up_the_end_when_nobody_answers() -> None:
    desk = Desk(EventLimits(drain_s=2.0))
    desk.api.before = Stall().holds
    task = asyncio.create_task(desk.recorder.run())
    desk.record()
    desk.record(NODE)
    await desk.play()
    task.cancel()
    await desk.play(2.0)
    assert task.done()
    assert desk.dropped("shutdown") == 2


@given(st.text(), st.integers(4, 40))
def test_cut_keeps_to_the_limit_and_to_whole_characters(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short.encode()) <= limit
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert (short == text) == (len(text.encode()) <= limit)


def test_cut_makes_valid_utf_8_of_what_is_not() -> None:
    assert cut("a\ud800b", 10) == "a?b"


@given(st.one_of(st.text(), st.from_regex(r"[a-z0-9.-]{1,300}", fullmatch=True)), st.integers(0))
def test_names_are_always_valid(subject: str, tail: int) -> None:
    name = event_name(subject, tail % 2**64)
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    assert re.fullmatch(rf"{label}(\.{label})*", name)
    assert len(name) <= 253


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("web-1", "web-1.00000000000000ff"),
        ("node.example.com", "node.example.com.00000000000000ff"),
        ("system:node", "object.00000000000000ff"),
        ("", "object.00000000000000ff"),
        ("a" * 235 + ".b" + "c" * 10, "a" * 235 + ".00000000000000ff"),
    ],
)
def test_names_say_what_the_event_is_about(subject: str, name: str) -> None:
    assert event_name(subject, 255) == name
