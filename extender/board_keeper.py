"""Keeps the scoring board in step with what is believed of the cluster.

The board is made in a thread whenever something changed, at most once a second. An attempt
that fails is counted, told once and made again; answers go on from the last board until its
figures are older than `metricExpiry`, and then load has no say (`Advisor`). An attempt that
never ends is what a restart fixes: `why_stuck` tells the liveness probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from common.clock import Clock
from common.cluster.records import PodUid
from common.load import Load
from common.metrics import Metrics
from common.observer import Belief
from common.progress import Progress
from extender.advisor import Advisor
from extender.scoring import Board

log: structlog.stdlib.BoundLogger = structlog.get_logger()

REFRESH_S: Final = 1.0
"""What we answered ourselves is counted at once; the rest of the world may be so late."""
PATIENCE_S: Final = 300.0


class Looking(Protocol):
    """The part of `Observer` that is needed here."""

    async def look(self, predecessors: Mapping[PodUid, Load]) -> Belief: ...


class BoardKeeper:
    """Makes boards for as long as the extender runs."""

    def __init__(
        self,
        observer: Looking,
        advisor: Advisor,
        predecessors: Callable[[], Mapping[PodUid, Load]],
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._observer = observer
        self._advisor = advisor
        self._predecessors = predecessors
        self._clock = clock
        self._progress = Progress("look at the nodes", clock)
        self._trouble = ""
        total = metrics.counter(
            "board_refreshes_total", "Attempts to bring the scores up to date.", ("result",)
        )
        self._done, self._failed = total.labels("done"), total.labels("failed")

    async def run(self) -> None:
        """Keep the board up to date until cancelled."""
        self._progress.begin(PATIENCE_S)
        self._progress.doing("computing scores")
        while True:
            await self._guarded_refresh()
            self._progress.ended(PATIENCE_S)
            await self._clock.sleep(REFRESH_S)

    def why_stuck(self) -> str | None:
        """Say since when no attempt has ended, if that is too long."""
        return self._progress.why_stuck()

    def why_not_ready(self) -> str | None:
        """Say why load has no say in the answers."""
        if self._advisor.board is None:
            return self._trouble or "no node was judged yet"
        if self._advisor.outdated:
            return f"the scores are outdated: {self._trouble or 'they are being computed'}"
        return None

    async def _guarded_refresh(self) -> None:
        try:
            await self._refresh()
        except Exception as error:  # whatever it is, answers go on
            self._failed.inc()
            words = f"{type(error).__name__}: {error}"
            if words != self._trouble:
                self._trouble = words
                log.exception("scores not brought up to date")
            return
        self._done.inc()
        if self._trouble:
            self._trouble = ""
            log.info("scores are up to date again")

    async def _refresh(self) -> None:
        belief = await self._observer.look(self._predecessors())
        if not self._holds(belief):
            board = await asyncio.to_thread(
                Board.after, self._advisor.board, belief, self._advisor.settings
            )
            self._advisor.use(board)
        self._advisor.confirm()

    def _holds(self, belief: Belief) -> bool:
        board = self._advisor.board
        return (
            board is not None
            and board.load is belief.load
            and board.version == belief.snapshot.version
        )
