# SPDX-License-Identifier: Apache-2.0
"""Own writes count at once, and no longer than until the watch shows them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.api.contract import GUIDE_LABEL
from common.api.migrations import Migration, MigrationSpec, MigrationStatus, ReplacementRef, Uses
from common.cache.state import ClusterState
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodUid
from common.kube.resources import Resource
from common.metrics import Metrics
from rebalancer.migration import status
from rebalancer.store import CreateResult, MigrationStore
from tests.support.clock import FakeClock
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.worlds.migration_views import NOW_S, MigrationWorld
from tests.support.worlds.migrations import START, migration, spec_of
from tests.support.worlds.wire import wire

SPEC = {
    "pod": {"namespace": "default", "name": "web-a", "uid": "web-a"},
    "controller": {"kind": "ReplicaSet", "name": "web", "uid": "u-web"},
    "source": "n1",
    "target": "n4",
    "strategy": "LoadBalancing",
    "reason": "AboveCeiling",
    "deadline": "2026-11-16T09:04:00Z",
}


class Api(PartialKubeApi):
    """Keeps one Migration, and answers with what has become of it."""

    def __init__(self, phase: str = "Pending", *, version: int = 7, uid: str = "m-web-a") -> None:
        self.found: dict[str, Any] = {
            "metadata": {"name": "web-a", "uid": uid, "resourceVersion": str(version)},
            "spec": SPEC,
            "status": {"phase": phase},
        }
        self.patches: list[Any] = []

    async def get(self, path: str, **_: Any) -> bytes:
        return msgspec.json.encode(self.found)

    async def patch(self, resource: Resource, body: Any, **_: Any) -> bytes:
        self.patches.append(body)
        return msgspec.json.encode(self.found)


class CreatingApi(PartialKubeApi):
    """Accepts Migrations, each with a uid of its own."""

    def __init__(self, *uids: str) -> None:
        self._uids = list(uids)

    async def create(self, resource: Resource, body: Any, **_: Any) -> bytes:
        made = migration(body["spec"], uid=self._uids.pop(0))
        made.metadata.resource_version = "5"
        return msgspec.json.encode(made)

    async def delete(self, resource: Resource, **_: Any) -> bytes:
        return b"{}"


def store_of(api: PartialKubeApi, state: ClusterState, now_s: float = NOW_S) -> MigrationStore:
    return MigrationStore(api, state, clock=FakeClock(now=now_s), metrics=Metrics("test"))


async def created(store: MigrationStore, spec: MigrationSpec) -> MigrationRecord:
    answer = await store.create(spec, Uses())
    assert answer.result is CreateResult.CREATED
    assert answer.record is not None
    return answer.record


def shown(spec: MigrationSpec, uid: str, **more: Any) -> Migration:
    """Return what the watch shows of a Migration that was created with this spec."""
    made = migration(spec, uid=uid, **more)
    made.metadata.resource_version = "6"
    return made


async def test_what_was_written_stands_in_until_the_watch_shows_it() -> None:
    state, api = MigrationWorld({}).state, Api("InProgress", version=8)
    store = store_of(api, state)
    before = store.current("web-a")
    assert before is not None
    assert before.phase == "Pending"
    await store.update_status(before, status.started(NOW_S))
    for found in (store.current("web-a"), store.snapshot().migrations["web-a"]):
        assert found is not None
        assert (found.phase, found.resource_version) == ("InProgress", 8)
    api.found["metadata"]["resourceVersion"] = "9"
    api.found["status"] = {"phase": "Failed"}
    state.migrations.upsert(wire(Migration, api.found))
    shown = store.current("web-a")
    assert shown is not None
    assert (shown.phase, shown.resource_version) == ("Failed", 9)


async def test_an_older_version_in_the_watch_does_not_hide_a_newer_write() -> None:
    state, api = MigrationWorld({}).state, Api("InProgress", version=8)
    store = store_of(api, state)
    await store.read("web-a")
    api.found["metadata"]["resourceVersion"] = "7"
    state.migrations.upsert(wire(Migration, api.found))
    found = store.current("web-a")
    assert found is not None
    assert found.resource_version == 8


async def test_a_migration_that_is_gone_is_gone_whatever_was_written() -> None:
    state = MigrationWorld({}).state
    store = store_of(Api("InProgress", version=8), state)
    await store.read("web-a")
    state.migrations.forget("web-a")
    assert store.current("web-a") is None
    assert "web-a" not in store.snapshot().migrations


async def test_a_write_to_a_migration_that_was_created_again_is_forgotten() -> None:
    state = MigrationWorld({}).state
    store = store_of(Api("InProgress", version=8), state)
    await store.read("web-a")
    again = Api("Pending", version=3, uid="another")
    state.migrations.upsert(wire(Migration, again.found))
    found = store.current("web-a")
    assert found is not None
    assert (found.uid, found.resource_version) == ("another", 3)


async def test_a_change_carries_the_version_that_was_decided_on() -> None:
    api = Api(version=8)
    store = store_of(api, MigrationWorld({}).state)
    before = store.current("web-a")
    assert before is not None
    await store.update_status(before, {"message": "waiting"})
    version = {"resourceVersion": str(before.resource_version)}
    assert api.patches == [{"metadata": version, "status": {"message": "waiting"}}]


async def test_guiding_is_a_label_of_exactly_this_migration() -> None:
    state, api = MigrationWorld({}).state, Api("InProgress", version=8)
    store = store_of(api, state)
    mine = store.current("web-a")
    assert mine is not None
    api.found["metadata"]["labels"] = {GUIDE_LABEL: "admission"}
    assert (await store.guide(mine)).guides
    del api.found["metadata"]["labels"]
    assert not (await store.unguide(mine)).guides
    said = [patch["metadata"] for patch in api.patches]
    assert said == [
        {"uid": "m-web-a", "labels": {GUIDE_LABEL: value}} for value in ("admission", None)
    ]


async def test_a_created_migration_is_seen_until_the_watch_shows_it() -> None:
    state, spec = ClusterState(), spec_of()
    store = store_of(CreatingApi("new"), state, START.timestamp())
    record = await created(store, spec)
    assert [*store.snapshot().migrations.values()] == [record]
    assert store.current(record.name) == record
    late = state.snapshot()
    state.migrations.upsert(shown(spec, "new", status=MigrationStatus(phase="Failed")))
    snapshot = state.snapshot()
    assert store.overlay(snapshot) is snapshot
    assert store.overlay(late) is late, "what the watch has shown is no own write any more"


async def test_a_snapshot_without_own_writes_is_returned_as_it_is() -> None:
    state = MigrationWorld({}).state
    snapshot = state.snapshot()
    assert store_of(Api(), state).overlay(snapshot) is snapshot


async def test_a_failed_migration_does_not_hide_the_one_in_its_place() -> None:
    state, spec = ClusterState(), spec_of()
    state.migrations.upsert(shown(spec, "old", status=MigrationStatus(phase="Failed")))
    store = store_of(CreatingApi("new"), state, START.timestamp())
    record = await created(store, spec)
    assert [m.uid for m in store.snapshot().migrations.values()] == ["new"]
    state.migrations.forget(record.name)
    assert [m.uid for m in store.snapshot().migrations.values()] == ["new"]


async def test_a_created_migration_that_was_shown_and_deleted_is_gone() -> None:
    state, spec = ClusterState(), spec_of()
    store = store_of(CreatingApi("new"), state, START.timestamp())
    record = await created(store, spec)
    state.migrations.upsert(shown(spec, "new"))
    state.migrations.forget(record.name)
    assert store.current(record.name) is None
    assert not store.snapshot().migrations


async def test_what_the_watch_never_shows_is_forgotten_after_its_deadline() -> None:
    clock, state = FakeClock(now=START.timestamp()), ClusterState()
    store = MigrationStore(CreatingApi("new"), state, clock=clock, metrics=Metrics("test"))
    record = await created(store, spec_of())
    await clock.advance(record.deadline_s - clock.now())
    assert store.current(record.name) is None
    snapshot = state.snapshot()
    assert store.overlay(snapshot) is snapshot


@pytest.mark.parametrize(
    "end",
    [
        lambda state, spec: state.migrations.forget(spec.pod.uid),
        lambda state, spec: state.migrations.upsert(shown(spec, "another")),
        lambda state, spec: state.migrations.upsert(
            shown(spec, "mine", status=MigrationStatus(phase="Completed"))
        ),
    ],
    ids=["gone", "created again", "completed"],
)
def test_a_place_is_kept_until_its_migration_is_over(end: Any) -> None:
    state, spec = ClusterState(), spec_of()
    state.migrations.upsert(shown(spec, "mine"))
    store = store_of(PartialKubeApi(), state)
    store.reserve("mine")
    state.migrations.upsert(shown(spec, "mine", status=MigrationStatus(phase="InProgress")))
    assert store.reserved == {"mine"}
    end(state, spec)
    assert store.reserved == frozenset()


def test_a_place_can_be_given_up() -> None:
    store = store_of(PartialKubeApi(), ClusterState())
    store.reserve("mine")
    store.release("mine")
    store.release("never reserved")
    assert store.reserved == frozenset()


async def test_closing_a_migration_gives_up_its_place() -> None:
    state = MigrationWorld({}).state
    store = store_of(Api("Failed", version=8), state)
    store.reserve("m-web-a")
    before = store.current("web-a")
    assert before is not None
    await store.update_status(before, {"phase": "Failed"})
    assert store.reserved == frozenset()


def test_replacements_inherit_what_their_predecessors_used() -> None:
    state = ClusterState()
    replaced = MigrationStatus(replacement=ReplacementRef(uid="new"))
    state.migrations.upsert(migration(spec_of(), status=replaced))
    state.migrations.upsert(migration(spec_of()))
    [(uid, load)] = store_of(PartialKubeApi(), state).predecessors().items()
    assert (uid, load.cpu_milli, load.mem_bytes) == (PodUid("new"), 812.5, 3.0e8)
