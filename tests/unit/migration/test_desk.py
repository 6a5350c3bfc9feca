"""Our own writes count at once, and no longer than until the watch shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from common.cluster.migrations import Migration
from rebalancer.migration import status
from rebalancer.migration.desk import Desk
from tests.support.migration_scenes import NOW_S, SceneWorld
from tests.support.wire import wire


class Api:
    """Keeps one Migration, and answers with what has become of it."""

    def __init__(self, phase: str, version: int) -> None:
        self.found: dict[str, Any] = {
            "metadata": {"name": "web-a", "uid": "m-web-a", "resourceVersion": str(version)},
            "spec": SPEC,
            "status": {"phase": phase},
        }

    async def get(self, path: str) -> bytes:
        return msgspec.json.encode(self.found)

    async def patch(self, _resource: Any, body: Any, *, name: str, subresource: str) -> bytes:
        return msgspec.json.encode(self.found)

    async def delete(self, _resource: Any, *, name: str, uid: str) -> bytes:
        return b"{}"


SPEC = {
    "pod": {"namespace": "default", "name": "web-a", "uid": "web-a"},
    "controller": {"kind": "ReplicaSet", "name": "web", "uid": "u-web"},
    "source": "n1",
    "target": "n4",
    "strategy": "LoadBalancing",
    "reason": "AboveCeiling",
    "deadline": "2026-11-16T09:04:00Z",
}


async def test_what_was_written_stands_in_until_the_watch_shows_it() -> None:
    state, api = SceneWorld({}).state, Api("InProgress", version=8)
    desk = Desk(api, state)
    before = desk.current("web-a")
    assert before is not None
    assert before.phase == "Pending"
    await desk.write(before, status.started(NOW_S))
    for found in (desk.current("web-a"), desk.snapshot().migrations["web-a"]):
        assert found is not None
        assert (found.phase, found.resource_version) == ("InProgress", 8)
    api.found["metadata"]["resourceVersion"] = "9"
    api.found["status"] = {"phase": "Failed"}
    state.migrations.upsert(wire(Migration, api.found))
    shown = desk.current("web-a")
    assert shown is not None
    assert (shown.phase, shown.resource_version) == ("Failed", 9)


async def test_a_migration_that_is_gone_is_gone_whatever_was_written() -> None:
    state = SceneWorld({}).state
    desk = Desk(Api("InProgress", version=8), state)
    await desk.read("web-a")
    state.migrations.forget("web-a")
    assert desk.current("web-a") is None
    assert "web-a" not in desk.snapshot().migrations
