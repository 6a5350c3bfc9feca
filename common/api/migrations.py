# SPDX-License-Identifier: Apache-2.0
"""Migrations: one pod's way from a source node to a target node, as the API keeps it.

The rebalancer writes Migrations; every extender reads them and steers replacements by them.
The schema in `deploy/crds/migrations.yaml` matches the structs here. What the cache keeps of
a Migration is `common.cluster.migrations`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from common.api.contract import API_VERSION, PREDICTED_USE, SURGE_FINALIZER
from common.api.objects import Object
from common.null_json import UNDECODABLE

_NODE_MAINTENANCE: Final = "NodeMaintenance"
"""The strategy that drains nodes, as `common.config.Strategy` spells it."""


class MoveReason(StrEnum):
    """Why the planner moves a pod; another author of a Migration may give any other code."""

    ABOVE_CEILING = "AboveCeiling"
    SPREAD = "Spread"
    MAINTENANCE = "Maintenance"
    CONSOLIDATION = "Consolidation"
    """Its node is emptied so that an autoscaler can remove it."""
    MAKES_ROOM = "MakesRoom"
    """It leaves a node that is not drained itself, so that another pod of the plan fits there."""
    VIOLATION = "Violation"
    PREFERENCE = "Preference"
    """Another node suits what it prefers better."""
    HYGIENE = "Hygiene"
    """It is too old, or was restarted too often."""
    DUPLICATE = "Duplicate"
    """Its host holds more replicas of its workload than it has to."""
    TOPOLOGY_SPREAD = "TopologySpread"


class Purpose(StrEnum):
    """What a pod is moved for."""

    LOAD = "load"
    MAINTENANCE = "maintenance"

    @classmethod
    def of(cls, strategy: str, reason: str) -> Purpose:
        """Return what a move claims to be for; that its node is drained is checked elsewhere."""
        drains = strategy == _NODE_MAINTENANCE and reason != MoveReason.MAKES_ROOM
        return cls.MAINTENANCE if drains else cls.LOAD


class Phase(StrEnum):
    """How far a Migration is."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Outcome(StrEnum):
    """Where the replacement came to run."""

    AS_PLANNED = "AsPlanned"
    ALTERNATIVE = "Alternative"
    ELSEWHERE = "Elsewhere"
    BACK_ON_SOURCE = "BackOnSource"
    UNGUIDED = "Unguided"
    """The scheduler placed it without guidance."""
    NOT_REPLACED = "NotReplaced"
    """Scaled down, superseded or deleted meanwhile: nothing is missing."""


class Step(StrEnum):
    """The conditions of a Migration, in the order in which they come true."""

    BUDGET_CHECKED = "BudgetChecked"
    MARKED = "Marked"
    ACKNOWLEDGED = "Acknowledged"
    PROTECTED = "Protected"
    COUNTED = "Counted"
    """Surge: how many replicas the owner of the workload wants is written down."""
    RAISED = "Raised"
    """Surge: the workload has one replica more."""
    EVICTED = "Evicted"
    """The pod has left, or is leaving; with surge because its controller removed it."""
    REPLACED = "Replaced"
    READY = "Ready"
    RANKED = "Ranked"
    """Surge: the pod is the first that its controller would remove."""
    LOWERED = "Lowered"
    """Surge: the workload has as many replicas as before."""
    CLEANED_UP = "CleanedUp"


class StepReason(StrEnum):
    """Reasons of conditions whose step needs no more attention.

    Ready has an Outcome instead. Others may have a refusal's reason: Protected why there is no
    temporary PDB, Evicted that the pod was gone, CleanedUp what was left behind.
    """

    ALLOWED = "Allowed"
    MARKED = "Marked"
    MARK_REFUSED = "MarkRefused"
    """The condition is False, and the move goes on without marks."""
    ACKNOWLEDGED = "Acknowledged"
    TEMPORARY_PDB = "TemporaryPdb"
    EVICTED = "Evicted"
    """The eviction was ours."""
    COUNTED = "Counted"
    RAISED = "Raised"
    """The raise was sent just now."""
    RAISED_BEFORE = "RaisedBefore"
    """The raise was found, and is ours."""
    RANKED = "Ranked"
    LOWERED = "Lowered"
    LOWERED_BEFORE = "LoweredBefore"
    """The count was found as it was before the raise."""
    SCALED_DOWN = "ScaledDown"
    """The controller removed the pod after the workload was lowered."""
    FOUND = "Found"
    COPY_CREATED = "CopyCreated"
    SHARED = "Shared"


