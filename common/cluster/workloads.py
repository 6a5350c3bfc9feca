# SPDX-License-Identifier: Apache-2.0
"""What the cache keeps of the controllers that own pods, and of disruption budgets.

One record serves every kind of controller: how many pods it wants, how many it has, and
the pod it will create next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from common.api.objects import (
    DaemonSet,
    Deployment,
    HorizontalPodAutoscaler,
    Job,
    PodDisruptionBudget,
    PodTemplate,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
    Workload,
    WorkloadStatus,
)
from common.cluster.interning import EMPTY, Interner
from common.cluster.records import (
    ControllerId,
    Owner,
    OwnerUid,
    controller_of,
    kept_annotations,
    seconds,
)
from common.cluster.selectors import NOTHING, Selector, from_label_selector, from_labels
from common.cluster.shapes import PodShape, shape_of

_ENCODER: Final = msgspec.json.Encoder()


class WorkloadRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A controller that owns pods."""

    kind: str
    namespace: str
    name: str
    uid: OwnerUid
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    created_s: float = 0.0
    deleted_s: float | None = None
    owner: Owner | None = None
    selector: Selector = NOTHING
    template: PodShape
    template_labels: Mapping[str, str] = EMPTY
    generation: int = 0
    observed_generation: int = 0
    desired: int = 0
    current: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0
    min_ready_s: int = 0
    paused: bool = False
    """A paused Deployment or a suspended Job."""
    max_surge: int | str = 0
    """Of a Deployment: how many pods a rollout may create beyond its count; 0 if it recreates."""
    progressed_s: float | None = None
    """Of a Deployment that is being rolled out: when that made progress; None if it does not."""
    ordered: bool = False
    """A StatefulSet that waits for each pod's predecessors."""
    partition: int = 0
    current_revision: str = ""
    update_revision: str = ""
    ignores_disruption: bool = False
    """A Job whose podFailurePolicy does not count disrupted pods as failures."""

    complete: bool = False
    """A Job that has done all its work."""
    completed_indexes: str = ""
    """Of an Indexed Job, as its status lists them: `1,3-5,7`."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def controller_id(self) -> ControllerId:
        return ControllerId(self.namespace, self.kind, self.uid)


class BudgetRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PodDisruptionBudget with the disruption controller's last word on it."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    selector: Selector = NOTHING
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    always_allow_unhealthy: bool = False
    generation: int = 0
    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class AutoscalerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A HorizontalPodAutoscaler: which workload it scales."""

    namespace: str
    name: str
    kind: str
    target: str

    @property
    def scaled(self) -> tuple[str, str, str]:
        """The namespace, kind and name of what it scales."""
        return self.namespace, self.kind, self.target


def autoscaler_record(wire: HorizontalPodAutoscaler, shared: Interner) -> AutoscalerRecord:
    meta, target = wire.metadata, wire.spec.scale_target_ref
    return AutoscalerRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        kind=shared.value(target.kind),
        target=target.name,
    )


def deployment_record(wire: Deployment, shared: Interner) -> WorkloadRecord:
    record = _replicated("Deployment", wire, shared)
    return msgspec.structs.replace(
        record, max_surge=_max_surge(wire), progressed_s=_progressed_s(wire)
    )


def _progressed_s(wire: Deployment) -> float | None:
    """Return when a rollout that goes on has last made progress.

    The condition stays True with the reason NewReplicaSetAvailable after a rollout, and turns
    False after `progressDeadlineSeconds`; see syncRolloutStatus in
    pkg/controller/deployment/progress.go.
    """
    for condition in wire.status.conditions or ():
        goes_on = condition.status == "True" and condition.reason != "NewReplicaSetAvailable"
        if condition.type == "Progressing" and goes_on:
            return seconds(condition.last_update_time)
    return None


def _max_surge(wire: Deployment) -> int | str:
    """Return the maxSurge of a rolling update; 25 % is the default of the API server.

    See SetDefaults_Deployment in pkg/apis/apps/v1/defaults.go.
    """
    strategy = wire.spec.strategy
    if strategy is None:
        return "25%"
    if strategy.type == "Recreate":
        return 0
    rolling = strategy.rolling_update
    return "25%" if rolling is None or rolling.max_surge is None else rolling.max_surge


def replica_set_record(wire: ReplicaSet, shared: Interner) -> WorkloadRecord:
    return _replicated("ReplicaSet", wire, shared)


