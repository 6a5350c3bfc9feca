# SPDX-License-Identifier: Apache-2.0
"""Viewers are told what changed, once and numbered; one that falls behind starts over."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from bench.stands.console import MadeUpCluster
from console.data import ClusterDocument
from console.feed import REST, WAITING, Feed, Viewer
from tests.support.clock import FakeClock


class World(MadeUpCluster):
    """A cluster whose documents take a while to build."""

    took_s = 0.0
    built = 0

    async def cluster(self) -> ClusterDocument | None:
        self.built += 1
        if self.took_s:
            self._clock._monotonic += self.took_s  # type: ignore[attr-defined]  # a slow build
        return await super().cluster()


def events(viewer: Viewer) -> list[tuple[str, Any]]:
    found = []
    while not viewer._messages.empty():
        message = viewer._messages.get_nowait()
        if message is not None:
            head, data = message.decode().strip().split("\n", 1)
            found.append((head.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def applied(document: dict[str, Any], said: dict[str, Any]) -> list[Any]:
    """Return the cells of a page after a message."""
    cells = [list(cell) for cell in document["cluster"]["nodes"]]
    for index, *values in said["cells"]:
        cells[index][3:] = values
    return cells


async def test_a_page_that_applies_changes_has_the_document() -> None:
    world = World(30, clock=FakeClock())
    feed = Feed(world, clock=world._clock)
    before = json.loads(await feed.cluster())
    async with feed.viewer(before["number"]) as viewer:
        events(viewer)
        world.step(share=0.2)
        await feed.poll()
        [(name, said), _] = events(viewer)
        after = json.loads(await feed.cluster())
        assert (name, said["number"]) == (
            "cluster",
            before["number"] + 1 == after["number"] and after["number"],
        )
        assert 0 < len(said["cells"]) < 20
        assert applied(before, said) == after["cluster"]["nodes"]


async def test_a_node_that_comes_or_goes_starts_the_page_over() -> None:
    world = World(5, clock=FakeClock())
    feed = Feed(world, clock=world._clock)
    await feed.cluster()
    await feed.poll()
    async with feed.viewer(1) as viewer:
        events(viewer)
        world.step()
        world.cells = world.cells[1:]
        await feed.poll()
        assert ("reset", {"number": 2}) in events(viewer)


async def test_a_page_with_an_old_document_is_told_to_read_it_again() -> None:
    world = World(5, clock=FakeClock())
    feed = Feed(world, clock=world._clock)
    await feed.cluster()
    await feed.poll()
    async with feed.viewer(0) as viewer:
        assert [name for name, _ in events(viewer)] == ["versions", "reset"]
    async with feed.viewer(0, cells=False) as viewer:
        assert [name for name, _ in events(viewer)] == ["versions"]


async def test_viewers_that_leave_are_forgotten_and_slow_ones_let_go() -> None:
    world = World(5, clock=FakeClock())
    feed = Feed(world, clock=world._clock)
    await feed.cluster()
    await feed.poll()
    async with feed.viewer(1) as viewer:
        for _ in range(WAITING + 3):
            world.step()
            await feed.poll()
        assert viewer.lost
        told = [message async for message in viewer.messages()]
        assert len(told) == WAITING
    assert feed.viewers == 0


async def test_closing_ends_every_stream() -> None:
    feed = Feed(World(2, clock=FakeClock()), clock=FakeClock())
    async with feed.viewer(0, cells=False) as viewer:
        feed.close()
        async with asyncio.timeout(30):
            assert len([message async for message in viewer.messages()]) == 1


async def test_a_large_cluster_is_built_again_only_after_a_rest() -> None:
    clock = FakeClock()
    world = World(5, clock=clock)
    world.took_s = 1.0
    feed = Feed(world, clock=clock)
    async with feed.viewer(1) as viewer:
        await feed.poll()
        for _ in range(int(REST) - 2):
            world.step()
            await clock.advance(1.0)
            await feed.poll()
        assert world.built == 1
        await clock.advance(5.0)
        await feed.poll()
        assert world.built == 2
        # What was held back is shown in the end, and other news were told meanwhile.
        assert events(viewer)[-1][0] == "versions"
    document = await world.cluster()
    assert document is not None
    shown = msgspec.json.decode(await feed.cluster())["cluster"]["nodes"]
    assert shown == json.loads(msgspec.json.encode(document.nodes))


async def test_without_viewers_only_the_load_is_remembered() -> None:
    clock = FakeClock()
    world = World(5, clock=clock)
    feed = Feed(world, clock=clock)
    for _ in range(3):
        world.step()
        await clock.advance(1.0)
        await feed.poll()
    assert world.built == 0
    assert len(feed.history.cluster().times) == 3
    async with feed.viewer(0, cells=False) as viewer:
        events(viewer)
        world.step()
        await clock.advance(1.0)
        await feed.poll()
        assert [name for name, _ in events(viewer)] == ["versions"]
    assert world.built == 0


async def test_a_page_that_opens_gets_the_newest_document_and_then_the_changes() -> None:
    clock = FakeClock()
    world = World(5, clock=clock)
    feed = Feed(world, clock=clock)
    await feed.poll()
    world.step()
    read = json.loads(await feed.cluster())
    assert [cell[5] for cell in read["cluster"]["nodes"]] == [cell.cpu for cell in world.cells]
    async with feed.viewer(read["number"]) as viewer:
        assert [name for name, _ in events(viewer)] == ["versions"]
        world.step()
        await feed.poll()
        assert [name for name, _ in events(viewer)] == ["cluster", "versions"]


async def test_a_document_is_built_once_for_a_sample_and_a_plan() -> None:
    clock = FakeClock()
    world = World(5, clock=clock)
    feed = Feed(world, clock=clock)
    async with feed.viewer(0):
        for _ in range(3):
            await feed.poll()
            await asyncio.gather(feed.cluster(), feed.cluster())
            await clock.advance(1.0)
    assert world.built == 1


async def test_what_fails_once_is_tried_again() -> None:
    class Failing(World):
        async def cluster(self) -> ClusterDocument | None:
            if self.built == 0:
                self.built = 1
                raise RuntimeError("not yet")
            return await super().cluster()

    clock = FakeClock()
    world = Failing(5, clock=clock)
    feed = Feed(world, clock=clock)
    async with feed.viewer(0) as viewer:
        running = asyncio.create_task(feed.run())
        await clock.until_sleeping()
        assert [name for name, _ in events(viewer)] == ["versions"]
        await clock.advance(1.0)
        await clock.until_sleeping()
        assert ("reset", {"number": 1}) in events(viewer)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