class NotReplacedReason(StrEnum):
    """Why a pod that left needs no replacement."""

    OWNER_DELETED = "OwnerDeleted"
    WORK_DONE = "WorkDone"
    SCALED_DOWN = "ScaledDown"
    SUPERSEDED = "Superseded"


class _Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of the blocks of a Migration."""


class PodRef(_Part, kw_only=True):
    """The pod that is to move."""

    namespace: str
    name: str
    uid: str


class ControllerRef(_Part, kw_only=True):
    """The controller that will create the replacement."""

    api_version: str = ""
    kind: str
    name: str
    uid: str


class Amounts(_Part, kw_only=True):
    """CPU and memory, used or asked for."""

    cpu_milli: float = 0.0
    memory_bytes: float = 0.0


class MigrationSpec(_Part, kw_only=True):
    """What was planned; never changes once it is written."""

    pod: PodRef
    controller: ControllerRef | None = None
    """Who replaces the pod; none for a bare pod."""
    workload: ControllerRef | None = None
    """The top-level owner, for limits: of a ReplicaSet its Deployment."""
    replacement_name: str = ""
    """Of a bare pod: how its copy is called."""
    completion_index: int | None = None
    """Of an Indexed Job's pod."""
    source: str
    target: str
    alternatives: tuple[str, ...] = ()
    strategy: str
    reason: str
    message: str = ""
    plan_id: str = ""
    deadline: datetime
    load: Amounts = msgspec.field(default_factory=Amounts)
    """What the pod really uses: the replacement's estimate until it has samples."""
    requests: Amounts = msgspec.field(default_factory=Amounts)
    priority: int = 0
    needs: tuple[str, ...] = ()
    """Uids of pods that must be gone before this one is evicted: it needs their room."""
    surge: bool = False
    """The replacement is Ready before the pod leaves: the workload gets one more replica."""


class ReplacementRef(_Part, kw_only=True):
    """The pod that took the moved one's place."""

    name: str = ""
    uid: str = ""
    node: str = ""


class SurgeState(_Part, kw_only=True):
    """What a surge found before it raised the count of a workload."""

    replicas: int
    """How many replicas its owner wants: what the count is lowered to again."""
    generation: int = 0
    """The generation of the workload right after the raise; 0 before it."""


class MigrationCondition(_Part, kw_only=True):
    """One step: whether it is done, since when, and why."""

    type: str
    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str = ""
    last_transition_time: datetime


class NodeUse(_Part, kw_only=True):
    """How much of a node is in use, in percent of allocatable."""

    cpu_percent: float = 0.0
    memory_percent: float = 0.0


class Uses(_Part, kw_only=True):
    """How much of both nodes is in use."""

    source: NodeUse | None = None
    target: NodeUse | None = None


class MigrationStatus(_Part, kw_only=True):
    """What has come of it."""

    phase: str = ""
    outcome: str = ""
    message: str = ""
    attempts: int = 0
    """Evictions that were tried and failed."""
    replacement: ReplacementRef | None = None
    started_at: datetime | None = None
    present: tuple[str, ...] | None = None
    """Uids of young pods of the same controller that were there before: none is the replacement."""
    surge: SurgeState | None = None
    raised_at: datetime | None = None
    evicted_at: datetime | None = None
    replacement_deadline: datetime | None = None
    """Until when the replacement has to be Ready, counted from the eviction or the raise."""
    finished_at: datetime | None = None
    predicted: Uses | None = None
    actual: Uses | None = None
    conditions: tuple[MigrationCondition, ...] = ()


class Migration(Object, kw_only=True):
    """The object on the wire."""

    spec: MigrationSpec
    status: MigrationStatus = msgspec.field(default_factory=MigrationStatus)


def migration_name(pod_uid: str) -> str:
    """Return the name of the only Migration that a pod can have."""
    return pod_uid


def new_migration(spec: MigrationSpec) -> dict[str, Any]:
    """Return the object to create; a second one for the same pod is a conflict."""
    metadata: dict[str, Any] = {"name": migration_name(spec.pod.uid)}
    if spec.surge:
        metadata["finalizers"] = [SURGE_FINALIZER]
    return {
        "apiVersion": API_VERSION,
        "kind": "Migration",
        "metadata": metadata,
        "spec": spec,
    }


def read_prediction(annotations: Mapping[str, str]) -> Uses | None:
    """Return what was predicted; None if nothing was, or if it is invalid."""
    try:
        return msgspec.json.decode(annotations.get(PREDICTED_USE, ""), type=Uses)
    except UNDECODABLE:
        return None


def read_time(text: str) -> float | None:
    """Return a time that an annotation holds, as seconds; None if there is none."""
    try:
        return msgspec.convert(text, type=datetime).timestamp()
    except UNDECODABLE:
        return None
