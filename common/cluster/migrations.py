"""Migrations: one pod's way from a source node to a target node, as the API keeps it.

A Migration is the plan's word to everybody: the rebalancer writes it, every extender reads
it and steers the replacement by it. `Migration` is the object on the wire, `MigrationRecord`
what the cache keeps of it. Which pods can be the replacement is `common.cluster.replacing`'s.
The schema in `deploy/crds/migrations.yaml` says the same as the structs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from common.cluster.interning import Interner
from common.cluster.objects import Object
from common.cluster.records import (
    CONTROLLER_GROUPS,
    ControllerId,
    NodeName,
    OwnerUid,
    PodUid,
    kind_name,
    seconds,
)
from common.cluster.resources import MAX_REQUEST
from common.contract import API_VERSION, PREDICTED_USE
from common.null_json import UNDECODABLE

_CLOSED: Final = frozenset({"Completed", "Failed"})


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
    """The scheduler placed it without asking an extender."""
    NOT_REPLACED = "NotReplaced"
    """Scaled down, superseded or deleted meanwhile: nothing is missing."""


class Step(StrEnum):
    """The conditions of a Migration, in the order in which they come true."""

    BUDGET_CHECKED = "BudgetChecked"
    MARKED = "Marked"
    ACKNOWLEDGED = "Acknowledged"
    PROTECTED = "Protected"
    EVICTED = "Evicted"
    REPLACED = "Replaced"
    READY = "Ready"
    CLEANED_UP = "CleanedUp"


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


class ReplacementRef(_Part, kw_only=True):
    """The pod that took the moved one's place."""

    name: str = ""
    uid: str = ""
    node: str = ""


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
    evicted_at: datetime | None = None
    replacement_deadline: datetime | None = None
    """Until when the replacement has to be Ready, counted from the eviction."""
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
    return {
        "apiVersion": API_VERSION,
        "kind": "Migration",
        "metadata": {"name": migration_name(spec.pod.uid)},
        "spec": spec,
    }


def read_prediction(annotations: Mapping[str, str]) -> Uses | None:
    """Return what was predicted; None if nobody did, or if it makes no sense."""
    try:
        return msgspec.json.decode(annotations.get(PREDICTED_USE, ""), type=Uses)
    except UNDECODABLE:
        return None


class MigrationRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A Migration as the cache keeps it."""

    name: str
    uid: str
    resource_version: int
    created_s: float
    deadline_s: float
    phase: str
    outcome: str
    message: str
    attempts: int
    started_s: float | None
    evicted_s: float | None
    """Since when the pod is gone or going; None while it runs."""
    replacement_deadline_s: float | None
    present: frozenset[PodUid] | None
    """Young siblings that were there before the eviction; None if that was not written down."""
    finished_s: float | None
    conditions: tuple[MigrationCondition, ...]
    namespace: str
    pod_name: str
    pod_uid: PodUid
    controller_kind: str
    """Empty for a bare pod; else as `ControllerId` spells it."""
    controller_uid: OwnerUid
    workload_kind: str
    workload_uid: OwnerUid
    replacement_name: str
    completion_index: int | None
    source: NodeName
    target: NodeName
    alternatives: tuple[NodeName, ...]
    strategy: str
    reason: str
    plan_id: str
    load_cpu_milli: float
    load_mem_bytes: float
    requests_cpu_milli: float
    requests_mem_bytes: float
    priority: int
    needs: tuple[PodUid, ...]
    replacement_uid: PodUid
    """The pod that the controller found to be the replacement; empty while there is none."""
    replacement_pod: str
    """Its name."""
    replacement_node: NodeName
    withdrawn: bool
    """It is being deleted."""
    predicted: Uses | None = None
    """What both nodes are expected to use after it, and what else was decided with it."""

    @property
    def due_s(self) -> float:
        """Return by when it has to be over, and until when its replacement is steered.

        Both programs go by it. A deadline that was set before the eviction says nothing about
        how long the replacement takes, so from the eviction on there is another.
        """
        if self.evicted_s is None:
            return self.deadline_s
        if self.replacement_deadline_s is not None:
            return self.replacement_deadline_s
        # Written by an older version, or kept by an older CRD: as long again as it had at first.
        return max(self.deadline_s, self.evicted_s + self.deadline_s - self.created_s)

    @property
    def open(self) -> bool:
        """Tell whether its replacement is still to be steered, its deadline aside."""
        return self.phase not in _CLOSED and not self.withdrawn

    @property
    def controller_id(self) -> ControllerId | None:
        """Which controller makes the replacement; None for a bare pod."""
        if not self.controller_kind:
            return None
        return ControllerId(self.namespace, self.controller_kind, self.controller_uid)

    @property
    def workload_id(self) -> ControllerId | None:
        """Which workload is moved; None for a bare pod."""
        if not self.workload_uid:
            return None
        return ControllerId(self.namespace, self.workload_kind, self.workload_uid)

    def condition(self, step: Step) -> MigrationCondition | None:
        """Return what is known of a step; None if it was not come to yet."""
        return next((c for c in self.conditions if c.type == step), None)

    def done(self, step: Step) -> bool:
        """Tell whether a step's condition is true."""
        found = self.condition(step)
        return found is not None and found.status == "True"


