# SPDX-License-Identifier: Apache-2.0
"""Keeps the scoring board up to date with the belief about the cluster.

The board is made in a thread whenever something changed, at most once a second. An attempt
that fails is counted, logged once and repeated; answers use the last board until its figures
are older than `metricExpiry`, and then load does not decide any more (`Advisor`). An attempt
that never ends is fixed by a restart: `why_stuck` reports it to the liveness probe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from common.clock import Clock
from common.load import Belief
from common.metrics import Metrics
from common.progress import Progress
from extender.advisor import Advisor
from extender.scoring import Board

log: structlog.stdlib.BoundLogger = structlog.get_logger()

REFRESH_INTERVAL_S: Final = 1.0
"""Our own answers are charged at once; everything else may be this late."""
PATIENCE_S: Final = 300.0


class BoardKeeper:
    """Makes boards as long as the extender runs."""

    def __init__(
        self,
        advisor: Advisor,
        observe: Callable[[], Awaitable[Belief]],
        *,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._advisor = advisor
        self._observe = observe
        self._clock = clock
        self._progress = Progress("board refresh", clock)
        self._last_error = ""
        total = metrics.counter(
            "board_refreshes_total", "Attempts to update the scores.", ("result",)
        )
        self._done, self._failed = total.labels("done"), total.labels("failed")

    async def run(self) -> None:
        """Keep the board up to date until canceled."""
        self._progress.begin(PATIENCE_S)
        self._progress.doing("computing scores")
        while True:
            await self._try_refresh()
            self._progress.ended(PATIENCE_S)
            await self._clock.sleep(REFRESH_INTERVAL_S)

    def why_stuck(self) -> str | None:
        """Return since when no attempt has ended, if that is too long."""
        return self._progress.why_stuck()

    def why_not_ready(self) -> str | None:
        """Return why load does not decide."""
        if self._advisor.board is None:
            return self._last_error or "scores not computed yet"
        if self._advisor.outdated:
            return f"scores outdated: {self._last_error or 'being computed'}"
        return None

    async def _try_refresh(self) -> None:
        try:
            await self._refresh()
        except Exception as error:  # whatever it is, answers go on
            self._failed.inc()
            message = f"{type(error).__name__}: {error}"
            if message != self._last_error:
                self._last_error = message
                log.exception("scores not updated")
            return
        self._done.inc()
        if self._last_error:
            self._last_error = ""
            log.info("scores updated again")

    async def _refresh(self) -> None:
        belief = await self._observe()
        if not self._is_current(belief):
            board = await asyncio.to_thread(
                Board.after, self._advisor.board, belief, self._advisor.config
            )
            self._advisor.use(board)
        self._advisor.confirm()

    def _is_current(self, belief: Belief) -> bool:
        board = self._advisor.board
        return (
            board is not None
            and board.load is belief.load
            and board.version == belief.snapshot.version
        )
