# SPDX-License-Identifier: Apache-2.0
"""The work queue of a simulated controller, with its one worker.

Subscribers add keys while a write is in progress; `run` syncs them between writes. A key
whose sync fails is logged and comes back after a pause, so one bad object stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from common.clock import Clock
from common.kube.workqueue import K, WorkQueue
from simulator.time_scale import yield_once

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_BATCH: Final = 50
_RETRY_S: Final = 1.0


class SyncQueue(WorkQueue[K]):
    """Keys whose sync is a plain function."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(clock)
        self._name = name

    def work_off(self, sync: Callable[[K], None]) -> None:
        """Sync all keys now, including those that are added meanwhile."""
        while len(self):
            self._sync_next(sync)

    async def run(self, sync: Callable[[K], None]) -> None:
        """Sync keys as they come, forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run_delayed())
            while True:
                await self.wait()
                for _ in range(min(_BATCH, len(self))):
                    self._sync_next(sync)
                await yield_once()

    def _sync_next(self, sync: Callable[[K], None]) -> None:
        key = self.get_nowait()
        try:
            sync(key)
        except Exception as error:
            log.exception("sync failed", controller=self._name, key=key, error=str(error))
            self.add_after(key, _RETRY_S)
        finally:
            self.done(key)
