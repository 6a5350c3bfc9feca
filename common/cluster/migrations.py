# SPDX-License-Identifier: Apache-2.0
"""Migrations as the cache keeps them.

Which pods can be the replacement is decided in `common.cache.replacements`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from common.api.contract import GUIDE_LABEL, SURGE_FINALIZER, SURGE_REVERTED
from common.api.migrations import (
    ControllerRef,
    Migration,
    MigrationCondition,
    Phase,
    Purpose,
    ReplacementRef,
    Step,
    Uses,
    read_prediction,
    read_time,
)
from common.cluster.interning import Interner
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

RAISE_REVERTED: Final = "RaiseReverted"
"""The reason of a surge that ended because another client lowered the count again."""
_CLOSED: Final = frozenset({"Completed", "Failed"})


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
    surge: bool = False
    """The replacement is Ready before the pod leaves."""
    surge_replicas: int | None = None
    """How many replicas the workload had before; None until that was written down."""
    surge_generation: int = 0
    """The workload's generation right after the raise; 0 before."""
    raised_s: float | None = None
    """Since when the workload has one replica more; None before."""
    held: bool = False
    """It has our finalizer."""
    guides: bool = False
    """It has the label by which the API server finds those that guide."""
    reverted_s: float | None = None
    """When a raise of the workload was reverted, as an earlier Migration of the pod has found."""
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
    explanation: str = ""
    """Why the pod is moved, in words."""
    workload_name: str = ""
    workload_api_version: str = ""
    predicted: Uses | None = None
    """What both nodes are expected to use after it, and what else was decided with it."""
    actual: Uses | None = None
    """What both nodes were found to use after it; None until that was measured."""

    @property
    def due_s(self) -> float:
        """Return by when it has to be over, and until when its replacement is steered.

        Both programs go by it. A deadline that was set before the eviction says nothing about
        how long the replacement takes, so from the eviction or the raise on there is another.
        """
        if self.evicted_s is None and self.raised_s is None:
            return self.deadline_s
        if self.replacement_deadline_s is not None:
            return self.replacement_deadline_s
        # Written by an older version, or kept by an older CRD: as long again as it had at first.
        since_s = self.raised_s if self.evicted_s is None else self.evicted_s
        return max(self.deadline_s, (since_s or 0.0) + self.deadline_s - self.created_s)

    @property
    def purpose(self) -> Purpose:
        """Return what the pod is moved for."""
        return Purpose.of(self.strategy, self.reason)

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

    @property
    def raise_reverted_s(self) -> float | None:
        """When someone was seen to have undone a raise of the workload's count, if so."""
        return self.finished_s if self.has_reason(RAISE_REVERTED) else self.reverted_s

    def has_reason(self, reason: str) -> bool:
        """Tell whether one of its conditions gives this reason."""
        return any(found.reason == reason for found in self.conditions)

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
    surge, annotations = status.surge, meta.annotations or {}
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
        surge=spec.surge,
        surge_replicas=None if surge is None else surge.replicas,
        surge_generation=0 if surge is None else surge.generation,
        raised_s=seconds(status.raised_at),
        held=SURGE_FINALIZER in (meta.finalizers or ()),
        guides=GUIDE_LABEL in (meta.labels or {}),
        reverted_s=read_time(annotations.get(SURGE_REVERTED, "")),
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
        explanation=shared.value(spec.message),
        workload_name=workload.name if workload is not None else "",
        workload_api_version=shared.value(workload.api_version) if workload is not None else "",
        predicted=read_prediction(annotations),
        actual=status.actual,
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