def stateful_set_record(wire: StatefulSet, shared: Interner) -> WorkloadRecord:
    strategy = wire.spec.update_strategy
    rolling = strategy.rolling_update if strategy is not None else None
    return msgspec.structs.replace(
        _replicated("StatefulSet", wire, shared),
        ordered=wire.spec.pod_management_policy != "Parallel",
        partition=(rolling.partition or 0) if rolling is not None else 0,
        current_revision=wire.status.current_revision,
        update_revision=wire.status.update_revision,
    )


def daemon_set_record(wire: DaemonSet, shared: Interner) -> WorkloadRecord:
    status = wire.status
    return msgspec.structs.replace(
        _replicated("DaemonSet", wire, shared),
        desired=status.desired_number_scheduled,
        ready=status.number_ready,
        available=status.number_available,
        updated=status.updated_number_scheduled,
    )


def job_record(wire: Job, shared: Interner) -> WorkloadRecord:
    spec, status = wire.spec, wire.status
    return msgspec.structs.replace(
        _replicated("Job", wire, shared),
        desired=1 if spec.parallelism is None else spec.parallelism,
        current=status.active,
        ready=status.ready or 0,
        available=status.ready or 0,
        updated=status.active,
        paused=bool(spec.suspend),
        ignores_disruption=_ignores_disruption(wire),
        complete=status.completion_time is not None,
        completed_indexes=status.completed_indexes or "",
    )


def replication_controller_record(wire: ReplicationController, shared: Interner) -> WorkloadRecord:
    spec = wire.spec
    workload = Workload(metadata=wire.metadata, status=wire.status)
    workload.spec.replicas = spec.replicas
    workload.spec.template = spec.template
    workload.spec.min_ready_seconds = spec.min_ready_seconds
    return msgspec.structs.replace(
        _replicated("ReplicationController", workload, shared),
        selector=shared.value(from_labels(spec.selector or {})),
    )


def budget_record(wire: PodDisruptionBudget, shared: Interner) -> BudgetRecord:
    meta, spec, status = wire.metadata, wire.spec, wire.status
    return BudgetRecord(
        namespace=shared.value(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        labels=shared.labels(meta.labels),
        annotations=kept_annotations(meta, shared),
        selector=shared.value(from_label_selector(spec.selector)),
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        generation=meta.generation,
        observed_generation=status.observed_generation,
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
        expected_pods=status.expected_pods,
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def _replicated(kind: str, wire: Workload, shared: Interner) -> WorkloadRecord:
    meta, spec = wire.metadata, wire.spec
    status: WorkloadStatus = wire.status
    template = _named(spec.template, meta.namespace)
    return WorkloadRecord(
        kind=kind,
        namespace=shared.value(meta.namespace),
        name=meta.name,
        uid=OwnerUid(meta.uid),
        labels=shared.labels(meta.labels),
        annotations=kept_annotations(meta, shared),
        created_s=seconds(meta.creation_timestamp) or 0.0,
        deleted_s=seconds(meta.deletion_timestamp),
        owner=controller_of(meta, shared),
        selector=shared.value(from_label_selector(spec.selector)),
        template=shared.derived(
            _source(template), lambda: shape_of(template.metadata, template.spec)
        ),
        template_labels=shared.labels(template.metadata.labels),
        generation=meta.generation,
        observed_generation=status.observed_generation,
        desired=1 if spec.replicas is None else spec.replicas,
        current=status.replicas,
        ready=status.ready_replicas,
        available=status.available_replicas,
        updated=status.updated_replicas,
        min_ready_s=spec.min_ready_seconds,
        paused=spec.paused,
    )


def _source(template: PodTemplate) -> bytes:
    """Return everything that the shape of a template is derived from.

    A workload's status changes with every one of its pods, its template hardly ever. Labels
    matter to pod affinity only, so a Deployment and its ReplicaSets share one shape.
    """
    labels = template.metadata.labels if template.spec.affinity is not None else None
    return _ENCODER.encode((template.metadata.namespace, template.spec, labels))


def _named(template: PodTemplate, namespace: str) -> PodTemplate:
    """Return the template with the namespace that its pods will have."""
    template.metadata.namespace = namespace
    return template


def _ignores_disruption(job: Job) -> bool:
    policy = job.spec.pod_failure_policy
    return any(
        rule.action == "Ignore"
        and any(c.type == "DisruptionTarget" for c in rule.on_pod_conditions or ())
        for rule in (policy.rules if policy is not None else None) or ()
    )
