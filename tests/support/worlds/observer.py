# SPDX-License-Identifier: Apache-2.0
"""An observer of a cluster that a test puts together by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from common.cluster.records import PodUid
from common.load import NO_PREDECESSORS, Belief, Load
from common.observer import Observer, Overlay

Believe = Callable[[Mapping[PodUid, Load]], Belief]


def nothing_known(_: Mapping[PodUid, Load]) -> Belief:
    raise AssertionError("this test has no belief about load")


class FakeObserver(Observer):
    """Believes what a test says; reads no cluster."""

    def __init__(self, believe: Believe = nothing_known, *, resting: bool | None = None) -> None:
        """With `resting` it says so whatever the latest belief is."""
        self.believe = believe
        self.latest = None
        self.rests = resting
        self.hangs = False
        """A look never ends."""

    @property
    def resting(self) -> bool:
        return super().resting if self.rests is None else self.rests

    async def look(
        self,
        predecessors: Mapping[PodUid, Load] = NO_PREDECESSORS,
        overlay: Overlay = lambda snapshot: snapshot,
    ) -> Belief:
        if self.hangs:
            await asyncio.Event().wait()
        belief = self.believe(predecessors)
        self.latest = belief._replace(snapshot=overlay(belief.snapshot))
        return self.latest
