# SPDX-License-Identifier: Apache-2.0
"""What the console shows at a desk: the cluster as the caller may read it, planned again and again.

The answers are those of `rebalancer.inspection`, as in the rebalancer's own console. The plan is
made here, from the samples at hand; a running rebalancer may plan differently, because it waits
for consecutive observations. Pausing is done with the caller's permissions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from common.cli import StartError
from common.cluster.storage import PauseRecord
from common.kube.errors import KubeError
from console.data import (
    ClusterDocument,
    ConsoleError,
    HealthDocument,
    LoadMoment,
    Match,
    MigrationsDocument,
    NodeDocument,
    PlanAnswer,
    Versions,
    WhyDocument,
    WhyKind,
)
from evenkeel.commands.status import health_of
from evenkeel.pause import read_pause, remove_pause, write_pause
from evenkeel.session import Session, whoami
from rebalancer.inspection import (
    Inspection,
    cluster_document,
    load_moment,
    migrations_document,
    node_document,
    plan_document,
    search,
    why,
)

EVERY_S: Final = 10.0
"""How often the cluster is looked at and planned again."""
REST: Final = 10.0
"""What took t to prepare is used for this many times t at least."""

T = TypeVar("T")


class CommandConsole:
    """Implements `console.data.ConsoleData` and `console.data.PauseSwitch`."""

    def __init__(self, session: Session, first: Inspection) -> None:
        self._session = session
        self._asked = first
        self._turn = asyncio.Lock()
        self._looks = 1
        self._changes = 0
        self._switched = 0
        session.observer.reader.state.migrations.listen(self._on_migration)

    async def run(self) -> None:
        """Look and plan again until canceled; one that fails leaves the last one."""
        clock = self._session.clock
        while True:
            began_s = clock.monotonic()
            with contextlib.suppress(KubeError):
                await self._refresh()
            took_s = clock.monotonic() - began_s
            await clock.sleep(max(EVERY_S, took_s * REST))

    async def _refresh(self) -> None:
        session = self._session
        pause = await read_pause(session.client, session.installation.namespace)
        async with self._turn:
            session.paused(pause)
            self._asked = await session.inspect()
        self._looks += 1

    def versions(self) -> Versions:
        """Return what has changed so far."""
        health = self._looks + self._changes + self._switched
        return Versions(
            cluster=self._looks, plan=self._looks, migrations=self._changes, health=health
        )

    async def load(self) -> LoadMoment | None:
        """Return how loaded nodes are."""
        return await self._ask(load_moment)

    async def cluster(self) -> ClusterDocument | None:
        """Return all nodes."""
        return await self._ask(cluster_document)

    async def node(self, name: str) -> NodeDocument | None:
        """Return one node."""
        return await self._ask(lambda asked: node_document(asked, name))

    async def plan(self) -> PlanAnswer:
        """Return the plan of the last look."""
        return PlanAnswer(plan=await self._ask(lambda asked: plan_document(asked, asked.now_s)))

    async def migrations(self) -> MigrationsDocument:
        """Return what moves and moved."""
        known, why_none = self._session.known(), self._session.installation.why_no_migrations
        return migrations_document(tuple(known.values()), why_none=why_none)

    async def why(self, kind: WhyKind, name: str) -> WhyDocument | None:
        """Return the answer of `evenkeel why`."""
        return await self._ask(lambda asked: why(asked, kind, name))

    async def search(self, text: str, limit: int) -> tuple[Match, ...]:
        """Return objects whose names contain the text."""
        return await self._ask(lambda asked: search(asked.snapshot, text, limit))

    async def health(self) -> HealthDocument:
        """Return how the loop is doing, from what is written down in the cluster."""
        return await self._ask(lambda asked: health_of(self._session, asked))

    async def pause(self, why: str, for_s: float | None) -> None:
        """Stop all evictions."""
        session, now_s = self._session, self._session.clock.now()
        made = PauseRecord(
            namespace=session.installation.namespace,
            by=await whoami(session.client) or "evenkeel ui",
            why=why,
            since_s=now_s,
            until_s=None if for_s is None else now_s + for_s,
        )
        await self._switch(write_pause(session.client, made.namespace, made))

    async def resume(self) -> None:
        """Let evictions go on."""
        session = self._session
        await self._switch(remove_pause(session.client, session.installation.namespace))

    async def _switch(self, work: Awaitable[object]) -> None:
        session = self._session
        try:
            await work
        except (StartError, KubeError) as error:
            raise ConsoleError(str(error)) from None
        session.paused(await read_pause(session.client, session.installation.namespace))
        self._switched += 1

    def _on_migration(self, _old: object, _new: object) -> None:
        self._changes += 1

    async def _ask(self, question: Callable[[Inspection], T]) -> T:
        async with self._turn:
            return await asyncio.to_thread(question, self._asked)
