# SPDX-License-Identifier: Apache-2.0
"""The shape of Kubernetes' objects on the wire: only the fields that Evenkeel reads.

Everything else is skipped by the decoder without being built. Every field has a default,
because the API server leaves out what is empty. A `null` is absent (`common.null_json`);
fields that say `None` here are those for which Go marshals a nil pointer or slice, and
are decoded in one pass. These values live only between the decoder and the records.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from common.api.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    WireNodeSelector,
)

Quantities = dict[str, str | int | float]
"""Amounts by resource; Quantity.UnmarshalJSON of apimachinery takes bare numbers too."""


class Effect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A mark on a node that keeps pods away."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A pod's leave to ignore taints; an empty key or effect stands for all of them."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Wire(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """Base of all wire structs."""


class OwnerReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[str] | None = None


class Object(Wire):
    """Any object: what a reflector needs to know of it."""

    metadata: ObjectMeta


class Condition(Wire):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class NodeCondition(Condition):
    message: str = ""


class CrossVersionObjectReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class VpaUpdatePolicy(Wire):
    update_mode: str = ""


class VpaContainerPolicy(Wire):
    container_name: str = ""
    mode: str = ""
    controlled_resources: tuple[str, ...] | None = None


class VpaResourcePolicy(Wire):
    container_policies: list[VpaContainerPolicy] | None = None


class VpaSpec(Wire):
    target_ref: CrossVersionObjectReference | None = None
    update_policy: VpaUpdatePolicy | None = None
    resource_policy: VpaResourcePolicy | None = None


class VpaContainerRecommendation(Wire):
    container_name: str = ""
    target: Quantities | None = None


class VpaRecommendation(Wire):
    container_recommendations: list[VpaContainerRecommendation] | None = None


class VpaStatus(Wire):
    recommendation: VpaRecommendation | None = None


class VerticalPodAutoscaler(Object):
    spec: VpaSpec = msgspec.field(default_factory=VpaSpec)
    status: VpaStatus = msgspec.field(default_factory=VpaStatus)


class NodeSpec(Wire):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(Wire):
    type: str = ""
    address: str = ""


class ContainerImage(Wire):
    names: tuple[str, ...] | None = ()
    size_bytes: int = 0


class NodeStatus(Wire):
    allocatable: Quantities | None = None
    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None
    images: list[ContainerImage] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(Object):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ResourceRequirements(Wire):
    requests: Quantities | None = None
    limits: Quantities | None = None


class ContainerPort(Wire):
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class RestartRule(Wire):
    action: str = ""


class Container(Wire):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class PreferredNodeTerm(Wire):
    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Wire):
    required: WireNodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[PreferredNodeTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(Wire):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedPodAffinityTerm(Wire):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Wire):
    required: list[PodAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


class ClaimVolume(Wire):
    claim_name: str = ""
    read_only: bool = False


class EmptyDirVolume(Wire):
    medium: str = ""


class CsiVolume(Wire):
    driver: str = ""


class DiskVolume(Wire):
    """In-tree disks that may be mounted once: whichever of the names is set tells which."""

    pd_name: str = ""
    volume_id: str = msgspec.field(name="volumeID", default="")
    iqn: str = ""
    monitors: tuple[str, ...] | None = None
    pool: str = "rbd"
    image: str = ""
    read_only: bool = False


class ImageVolume(Wire):
    reference: str = ""


class Volume(Wire):
    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None  # Any: only whether it is there matters
    empty_dir: EmptyDirVolume | None = None
    host_path: dict[str, Any] | None = None  # Any: only whether it is there matters
    csi: CsiVolume | None = None
    image: ImageVolume | None = None
    gce_persistent_disk: DiskVolume | None = None
    aws_elastic_block_store: DiskVolume | None = None
    iscsi: DiskVolume | None = None
    rbd: DiskVolume | None = None


class SchedulingGate(Wire):
    name: str = ""


class ResourceClaim(Wire):
    name: str = ""


class SchedulingGroup(Wire):
    """The PodGroup of a pod, from Kubernetes v1.36 on (core/v1 PodSchedulingGroup)."""

    pod_group_name: str = ""


class WorkloadReference(Wire):
    """What v1.35 had in the place of the scheduling group."""

    name: str = ""
    pod_group: str = ""


class PodSpec(Wire):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None
    hostname: str = ""
    host_network: bool = False
    host_users: bool | None = None
    containers: list[Container] = msgspec.field(default_factory=list)
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    resource_claims: tuple[ResourceClaim, ...] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class StateDetails(Wire):
    """Why a container waits or has ended; of a running one when it began."""

    reason: str | None = None
    exit_code: int | None = None
    started_at: datetime | None = None


class ContainerState(Wire):
    """At most one of them is set; none means waiting (core/v1 ContainerState)."""

    waiting: StateDetails | None = None
    running: StateDetails | None = None
    terminated: StateDetails | None = None


class ContainerStatus(Wire):
    name: str = ""
    state: ContainerState | None = None
    restart_count: int = 0
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class PodStatus(Wire):
    phase: str = "Pending"
    reason: str = ""
    conditions: list[Condition] | None = None
    start_time: datetime | None = None
    nominated_node_name: str = ""
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Quantities | None = None


class Pod(Object):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTemplate(Wire):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class RollingUpdate(Wire):
    partition: int | None = None
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class UpdateStrategy(Wire):
    type: str = ""
    rolling_update: RollingUpdate | None = None


class ExitPolicyPattern(Wire):
    type: str = ""
    status: str = "True"


class PodFailureRule(Wire):
    action: str = ""
    on_pod_conditions: list[ExitPolicyPattern] | None = None


class PodFailurePolicy(Wire):
    rules: list[PodFailureRule] | None = None


class WorkloadSpec(Wire):
    """The specs of all controllers that own pods; each kind sets its own part of it."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    min_ready_seconds: int = 0
    paused: bool = False
    strategy: UpdateStrategy | None = None
    update_strategy: UpdateStrategy | None = None
    pod_management_policy: str = ""
    parallelism: int | None = None
    suspend: bool | None = None
    pod_failure_policy: PodFailurePolicy | None = None


