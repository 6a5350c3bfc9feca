# SPDX-License-Identifier: Apache-2.0
"""The extender's Lease: never ahead of the index, prompt, and gone in the end."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from common.api.contract import FILTER_CALLS, LOAD_SETTINGS, SEEN_MIGRATIONS
from common.kube.errors import ServerError, Unreachable
from common.kube.resources import LEASES
from common.kube.timestamps import micro_time
from common.metrics import Metrics
from common.runtime import Runtime
from extender.callers import Callers
from extender.lease import ExtenderLease, LeaseContent
from tests.support.clock import FakeClock
from tests.unit.extender.store_client import Json, StoreClient


class Scene:
    """A Lease on a clock that the test turns."""

    def __init__(self) -> None:
        self.clock = FakeClock(now=1_794_000_000.0)
        self.client = StoreClient(self.clock)
        self.callers = Callers(self.clock)
        self.metrics = Metrics("test")
        self.seen: int | None = 7
        self.lease_keeper = ExtenderLease(
            self.client,
            LeaseContent(
                identity="me-1",
                seen_version=lambda: self.seen,
                callers=self.callers,
                load_settings_hash="0123456789abcdef",
            ),
            namespace="here",
            runtime=Runtime(self.clock, self.metrics, random.Random(3)),
        )
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.task = asyncio.create_task(self.lease_keeper.run())
        await self.play(0.02)

    async def play(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def end(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await self.play(0.1)
        for _ in range(100):
            if not self.task.done():
                await self.clock.advance(0.1)
        with pytest.raises(asyncio.CancelledError):
            await self.task

    @property
    def lease(self) -> Json:
        found = self.client.leases()
        return found["evenkeel-extender-me-1"]

    @property
    def published(self) -> int:
        return int(self.lease["metadata"]["annotations"][SEEN_MIGRATIONS])

    @property
    def renewals(self) -> int:
        return self.client.calls.count("patch") + self.client.calls.count("create")

    def left(self, name: str, age_s: float, **labels: str) -> None:
        """Create a Lease that another process left behind."""
        marks = {
            "app.kubernetes.io/name": "evenkeel",
            "app.kubernetes.io/component": "extender",
            **labels,
        }
        body = {
            "metadata": {"name": name, "labels": marks},
            "spec": {
                "holderIdentity": "x",
                "leaseDurationSeconds": 15,
                "renewTime": micro_time(self.clock.now() - age_s),
            },
        }
        self.client.store.create(LEASES, body, namespace="here")


@asynccontextmanager
async def running() -> AsyncIterator[Scene]:
    scene = Scene()
    await scene.begin()
    try:
        yield scene
    finally:
        await scene.end()


async def test_the_lease_says_what_is_known() -> None:
    async with running() as scene:
        scene.callers.called("default-scheduler", 30, 120)
        await scene.play(5)
        lease = scene.lease
        assert lease["metadata"]["labels"] == {
            "app.kubernetes.io/name": "evenkeel",
            "app.kubernetes.io/component": "extender",
        }
        marks = lease["metadata"]["annotations"]
        assert (marks[SEEN_MIGRATIONS], marks[LOAD_SETTINGS]) == ("7", "0123456789abcdef")
        calls = json.loads(marks[FILTER_CALLS])
        assert calls["default-scheduler"]["share"] == 0.25
        assert re.fullmatch(r"2026-\S+\.\d{6}Z", calls["default-scheduler"]["last"])
        assert lease["spec"]["holderIdentity"] == "me-1"
        assert lease["spec"]["leaseDurationSeconds"] == 15


async def test_there_is_no_lease_before_the_first_sync() -> None:
    scene = Scene()
    scene.seen = None
    await scene.begin()
    await scene.play(30)
    assert scene.client.calls == []
    scene.seen = 3
    await scene.play(0.1)
    assert scene.published == 3
    await scene.end()


async def test_nothing_is_deleted_that_was_never_made() -> None:
    scene = Scene()
    scene.seen = None
    await scene.begin()
    await scene.end()
    assert scene.client.calls == []


async def test_it_is_renewed_every_five_seconds() -> None:
    async with running() as scene:
        first = scene.lease["spec"]
        await scene.play(4.9)
        assert scene.lease["spec"] == first
        await scene.play(0.2)
        assert scene.lease["spec"]["renewTime"] > first["renewTime"]
        assert scene.lease["spec"]["acquireTime"] == first["acquireTime"]
        await scene.play(60)
        assert scene.renewals == pytest.approx(14, abs=1)


async def test_a_newer_version_is_published_within_a_tenth_of_a_second() -> None:
    async with running() as scene:
        await scene.play(1)
        for version in range(8, 28):
            scene.seen = version
            await scene.play(0.1)
            assert scene.published == version
            await scene.play(0.03)


async def test_many_versions_at_once_are_published_together() -> None:
    async with running() as scene:
        await scene.play(1)
        before = scene.renewals
        for version in range(100, 300):
            scene.seen = version
            await scene.play(0.01)
        assert scene.renewals - before <= 21
        await scene.play(0.1)
        assert scene.published == 299


async def test_one_that_falls_out_of_step_stays_alive_with_what_it_knew() -> None:
    async with running() as scene:
        before = scene.lease["spec"]["renewTime"]
        scene.seen = None
        await scene.play(6)
        assert scene.published == 7
        assert scene.lease["spec"]["renewTime"] > before
        assert scene.renewals <= 3


async def test_the_version_is_never_ahead_of_what_was_known_when_it_was_sent() -> None:
    async with running() as scene:
        gate = asyncio.Event()

        async def stall(verb: str) -> None:
            if verb == "patch":
                await gate.wait()

        scene.client.before = stall
        scene.seen = 8
        await scene.play(0.1)
        scene.seen = 9
        gate.set()
        await scene.play(0.03)
        assert scene.published == 8
        await scene.play(0.12)
        assert scene.published == 9


async def test_in_the_end_the_lease_is_gone() -> None:
    async with running() as scene:
        client = scene.client
        await scene.play(1)
    assert client.leases() == {}


async def test_the_end_is_not_held_up_by_a_server_that_does_not_answer() -> None:
    async with running() as scene:
        await scene.play(1)

        async def stall(_: str) -> None:
            await asyncio.Event().wait()

        scene.client.before = stall
    assert scene.clock.monotonic() < 1_000 + 15
    assert scene.client.calls[-1] == "delete"


async def test_a_deleted_lease_is_created_again() -> None:
    async with running() as scene:
        scene.client.store.delete(LEASES, scene.lease_keeper.name, namespace="here")
        await scene.play(5.1)
        assert scene.published == 7


async def test_annotations_of_others_on_the_lease_stay() -> None:
    async with running() as scene:
        marks = {"metadata": {"annotations": {"team": "ours"}}}
        scene.client.store.patch(LEASES, scene.lease_keeper.name, marks, namespace="here")
        await scene.play(5.1)
        assert scene.lease["metadata"]["annotations"]["team"] == "ours"


async def test_a_create_whose_answer_was_lost_is_taken_up() -> None:
    scene = Scene()
    real = scene.client.create

    async def lost(*args: object, **options: object) -> bytes:
        scene.client.create = real  # type: ignore[method-assign]
        await real(*args, **options)  # type: ignore[arg-type]
        raise Unreachable("the answer was lost")

    scene.client.create = lost  # type: ignore[method-assign]
    await scene.begin()
    scene.seen = 9
    await scene.play(1)
    assert scene.published == 9
    await scene.end()
    assert scene.client.leases() == {}


async def test_failures_are_logged_once_counted_and_retried_with_backoff() -> None:
    async with running() as scene:
        await scene.play(1)

        async def refuse(_: str) -> None:
            raise ServerError(500, "no")

        before = scene.renewals
        with capture_logs() as logs:
            scene.client.before = refuse
            scene.seen = 8
            await scene.play(60)
            tries = scene.renewals - before
            assert 20 <= tries <= 80
            assert [entry["event"] for entry in logs] == ["lease not renewed"]
            failed = f'evenkeel_heartbeats_total{{result="failed"}} {tries}.0'
            assert failed in scene.metrics.render().decode()

            async def fine(_: str) -> None:
                return None

            scene.client.before = fine
            await scene.play(4)
            assert [entry["event"] for entry in logs][1:] == ["lease renewed again"]
        assert scene.published == 8


async def test_a_call_without_an_answer_is_given_up() -> None:
    async with running() as scene:
        await scene.play(1)
        stalled = []

        async def stall(verb: str) -> None:
            stalled.append(verb)
            if len(stalled) == 1:
                await asyncio.Event().wait()

        scene.client.before = stall
        scene.seen = 8
        await scene.play(6)
        assert scene.published == 8


async def test_the_lease_survives_any_failure() -> None:
    async with running() as scene:

        async def nonsense(_: str) -> None:
            scene.client.before = fine
            raise ZeroDivisionError("a bug")

        async def fine(_: str) -> None:
            return None

        scene.client.before = nonsense
        scene.seen = 8
        await scene.play(1)
        assert scene.published == 8


async def test_stale_leases_are_deleted_at_the_start() -> None:
    scene = Scene()
    scene.left("evenkeel-extender-dead", 601)
    scene.left("evenkeel-extender-quiet", 599)
    scene.left("unrelated-lease", 6000)
    scene.left("evenkeel-extender-other", 6000, **{"app.kubernetes.io/component": "x"})
    await scene.begin()
    assert sorted(scene.client.leases()) == [
        "evenkeel-extender-me-1",
        "evenkeel-extender-other",
        "evenkeel-extender-quiet",
        "unrelated-lease",
    ]
    await scene.end()


async def test_a_stale_lease_that_is_renewed_in_time_stays() -> None:
    scene = Scene()
    scene.left("evenkeel-extender-late", 6000)

    async def alive(verb: str) -> None:
        if verb == "delete":
            body = {"spec": {"renewTime": micro_time(scene.clock.now())}}
            scene.client.store.patch(LEASES, "evenkeel-extender-late", body, namespace="here")

    scene.client.before = alive
    await scene.begin()
    assert "evenkeel-extender-late" in scene.client.leases()
    assert scene.published == 7
    scene.client.before = lambda _: asyncio.sleep(0)  # noqa: TID251 - yields, does not wait
    await scene.end()


async def test_a_failed_cleanup_does_not_stop_the_lease() -> None:
    scene = Scene()

    async def refuse(verb: str) -> None:
        if verb == "list":
            raise ServerError(500, "no")

    scene.client.before = refuse
    await scene.begin()
    assert scene.published == 7
    await scene.end()
