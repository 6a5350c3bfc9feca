# SPDX-License-Identifier: Apache-2.0
"""The shapes of built-in kinds: which fields are numbers, strings and lists.

Go cannot decode a string where a number is expected, and rejects such an object before any
validation. These structs do the same here for every field that a rule uses; all others are
passed through. Quantities may be numbers.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Amounts = dict[str, str | int | float]
Texts = dict[str, str]
Free = dict[str, Any]  # Any: the value is not used


class Shape(msgspec.Struct, rename="camel", gc=False):
    """Base of all shapes."""


class Expression(Shape):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class Selector(Shape):
    match_labels: Texts = {}
    match_expressions: list[Expression] = []


class Requirements(Shape):
    requests: Amounts = {}
    limits: Amounts = {}


class Port(Shape):
    container_port: Int32 = 0
    host_port: Int32 = 0
    protocol: str = ""


class Container(Shape):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    restart_policy: str = ""
    resources: Requirements | None = None
    ports: list[Port] = []


class Toleration(Shape):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class AffinityTerm(Shape):
    topology_key: str = ""
    label_selector: Selector | None = None
    namespace_selector: Selector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedTerm(Shape):
    weight: Int32 = 0
    pod_affinity_term: AffinityTerm | None = None


class PodAffinity(Shape):
    required: list[AffinityTerm] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )
    preferred: list[WeightedTerm] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Shape):
    node_affinity: Free | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Shape):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: Selector | None = None
    match_label_keys: list[str] = []


class Gate(Shape):
    name: str


class PodSpec(Shape):
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    service_account_name: str = ""
    dns_policy: str = ""
    host_network: bool = False
    enable_service_links: bool | None = None
    security_context: Free | None = None
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    containers: list[Container] = []
    init_containers: list[Container] = []
    resources: Requirements | None = None
    overhead: Amounts = {}
    node_selector: Texts = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[Spread] = []
    scheduling_gates: list[Gate] = []
    volumes: list[Free] = []


class Condition(Shape):
    type: str
    status: str = ""


class PodStatus(Shape):
    phase: str = ""
    qos_class: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    container_statuses: list[Free] = []


class Pod(Shape):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class TemplateMetadata(Shape):
    labels: Texts = {}
    annotations: Texts = {}


class Template(Shape):
    metadata: TemplateMetadata | None = None
    spec: PodSpec | None = None


class Rolling(Shape):
    max_unavailable: Int32 | str | None = None
    max_surge: Int32 | str | None = None
    partition: Int32 | None = None


class Update(Shape):
    type: str = ""
    rolling_update: Rolling | None = None


class Retention(Shape):
    when_deleted: str = ""
    when_scaled: str = ""


class WorkloadSpec(Shape):
    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None
    progress_deadline_seconds: Int32 | None = None
    selector: Selector | None = None
    template: Template | None = None
    strategy: Update | None = None
    update_strategy: Update | None = None
    pod_management_policy: str = ""
    service_name: str = ""
    persistent_volume_claim_retention_policy: Retention | None = None
    paused: bool = False
    suspend: bool | None = None
    manual_selector: bool | None = None
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    backoff_limit: Int32 | None = None
    completion_mode: str = ""


class WorkloadStatus(Shape):
    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    updated_replicas: Int32 = 0
    observed_generation: Int64 = 0
    conditions: list[Condition] = []


class Workload(Shape):
    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class ReplicationControllerSpec(Shape):
    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: Texts = {}
    template: Template | None = None


class ReplicationController(Shape):
    spec: ReplicationControllerSpec | None = None
    status: WorkloadStatus | None = None


class Taint(Shape):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Shape):
    taints: list[Taint] = []
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeStatus(Shape):
    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: list[Condition] = []


class Node(Shape):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class NamespaceSpec(Shape):
    finalizers: list[str] = []


class Namespace(Shape):
    spec: NamespaceSpec | None = None
    status: Free | None = None


class LeaseSpec(Shape):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    lease_transitions: Int32 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(Shape):
    spec: LeaseSpec | None = None


class PriorityClass(Shape):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""
    description: str = ""


class BudgetSpec(Shape):
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None
    selector: Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Shape):
    observed_generation: Int64 = 0
    disrupted_pods: Texts = {}
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    conditions: list[Condition] = []


class Budget(Shape):
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class VolumeSpec(Shape):
    access_modes: list[str] = []
    capacity: Amounts = {}
    volume_mode: str = ""
    persistent_volume_reclaim_policy: str = ""


class Volume(Shape):
    spec: VolumeSpec | None = None
    status: Free | None = None


class ClaimSpec(Shape):
    access_modes: list[str] = []
    resources: Requirements | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = ""


class Claim(Shape):
    spec: ClaimSpec | None = None
    status: Free | None = None


class StorageClass(Shape):
    provisioner: str = ""
    reclaim_policy: str = ""
    volume_binding_mode: str = ""
    parameters: Texts = {}


class ServicePort(Shape):
    port: Int32 = 0
    protocol: str = ""
    target_port: Int32 | str | None = None


class ServiceSpec(Shape):
    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    session_affinity: str = ""
    ports: list[ServicePort] = []


class Service(Shape):
    spec: ServiceSpec | None = None
    status: Free | None = None
