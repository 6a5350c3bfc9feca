"""The newest that this process knows of each Migration, and the only writer of its status.

A watch shows our own writes late. Until it does, the answer to the write stands in for the
cache; without it a second look would take the same step again, and two moves would each
believe that the other has not begun. A write carries the version that was decided on: if
somebody else was faster it is refused, the object is read, and the decision is made anew.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from common.cluster.migrations import Migration, MigrationRecord, migration_record
from common.cluster.snapshot import Snapshot
from common.cluster.state import ClusterState
from common.kube.resources import MIGRATIONS, Resource
from common.null_json import JsonDecoder
from rebalancer.migration import status


class MigrationClient(Protocol):
    """The part of `KubeClient` that the desk needs."""

    async def get(self, path: str) -> bytes: ...

    async def patch(
        self, resource: Resource, body: Any, *, name: str, subresource: str
    ) -> bytes: ...

    async def delete(self, resource: Resource, *, name: str, uid: str) -> bytes: ...


class Desk:
    """Reads and writes Migrations."""

    def __init__(self, client: MigrationClient, state: ClusterState) -> None:
        self._client = client
        self._state = state
        self._newest: dict[str, MigrationRecord] = {}
        self._decoder = JsonDecoder(Migration)

    def current(self, name: str) -> MigrationRecord | None:
        """Return the newest version of a Migration; None if there is none any more."""
        cached = self._state.migrations.records.get(name)
        written = self._newest.get(name)
        if cached is None or written is None:
            self._newest.pop(name, None)
            return cached
        if cached.uid != written.uid or cached.resource_version >= written.resource_version:
            del self._newest[name]
            return cached
        return written

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is known, with our own writes in it."""
        snapshot = self._state.snapshot()
        written = {name: found for name in tuple(self._newest) if (found := self.current(name))}
        if not written:
            return snapshot
        return msgspec.structs.replace(snapshot, migrations={**snapshot.migrations, **written})

    async def write(self, migration: MigrationRecord, change: status.Change) -> MigrationRecord:
        """Change the status; raise Conflict if the Migration is not what it was."""
        body = status.patch(migration, change)
        answer = await self._client.patch(
            MIGRATIONS, body, name=migration.name, subresource="status"
        )
        return self._keep(answer)

    async def read(self, name: str) -> MigrationRecord:
        """Ask the server for the Migration as it is now."""
        return self._keep(await self._client.get(MIGRATIONS.path(name=name)))

    async def remove(self, migration: MigrationRecord) -> None:
        """Delete exactly this Migration."""
        await self._client.delete(MIGRATIONS, name=migration.name, uid=migration.uid)

    def _keep(self, answer: bytes) -> MigrationRecord:
        found = migration_record(self._decoder.decode(answer), self._state.shared)
        self._newest[found.name] = found
        return found