class WorkloadCondition(Condition):
    last_update_time: datetime | None = None


class WorkloadStatus(Wire):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    active: int = 0
    ready: int | None = None
    completed_indexes: str | None = None
    completion_time: datetime | None = None
    desired_number_scheduled: int = 0
    number_available: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    conditions: list[WorkloadCondition] | None = None


class Workload(Object):
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class GangPolicy(Wire):
    min_count: int = 0


class PodGroupPolicy(Wire):
    """How a group is scheduled: one of these; `basic` has no fields."""

    gang: GangPolicy | None = None


class TopologyConstraint(Wire):
    key: str = ""


class PodGroupConstraints(Wire):
    topology: list[TopologyConstraint] = msgspec.field(default_factory=list)


class PodGroupSpec(Wire):
    scheduling_policy: PodGroupPolicy = msgspec.field(default_factory=PodGroupPolicy)
    scheduling_constraints: PodGroupConstraints | None = None
    disruption_mode: str | None = None


class PodGroup(Object):
    """A group of pods that are scheduled together (scheduling.k8s.io/v1alpha2)."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)


class ScaleTarget(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(Wire):
    scale_target_ref: ScaleTarget = msgspec.field(default_factory=ScaleTarget)


class HorizontalPodAutoscaler(Object):
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)


class Deployment(Workload):
    pass


class ReplicaSet(Workload):
    pass


class StatefulSet(Workload):
    pass


class DaemonSet(Workload):
    pass


class Job(Workload):
    pass


class ReplicationControllerSpec(Wire):
    """The one controller whose selector is a plain map."""

    replicas: int | None = None
    selector: dict[str, str] | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    min_ready_seconds: int = 0


class ReplicationController(Object):
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)


class PodDisruptionBudgetSpec(Wire):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire):
    observed_generation: int = 0
    disrupted_pods: dict[str, datetime] | None = None
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class ResourceQuotaSpec(Wire):
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class ResourceQuotaStatus(Wire):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class ResourceQuota(Object):
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


class PriorityClass(Object):
    value: int = 0
    global_default: bool = False


class Namespace(Object):
    pass


class ConfigMap(Object):
    data: dict[str, str] | None = None


class LeaseSpec(Wire):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class Lease(Object):
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


WireObject = TypeVar("WireObject", bound=Object)
