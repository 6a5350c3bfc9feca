# SPDX-License-Identifier: Apache-2.0
"""What the cache keeps of nodes and pods.

A record is compact, immutable and parsed: quantities are integers, times are seconds
since the epoch, selectors are compiled. What all pods of a template have in common is a
`PodShape`, of which there is one copy however many pods share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple, NewType

import msgspec
from msgspec.structs import replace

from common.api.contract import DRAINED_CONDITION, MIRROR_POD, is_read
from common.api.objects import (
    Condition,
    ContainerStatus,
    Node,
    NodeCondition,
    ObjectMeta,
    Pod,
    Taint,
    Volume,
)
from common.cluster.container_states import (
    NONE_STALLED,
    Containers,
    StalledContainer,
    containers_of,
)
from common.cluster.interning import EMPTY, Interner
from common.cluster.pod_reports import (
    NO_CONDITIONS,
    PodConditionRecord,
    PodReport,
    conditions_of,
    report_of,
)
from common.cluster.resources import MAX_ALLOCATABLE, NOTHING, PODS, Resources, amounts
from common.cluster.shapes import PodShape, shape_of

NodeName = NewType("NodeName", str)
PodUid = NewType("PodUid", str)
OwnerUid = NewType("OwnerUid", str)

UNBOUND = NodeName("")

_ENCODER: Final = msgspec.msgpack.Encoder()
_NO_MATTER: Final = Volume()
"""A volume of a kind that decides nothing; its generated name differs by replica."""

CONTROLLER_GROUPS: Final = {
    "ReplicaSet": "apps",
    "Deployment": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "Job": "batch",
    "ReplicationController": "",
}
"""The controllers that we read, each with its API group."""

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class ControllerId(NamedTuple):
    """Which controller.

    An ownerReference is text that the author of an object writes: it can carry the uid of
    any object of the cluster. A controller acts in its own namespace only, so a uid counts
    together with the namespace of the object that names it, and with the kind.
    """

    namespace: str
    kind: str
    """Plain where we read it, `ReplicaSet`; else with its group, `Rollout.argoproj.io`."""
    uid: OwnerUid


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller of an object, as the object says."""

    api_version: str
    kind: str
    name: str
    uid: OwnerUid

    def within(self, namespace: str) -> ControllerId:
        """Return which controller an object of this namespace means."""
        return ControllerId(namespace, kind_name(self.api_version, self.kind), self.uid)


class ConditionRecord(msgspec.Struct, frozen=True, gc=False):
    """What a condition of a node says."""

    status: str
    """`True`, `False` or `Unknown`."""
    reason: str
    message: str


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node as we know it."""

    name: NodeName
    uid: str
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = False
    created_s: float = 0.0
    allocatable: Resources = NOTHING
    max_pods: int = 0
    addresses: tuple[str, ...] = ()
    images: tuple[tuple[str, int], ...] = ()
    features: frozenset[str] = frozenset()
    """What the kubelet says it can do (status.declaredFeatures)."""
    drained: ConditionRecord | None = None
    """Our own condition; None if the node has none."""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod as we know it."""

    namespace: str
    name: str
    uid: PodUid
    node: NodeName = UNBOUND
    nominated_node: NodeName = UNBOUND
    phase: str = "Pending"
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    created_s: float = 0.0
    scheduled_s: float | None = None
    ready_since_s: float | None = None
    deleted_s: float | None = None
    unschedulable: bool = False
    """The scheduler has tried and found no node."""
    owner: Owner | None = None
    owned: bool = False
    """Has an owner of any kind, a controller or not."""
    running_containers: int | None = None
    """How many containers run now; None where the kubelet has said nothing yet."""
    stalled: tuple[StalledContainer, ...] = NONE_STALLED
    """The containers that should run and do not, in the order of the spec."""
    started_s: float | None = None
    """When the first of the containers that run for the first time began; None if none does."""
    end_reason: str = ""
    """Why it ended, where its kubelet or a controller said so: `Evicted`, `OutOfcpu`."""
    report: PodReport | None = None
    """What stands out in its status; None if nothing does."""
    conditions: tuple[PodConditionRecord, ...] = NO_CONDITIONS
    """The conditions that are not just True."""
    resize: str = ""
    """Why its kubelet does not resize it in place: `Deferred`, `Infeasible`; empty if it does."""
    shape: PodShape

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controller_id(self) -> ControllerId | None:
        """Which controller the pod says it has; whether that exists is the snapshot's to say."""
        return self.owner.within(self.namespace) if self.owner is not None else None

    @property
    def placed_s(self) -> float:
        """When it got its node; when it was created if it has none, or that is not known."""
        return self.created_s if self.scheduled_s is None else self.scheduled_s

    @property
    def requests(self) -> Resources:
        return self.shape.requests

    @property
    def terminating(self) -> bool:
        return self.deleted_s is not None

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED_PHASES

    @property
    def ready(self) -> bool:
        return self.ready_since_s is not None

    @property
    def is_running_nothing(self) -> bool:
        """Its kubelet says that no container of it runs now; False where nothing is said."""
        return self.running_containers == 0

    @property
    def mirror(self) -> bool:
        """Made by a kubelet from a file; the API server only shows it."""
        return MIRROR_POD in self.annotations