def _amount(said: float) -> float:
    return max(0.0, min(said, MAX_REQUEST))


def migration_record(wire: Migration, shared: Interner) -> MigrationRecord:
    """Return what the cache keeps of a Migration."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    found = status.replacement or ReplacementRef()
    controller, workload = spec.controller, spec.workload or spec.controller
    return MigrationRecord(
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version or 0),
        created_s=seconds(meta.creation_timestamp) or 0.0,
        deadline_s=spec.deadline.timestamp(),
        phase=shared.value(status.phase or Phase.PENDING.value),
        outcome=shared.value(status.outcome),
        message=status.message,
        attempts=status.attempts,
        started_s=seconds(status.started_at),
        evicted_s=seconds(status.evicted_at),
        replacement_deadline_s=seconds(status.replacement_deadline),
        present=None if status.present is None else frozenset(map(PodUid, status.present)),
        finished_s=seconds(status.finished_at),
        conditions=status.conditions,
        namespace=shared.value(spec.pod.namespace),
        pod_name=spec.pod.name,
        pod_uid=PodUid(spec.pod.uid),
        controller_kind=shared.value(_kind(controller)),
        controller_uid=OwnerUid(controller.uid if controller is not None else ""),
        workload_kind=shared.value(_kind(workload)),
        workload_uid=OwnerUid(workload.uid if workload is not None else ""),
        replacement_name=spec.replacement_name,
        completion_index=spec.completion_index,
        source=NodeName(shared.value(spec.source)),
        target=NodeName(shared.value(spec.target)),
        alternatives=tuple(NodeName(shared.value(name)) for name in spec.alternatives),
        strategy=shared.value(spec.strategy),
        reason=shared.value(spec.reason),
        plan_id=spec.plan_id,
        load_cpu_milli=_amount(spec.load.cpu_milli),
        load_mem_bytes=_amount(spec.load.memory_bytes),
        requests_cpu_milli=_amount(spec.requests.cpu_milli),
        requests_mem_bytes=_amount(spec.requests.memory_bytes),
        priority=spec.priority,
        needs=tuple(PodUid(uid) for uid in spec.needs),
        replacement_uid=PodUid(found.uid),
        replacement_pod=found.name,
        replacement_node=NodeName(found.node),
        withdrawn=meta.deletion_timestamp is not None,
        predicted=read_prediction(meta.annotations or {}),
    )


def _kind(named: ControllerRef | None) -> str:
    """Return a kind as `ControllerId` has it.

    Which of Kubernetes' own groups it is of was judged before it was written; a kind of the
    same name by someone else, such as a StatefulSet of OpenKruise, is another one.
    """
    if named is None:
        return ""
    group = named.api_version.rpartition("/")[0]
    own = named.kind in CONTROLLER_GROUPS and group in CONTROLLER_GROUPS.values()
    return named.kind if own else kind_name(named.api_version, named.kind)
