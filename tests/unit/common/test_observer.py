# SPDX-License-Identifier: Apache-2.0
"""The load book is used by one thread at a time, also when the one that asked is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from common.checkpoint import Checkpoint, no_checkpoint
from common.clock import SYSTEM
from common.cluster.records import PodUid
from common.config import RebalancerConfiguration
from common.kube.client import KubeClient
from common.load import Load
from common.metrics import Metrics
from common.observer import Observer
from simulator import build
from tests.support.clock import FakeClock
from tests.support.worlds.wire import wire_node, wire_pod


class Slow(Mapping[PodUid, Load]):
    """The predecessors of no pod, which it takes a thread as long to read as a test wants."""

    def __init__(self, *, broken: bool = False) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self._broken = broken

    def __getitem__(self, uid: PodUid) -> Load:
        raise KeyError(uid)

    def __iter__(self) -> Iterator[PodUid]:
        self.begun.set()
        assert self.over.wait(30.0)
        if self._broken:
            raise RuntimeError("unreadable")
        return iter(())

    def __len__(self) -> int:
        return 0


def an_observer(checkpoint: Checkpoint = no_checkpoint) -> Observer:
    """Return one that has read a node with a pod, and never asks anybody."""
    no_client = cast("KubeClient", None)
    observer = Observer(
        no_client,
        RebalancerConfiguration(),
        clock=FakeClock(),
        metrics=Metrics("test"),
        checkpoint=checkpoint,
    )
    observer.reader.state.nodes.upsert(wire_node(build.node("n1")))
    observer.reader.state.pods.upsert(wire_pod(build.pod("p", node="n1")))
    return observer


async def test_a_look_that_is_cancelled_keeps_its_turn_until_its_thread_is_done() -> None:
    observer, slow = an_observer(), Slow()
    first = asyncio.create_task(observer.look(slow))
    await asyncio.to_thread(slow.begun.wait, 30.0)
    first.cancel()
    await asyncio.wait({first})
    assert first.cancelled(), "who asked does not wait for the thread"
    second = asyncio.create_task(observer.look())
    for _ in range(10):
        await SYSTEM.sleep(0)
    assert not second.done()
    slow.over.set()
    belief = await second
    assert set(belief.load.nodes) == {"n1"}


async def test_who_is_more_urgent_is_let_through_while_it_looks() -> None:
    pauses: list[str] = []
    observer = an_observer(checkpoint=lambda: pauses.append("one"))
    await observer.look()
    assert pauses == ["one"]


async def test_the_next_look_has_its_turn_after_one_that_failed() -> None:
    observer, broken = an_observer(), Slow(broken=True)
    broken.over.set()
    with pytest.raises(RuntimeError, match="unreadable"):
        await observer.look(broken)
    assert set((await observer.look()).load.nodes) == {"n1"}
