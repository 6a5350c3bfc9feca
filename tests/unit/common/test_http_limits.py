# SPDX-License-Identifier: Apache-2.0
"""Who has to go when a port is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from common.http_limits import LimitedProtocol, Limits, PortState

NOW_S = 1_000.0


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing; no request is ever complete here."""


class Wire(asyncio.Transport):
    """A transport that only knows whether it was cut."""

    cut = False

    def abort(self) -> None:
        self.cut = True


def full_port(*connections: tuple[float, bool]) -> tuple[PortState, list[Wire]]:
    """Return a full port: since how many seconds each is idle, and whether it ever asked."""
    state = PortState(Limits(connections=len(connections)), None, "test")
    config = uvicorn.Config(answer, lifespan="off", ws="none", log_config=None)
    wires = []
    for idle_s, has_asked in connections:
        made = LimitedProtocol(config, state, {})
        wires.append(Wire())
        made.transport = wires[-1]
        made.since_s = NOW_S - idle_s
        made._answered = int(has_asked)
        state.connections.add(made)
    return state, wires


@pytest.mark.parametrize(
    ("connections", "gone"),
    [
        pytest.param([(5, False), (9, False)], 1, id="the oldest of those that never asked"),
        pytest.param([(60, True), (1, False)], 1, id="a stranger before a client"),
        pytest.param([(60, True), (90, True)], 1, id="the oldest client if there is no other"),
        pytest.param([(60, True), (0.01, False)], None, id="no client for a crowd that rushes in"),
        pytest.param([(0.01, True), (0.02, True)], None, id="who may ask at any moment"),
    ],
)
async def test_the_oldest_idle_connection_goes(
    connections: list[tuple[float, bool]], gone: int | None
) -> None:
    state, wires = full_port(*connections)
    assert state.make_room(NOW_S) is (gone is not None)
    assert [number for number, wire in enumerate(wires) if wire.cut] == (
        [] if gone is None else [gone]
    )
    assert len(state.connections) == len(connections) - (gone is not None)


async def test_no_one_goes_while_there_is_room() -> None:
    state, wires = full_port((60, False), (60, False))
    state.connections.pop()
    assert state.make_room(NOW_S)
    assert not any(wire.cut for wire in wires)


async def test_connections_that_are_being_opened_count() -> None:
    state, _ = full_port((0.01, False), (0.01, False))
    state.connections.pop()
    state.opening = 1
    assert not state.make_room(NOW_S)