def node_record(node: Node, shared: Interner) -> NodeRecord:
    """Parse a node; raises ValueError when a quantity is nonsense."""
    meta, status = node.metadata, node.status
    allocatable = amounts(status.allocatable)
    ready = _condition(status.conditions, "Ready")
    return NodeRecord(
        name=NodeName(meta.name),
        uid=meta.uid,
        labels=shared.labels(meta.labels),
        annotations=kept_annotations(meta, shared),
        taints=node.spec.taints,
        unschedulable=node.spec.unschedulable,
        ready=ready is not None and ready.status == "True",
        created_s=seconds(meta.creation_timestamp) or 0.0,
        allocatable=shared.value(Resources.from_amounts(allocatable, MAX_ALLOCATABLE)),
        max_pods=min(allocatable.get(PODS, 0) // 1000, MAX_ALLOCATABLE),
        addresses=tuple(a.address for a in status.addresses or ()),
        images=tuple(
            shared.value((name, image.size_bytes))
            for image in status.images or ()
            for name in image.names or ()
        ),
        features=shared.value(frozenset(status.declared_features or ())),
        drained=_drained(status.conditions),
    )


def _drained(conditions: Iterable[NodeCondition] | None) -> ConditionRecord | None:
    for found in conditions or ():
        if found.type == DRAINED_CONDITION:
            return ConditionRecord(found.status, found.reason, found.message)
    return None


def pod_record(pod: Pod, shared: Interner) -> PodRecord:
    """Parse a pod; raises ValueError when a quantity or a selector is nonsense."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    scheduled = _condition(status.conditions, "PodScheduled")
    ready = _condition(status.conditions, "Ready")
    finished = status.phase in FINISHED_PHASES
    containers = Containers(0) if finished else containers_of(spec, status)
    report = report_of(status)
    return PodRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        uid=PodUid(meta.uid),
        node=NodeName(shared.value(spec.node_name)),
        nominated_node=NodeName(status.nominated_node_name),
        phase=shared.value(status.phase),
        labels=shared.labels(meta.labels),
        annotations=kept_annotations(meta, shared),
        created_s=seconds(meta.creation_timestamp) or 0.0,
        scheduled_s=_scheduled_s(pod, scheduled),
        ready_since_s=_since(ready, "True"),
        deleted_s=seconds(meta.deletion_timestamp),
        unschedulable=scheduled is not None and scheduled.reason == "Unschedulable",
        owner=controller_of(meta, shared),
        owned=bool(meta.owner_references),
        running_containers=containers.running,
        stalled=shared.value(containers.stalled) if containers.stalled else NONE_STALLED,
        started_s=seconds(containers.started),
        end_reason=shared.value(status.reason) if finished else "",
        report=shared.value(report) if report is not None else None,
        conditions=conditions_of(status.conditions) or NO_CONDITIONS,
        resize=_resize(status.conditions),
        shape=shared.derived(_source(pod), lambda: shape_of(meta, spec, status)),
    )


def _resize(conditions: Iterable[Condition] | None) -> str:
    # PodReasonDeferred and PodReasonInfeasible in staging/src/k8s.io/api/core/v1/types.go.
    found = _condition(conditions, "PodResizePending")
    waits = found is not None and found.status == "True"
    return found.reason if waits and found is not None else ""


def _source(pod: Pod) -> bytes:
    """Return everything that the shape is derived from, and nothing that differs by replica.

    Comparing these few hundred bytes costs a tenth of parsing quantities and compiling
    selectors for every replica again.
    """
    status = pod.status
    volumes = [v for v in pod.spec.volumes or () if replace(v, name="") != _NO_MATTER]
    spec = replace(pod.spec, node_name="", volumes=volumes)
    resized = (
        _resized(status.container_statuses),
        _resized(status.init_container_statuses),
        status.resources,
        status.allocated_resources,
        _condition(status.conditions, "PodResizePending"),
    )
    return _ENCODER.encode((pod.metadata.namespace, spec, resized))


def _resized(statuses: Iterable[ContainerStatus] | None) -> list[ContainerStatus]:
    """Return what in-place resizing reads; whether a container runs is no part of a shape."""
    seen = (s for s in statuses or () if s.resources is not None)
    return [replace(s, state=None, restart_count=0) for s in seen]


@lru_cache(maxsize=1024)
def kind_name(api_version: str, kind: str) -> str:
    """Return how a kind of controllers is told apart from others of the same name."""
    group = api_version.rpartition("/")[0]
    if not api_version or CONTROLLER_GROUPS.get(kind) == group:
        return kind
    return f"{kind}.{group}" if group or kind in CONTROLLER_GROUPS else kind


def controller_of(meta: ObjectMeta, shared: Interner) -> Owner | None:
    """Return the owner that is marked as the controller."""
    for ref in meta.owner_references or ():
        if ref.controller:
            return shared.value(Owner(ref.api_version, ref.kind, ref.name, OwnerUid(ref.uid)))
    return None


def kept_annotations(meta: ObjectMeta, shared: Interner) -> Mapping[str, str]:
    """Return the annotations that are used."""
    if not meta.annotations:
        return EMPTY
    return shared.labels({k: v for k, v in meta.annotations.items() if is_read(k)})


def seconds(moment: datetime | None) -> float | None:
    """Return seconds since the epoch."""
    return None if moment is None else moment.timestamp()


def _scheduled_s(pod: Pod, scheduled: Condition | None) -> float | None:
    if not pod.spec.node_name:
        return None
    moment = _since(scheduled, "True")
    # Static pods and pods bound by hand never get the condition.
    return moment if moment is not None else seconds(pod.status.start_time)


def _since(condition: Condition | None, status: str) -> float | None:
    if condition is None or condition.status != status:
        return None
    return seconds(condition.last_transition_time) or 0.0


def _condition(conditions: Iterable[Condition] | None, kind: str) -> Condition | None:
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return None
