"""The board is kept up to date; what fails is told and tried again, and never stops answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from common.cluster.records import PodUid
from common.load import Load
from common.observer import Belief
from extender.board_keeper import BoardKeeper
from tests.support.advisor_world import AdvisorWorld
from tests.support.clock import without_threads


class Kept:
    """A world whose board is kept by a real keeper; looking at it may fail or hang."""

    def __init__(self) -> None:
        self.world = AdvisorWorld()
        self.world.loads(hot=95.0, cold=5.0)
        self.clock = self.world.clock
        self.error: Exception | None = None
        self.hangs = False
        self.keeper = BoardKeeper(
            self,
            self.world.advisor,
            self.world.intents.predecessors,
            clock=self.clock,
            metrics=self.world.metrics,
        )

    async def look(self, predecessors: Mapping[PodUid, Load]) -> Belief:
        if self.error is not None:
            raise self.error
        if self.hangs:
            await asyncio.Event().wait()
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
        """Tell whether load has a say."""
        scores = self.world.advisor.prioritize(self.world.pod("p"), ["hot", "cold"])
        return scores[0] < scores[1]

    def refreshes(self, result: str) -> float:
        labels = {"result": result}
        registry = self.world.metrics.registry
        return registry.get_sample_value("evenkeel_board_refreshes_total", labels) or 0.0


async def test_a_failure_is_told_once_counted_and_tried_again() -> None:
    kept = Kept()
    async with kept.running():
        kept.error = RuntimeError("a node makes no sense")
        with structlog.testing.capture_logs() as logs:
            await kept.clock.advance(10)
            assert kept.refreshes("failed") == 10
            kept.error = None
            await kept.clock.advance(2)
        told = [line["event"] for line in logs]
        assert told == ["scores not brought up to date", "scores are up to date again"]
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
        words = "the scores are outdated: RuntimeError: a node makes no sense"
        assert kept.keeper.why_not_ready() == words
        # It has failed, and failing is not what a restart would fix.
        await kept.clock.advance(10_000)
        assert kept.keeper.why_stuck() is None
        kept.error = None
        await kept.clock.advance(2)
        assert kept.steers()
        assert kept.keeper.why_not_ready() is None


async def test_an_attempt_that_never_ends_is_not_alive_and_steers_no_longer() -> None:
    kept = Kept()
    async with kept.running():
        kept.hangs = True
        await kept.clock.advance(290)
        assert kept.keeper.why_stuck() is None
        assert not kept.steers()
        await kept.clock.advance(20)
        why = kept.keeper.why_stuck()
    assert why is not None
    assert "no look at the nodes has ended since 20" in why
    assert "it is still computing scores" in why


async def test_without_any_board_it_says_what_is_wrong() -> None:
    kept = Kept()
    kept.world = AdvisorWorld()
    kept.keeper = BoardKeeper(
        kept, kept.world.advisor, dict, clock=kept.world.clock, metrics=kept.world.metrics
    )
    kept.clock = kept.world.clock
    assert kept.keeper.why_not_ready() == "no node was judged yet"
    kept.error = RuntimeError("a node makes no sense")
    async with kept.running():
        assert kept.keeper.why_not_ready() == "RuntimeError: a node makes no sense"
