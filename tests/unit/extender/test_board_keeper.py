# SPDX-License-Identifier: Apache-2.0
"""The board is kept up to date; failures are logged and retried, and never stop answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from common.load import Belief
from extender.board_keeper import BoardKeeper
from tests.support.clock import without_threads
from tests.support.worlds.advisor import AdvisorWorld


class Kept:
    """A world whose board is kept by a real keeper; observing it may fail or hang."""

    def __init__(self) -> None:
        self.world = AdvisorWorld()
        self.world.loads(hot=95.0, cold=5.0)
        self.clock = self.world.clock
        self.error: Exception | None = None
        self.hangs = False
        self.keeper = BoardKeeper(
            self.world.advisor,
            self.observe,
            clock=self.clock,
            metrics=self.world.metrics,
        )

    async def observe(self) -> Belief:
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
        predecessors = self.world.intents.predecessors()
        return Belief(self.world.state.snapshot(), self.world.world.view(predecessors))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        without_threads()
        task = asyncio.create_task(self.keeper.run())
        try:
            await self.clock.advance(2)
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def steers(self) -> bool:
        """Return whether load decides."""
        scores = self.world.advisor.prioritize(self.world.pod("p"), ["hot", "cold"])
        return scores.values[0] < scores.values[1]

    def refreshes(self, result: str) -> float:
        labels = {"result": result}
        registry = self.world.metrics.registry
        return registry.get_sample_value("evenkeel_board_refreshes_total", labels) or 0.0


async def test_a_failure_is_logged_once_counted_and_retried() -> None:
    kept = Kept()
    async with kept.running():
        kept.error = RuntimeError("a node makes no sense")
        with structlog.testing.capture_logs() as logs:
            await kept.clock.advance(10)
            assert kept.refreshes("failed") == 10
            kept.error = None
            await kept.clock.advance(2)
        logged = [line["event"] for line in logs]
        assert logged == ["scores not updated", "scores updated again"]
        assert kept.refreshes("done") >= 3


async def test_answers_go_on_from_the_last_board_until_it_has_expired() -> None:
    kept = Kept()
    async with kept.running():
        kept.error = RuntimeError("a node makes no sense")
        await kept.clock.advance(170)
        assert kept.steers()
        assert kept.keeper.why_not_ready() is None
        await kept.clock.advance(20)
        assert not kept.steers()
        message = "scores outdated: RuntimeError: a node makes no sense"
        assert kept.keeper.why_not_ready() == message
        # It has failed, and failing is not what a restart would fix.
        await kept.clock.advance(10_000)
        assert kept.keeper.why_stuck() is None
        kept.error = None
        await kept.clock.advance(2)
        assert kept.steers()
        assert kept.keeper.why_not_ready() is None


async def test_an_attempt_that_never_ends_fails_liveness_and_load_stops_deciding() -> None:
    kept = Kept()
    async with kept.running():
        kept.hangs = True
        await kept.clock.advance(290)
        assert kept.keeper.why_stuck() is None
        assert not kept.steers()
        await kept.clock.advance(20)
        why = kept.keeper.why_stuck()
    assert why is not None
    assert "no board refresh has ended since 20" in why
    assert "it is still computing scores" in why


async def test_without_any_board_it_reports_what_is_wrong() -> None:
    kept = Kept()
    kept.world = AdvisorWorld()
    kept.keeper = BoardKeeper(
        kept.world.advisor, kept.observe, clock=kept.world.clock, metrics=kept.world.metrics
    )
    kept.clock = kept.world.clock
    assert kept.keeper.why_not_ready() == "scores not computed yet"
    kept.error = RuntimeError("a node makes no sense")
    async with kept.running():
        assert kept.keeper.why_not_ready() == "RuntimeError: a node makes no sense"
