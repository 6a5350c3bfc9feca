# SPDX-License-Identifier: Apache-2.0
"""A workload as the API server has it now, and the one way in which its count is changed.

The count goes through the `scale` subresource, with the resourceVersion that was read
together with everything that was decided on: if anyone has written the workload since, the
API server refuses with a Conflict. Whose the count is can be read from managedFields: a write
that changes `spec.replicas` takes it from all other managers, and an apply that declares the
same value becomes its co-owner (structured-merge-diff, merge/update.go).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from common.api.contract import FIELD_MANAGER
from common.api.migrations import SurgeState
from common.cluster.migrations import MigrationRecord
from common.kube.api import KubeApi
from common.kube.resources import DEPLOYMENTS, REPLICASETS, Resource

RESOURCES: Final[dict[str, Resource]] = {"Deployment": DEPLOYMENTS, "ReplicaSet": REPLICASETS}
_FAILURE: Final = "ReplicaFailure"


class Whose(StrEnum):
    """Who has set the count that was found, compared with what a surge wrote."""

    BEFORE = "before"
    """It is what it was before the raise."""
    OURS = "ours"
    """It is what we raised it to, and no one else declares it."""
    CLAIMED = "claimed"
    """It is what we raised it to, and someone else has set or declares it too."""
    THEIRS = "theirs"


class _Managed(msgspec.Struct, rename="camel"):
    manager: str = ""
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    managed_fields: list[_Managed] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    paused: bool = False


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    conditions: list[_Condition] | None = None


class LiveWorkload(msgspec.Struct):
    """A Deployment or ReplicaSet, read from the API server."""

    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def unrest(self) -> str:
        """What shows that the workload has not come to rest; empty if nothing does."""
        meta, status, wanted = self.metadata, self.status, self.replicas
        if meta.deletion_timestamp is not None:
            return "it is being deleted"
        if self.spec.paused:
            return "it is paused"
        if status.observed_generation < meta.generation:
            return "its controller has not seen its last change"
        # A ReplicaSet has one template only, and no status.updatedReplicas.
        updated = status.updated_replicas if self.kind == DEPLOYMENTS.kind else status.replicas
        if (status.replicas, updated) != (wanted, wanted):
            return f"{updated} of {wanted} pods are updated, {status.replicas} exist"
        if status.available_replicas < wanted:
            return f"{status.available_replicas} of {wanted} pods are available"
        return ""

    @property
    def creation_failure(self) -> str:
        """Why the controller could not create a pod: a quota, or an admission controller."""
        found = (c for c in self.status.conditions or () if c.type == _FAILURE)
        return next((c.message for c in found if c.status == "True"), "")

    def owners_of_count(self) -> frozenset[str]:
        """Return the field managers of `spec.replicas`; empty where none is recorded."""
        found = self.metadata.managed_fields or ()
        return frozenset(m.manager for m in found if "f:replicas" in _spec_fields(m))

    def whose(self, state: SurgeState) -> Whose:
        """Tell who has set the count, if it was `state.replicas` before our raise."""
        if self.replicas == state.replicas:
            return Whose.BEFORE
        if self.replicas != state.replicas + 1:
            return Whose.THEIRS
        alone = self.owners_of_count() <= {FIELD_MANAGER}
        return Whose.OURS if alone else Whose.CLAIMED

    def others(self) -> str:
        """Name the other field managers of the count."""
        return ", ".join(sorted(self.owners_of_count() - {FIELD_MANAGER}))


def _spec_fields(managed: _Managed) -> dict[str, Any]:
    found = (managed.fields or {}).get("f:spec")
    return found if isinstance(found, dict) else {}


class WorkloadScaler:
    """Reads and scales the workloads of Migrations."""

    def __init__(self, client: KubeApi) -> None:
        self._client = client

    async def read(self, migration: MigrationRecord) -> LiveWorkload | None:
        """Read the workload of a move; None if it is gone, or another has its name."""
        return await self._get(
            migration, migration.workload_kind, migration.workload_name, migration.workload_uid
        )

    async def read_controller(self, migration: MigrationRecord, name: str) -> LiveWorkload | None:
        """Read the controller of the pod: of a Deployment, its ReplicaSet."""
        return await self._get(migration, migration.controller_kind, name, migration.controller_uid)

    async def _get(
        self, migration: MigrationRecord, kind: str, name: str, uid: str
    ) -> LiveWorkload | None:
        path = RESOURCES[kind].path(namespace=migration.namespace, name=name)
        found = msgspec.json.decode(await self._client.get(path), type=LiveWorkload)
        return found if found.metadata.uid == uid else None

    async def scale(self, migration: MigrationRecord, found: LiveWorkload, count: int) -> None:
        """Set the count, unless the workload was written since it was read."""
        resource = RESOURCES[migration.workload_kind]
        name, namespace = migration.workload_name, migration.namespace
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": found.metadata.uid,
                "resourceVersion": found.metadata.resource_version,
            },
            "spec": {"replicas": count},
        }
        path = resource.path(namespace=namespace, name=name, subresource="scale")
        await self._client.request("PUT", path, params={"fieldManager": FIELD_MANAGER}, body=body)
