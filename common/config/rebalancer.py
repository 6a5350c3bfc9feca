# SPDX-License-Identifier: Apache-2.0
"""The configuration of the rebalancer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from common.api.contract import GROUP
from common.config.choices import (
    BarePods,
    FillLowNodes,
    Groups,
    Guide,
    Jobs,
    LocalStorage,
    Mode,
    PodsWithoutPdb,
    PriorityPolicy,
    SingleReplica,
    Strategy,
    Surge,
)
from common.config.durations import Duration
from common.config.hygiene import Hygiene
from common.config.leader_election import LeaderElection
from common.config.pools import Strategies
from common.config.schedules import Schedule
from common.config.shared import Configuration
from common.config.values import (
    AnyAmount,
    Count,
    Flag,
    LabelKey,
    Namespace,
    ObjectName,
    OwnerKind,
    Percent,
    Pods,
    Points,
    Port,
    Priority,
    Says,
    Selector,
    Settings,
    Share,
    SomeText,
    Span,
    StorageClassName,
    Wait,
    broken_rule,
)


class TemporaryPdb(Settings):
    """The temporary PDB of a workload that has none while its pods move."""

    min_available: Pods | None = Field(
        default=None, description="Pods that must stay available; 1 unless `maxUnavailable` is set."
    )
    max_unavailable: Pods | None = Field(default=None, description="Pods that may be unavailable.")
    expiry: Wait = Field(
        default=Duration("5m"),
        description="It is removed at the latest this long after it was created or renewed.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_stays(cls, block: Any) -> Any:
        limits = {"minAvailable", "maxUnavailable", "min_available", "max_unavailable"}
        if isinstance(block, dict) and all(block.get(key) is None for key in limits):
            return {**block, "minAvailable": 1}
        return block

    @model_validator(mode="after")
    def _only_one_limit(self) -> Self:
        if self.min_available is not None and self.max_unavailable is not None:
            raise broken_rule(
                "minAvailable is set too: a PodDisruptionBudget takes only one of them",
                "maxUnavailable",
            )
        return self


class PriorityThreshold(Settings):
    """The priority from which pods are not moved."""

    name: ObjectName | None = Field(
        default=None, description="The name of a PriorityClass, whose value is used."
    )
    value: Priority | None = Field(default=None, description="The priority itself.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.name is None) == (self.value is None):
            raise broken_rule("set either name or value", "name", "value")
        return self


class Breaker(Settings):
    """When moves are stopped because moves go wrong."""

    window: Count = Field(
        default=20, description="Number of votes that are counted; each moved workload has one."
    )
    minimum: Count = Field(default=5, description="With fewer votes the breaker stays closed.")
    bad_share: Share = Field(
        default=0.2, description="The breaker opens above this share of bad votes."
    )
    half_open_after: Wait = Field(
        default=Duration("10m"),
        description="One trial move is allowed after this time; doubles up to 1h.",
    )

    @model_validator(mode="after")
    def _can_ever_open(self) -> Self:
        if self.minimum > self.window:
            raise broken_rule(
                f"{self.minimum} is more than window ({self.window}): it would never open",
                "minimum",
                "window",
            )
        return self


class Console(Settings):
    """The web page of the rebalancer."""

    enabled: Flag = Field(
        default=True,
        description="Serve the console on a loopback port, which `kubectl port-forward` reaches.",
    )
    port: Port = Field(
        default=8891, description="Its port; 0 is a free one, `--console-port` overrides it."
    )


class Maintenance(Settings):
    """How a node under maintenance is treated."""

    cordon: Flag = Field(
        default=True,
        description="Cordon the node first; a node that Evenkeel cordoned is uncordoned when the "
        "label is removed.",
    )
    deadline: Wait | None = Field(
        default=None,
        description="How long after the label appeared opt-outs, single replicas and `emptyDir` "
        "volumes no longer keep pods on the node. PodDisruptionBudgets always hold. None means "
        "that they hold forever.",
    )
    schedule: Schedule = Field(
        default=(),
        description="When moves that drain a node may begin; empty means always. The cordon does "
        "not wait.",
    )


def _own_annotation(key: str) -> str:
    """Other annotations of nodes are not kept: some are very long, and there are many."""
    if key and not key.startswith(f"{GROUP}/"):
        raise ValueError(f"must begin with {GROUP}/: other annotations of nodes are not read")
    return key


class NodeCost(Settings):
    """What a node costs; without any key every node costs 1."""

    label: LabelKey = Field(
        default="", description="The label of nodes that holds their cost, as a number."
    )
    annotation: Annotated[LabelKey, AfterValidator(_own_annotation)] = Field(
        default="",
        description="The annotation of nodes that holds their cost, as a number; it begins with "
        "`evenkeel.io/`.",
    )
    instance_types: Annotated[
        Mapping[SomeText, AnyAmount], Says("block of instance type: number")
    ] = Field(
        default={},
        description="Cost by the label `node.kubernetes.io/instance-type`, for example "
        "`{m5.large: 0.096}`.",
    )

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        found = (("label", self.label), ("annotation", self.annotation))
        named = [key for key, value in (*found, ("instanceTypes", self.instance_types)) if value]
        if len(named) > 1:
            raise broken_rule("set only one of label, annotation and instanceTypes", *named)
        return self


class Consolidation(Settings):
    """How `Consolidation` empties nodes."""

    target: Percent = Field(
        default=65.0,
        description="Pods of emptied nodes go only to nodes that stay below this, in percent of "
        "allocatable CPU and memory, and below their ceiling.",
    )
    min_node_age: Span = Field(
        default=Duration("10m"),
        description="Younger nodes are not emptied: an autoscaler has just added them.",
    )
    cost: NodeCost = Field(
        default=NodeCost(),
        description="What nodes cost: the set of nodes that saves the most is emptied.",
    )


def _off_is_none(value: Any) -> Any:
    if value is None:
        raise ValueError("is empty: write off, or a block with minAvailable or maxUnavailable")
    if value in ("off", False):
        return None
    if value is True or isinstance(value, str):
        said = "true" if value is True else value
        raise ValueError(f"must be a block of keys or off, not {said}")
    return value


def _for_load_only(schedules: Mapping[Strategy, Schedule]) -> Mapping[Strategy, Schedule]:
    if Strategy.NODE_MAINTENANCE in schedules:
        raise ValueError("NodeMaintenance has its own schedule: maintenance.schedule")
    return schedules


def _at_least_one(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise ValueError("must not be empty")
    return values


OptionalPdb = Annotated[
    TemporaryPdb | None,
    BeforeValidator(_off_is_none, json_schema_input_type=TemporaryPdb | Literal["off", False]),
    PlainSerializer(lambda pdb: pdb or "off", when_used="json"),
    Says("block, or `off`"),
]
SchedulerNames = Annotated[tuple[SomeText, ...], AfterValidator(_at_least_one)]


class RebalancerConfiguration(Configuration):
    """The configuration of the rebalancer."""

    kind: Literal["RebalancerConfiguration"] = Field(
        default="RebalancerConfiguration", description="Required in a file."
    )
    rescheduling_interval: Wait = Field(
        default=Duration("30s"),
        description="How often a plan is made.",
    )
    enabled_strategies: Strategies = Field(
        default=(Strategy.LOAD_BALANCING, Strategy.RESOURCE_OPTIMIZATION),
        description="The strategies to use; others are off.",
    )
    imbalance_threshold: Percent = Field(
        default=20.0,
        description="`LoadBalancing` acts when the highest and the lowest node of a pool differ "
        "by more percentage points.",
    )
    max_reschedule_pods: Count = Field(
        default=10, description="Most pods moved per cycle; does not limit emptying a node."
    )
    max_per_namespace: Count | None = Field(
        default=None,
        description="Most pods of one namespace moved per cycle, including those still in "
        "progress; does not limit emptying a node. None means no limit.",
    )
    excluded_namespaces: tuple[Namespace, ...] = Field(
        default=("kube-system", "kube-public"),
        description="Pods in these namespaces are never moved.",
    )
    excluded_pod_selector: Selector = Field(
        default="", description="Pods that match are never moved; empty excludes none."
    )
    pod_selector: Selector = Field(
        default="", description="Only pods that match are moved; empty means all."
    )
    namespace_selector: Selector = Field(
        default="",
        description="Only pods in namespaces whose labels match are moved; empty means all.",
    )
    priority_threshold: PriorityThreshold | None = Field(
        default=None, description="Pods of this priority or a higher one are never moved."
    )
    priority_policy: PriorityPolicy = Field(
        default=PriorityPolicy.LOW_FIRST,
        description="`LowFirst` moves no pod while pods of lower priority on its node can meet the "
        "goal; `FewestEvictions` prefers fewer evictions.",
    )

    mode: Mode = Field(
        default=Mode.OBSERVE,
        description="`observe` makes plans and shows them; `act` carries them out. The flag "
        "`--mode` overrides it.",
    )
    modes: Mapping[Strategy, Mode] = Field(
        default={},
        description="Mode per strategy where it differs, for example `{LoadBalancing: observe}`.",
    )
    schedule: Schedule = Field(
        default=(),
        description="When load moves may begin ([rules](rules.md#schedules)); empty means always.",
    )
    schedules: Annotated[Mapping[Strategy, Schedule], AfterValidator(_for_load_only)] = Field(
        default={},
        description="Schedule per strategy, instead of `schedule`; that of `NodeMaintenance` is "
        "`maintenance.schedule`.",
    )
    paused: Flag = Field(
        default=False, description="Stops all moves at once; checked before each one."
    )

    revalidate_after: Span = Field(
        default=Duration("15s"),
        description="A plan waits at least this long for newer samples before it is acted on.",
    )
    revalidate_within: Wait = Field(
        default=Duration("90s"),
        description="Moves whose nodes have no newer sample by then are canceled.",
    )
    min_gain: Points = Field(
        default=1.0,
        description="Points that moves must gain per eviction, unless they meet a ceiling; "
        "a tenth where they level a clearly uneven pool.",
    )

    scheduler_names: SchedulerNames = Field(
        default=("default-scheduler",),
        description="Schedulers that call the extender; pods of others are not moved for load.",
    )
    guide: Guide = Field(
        default=Guide.EXTENDER,
        description="What sends replacements to their targets: the `extender`, or a policy of the "
        "API server (`admission`), which needs Kubernetes 1.36 and no extender.",
    )
    require_extender: Flag = Field(
        default=True,
        description="Move for load only with a live extender that the scheduler calls; without "
        "effect with `guide: admission`.",
    )
    allow_sampling: Flag = Field(
        default=False,
        description="Move for load even if the scheduler sends only some nodes to the extender.",
    )

    pool_label: LabelKey = Field(
        default="", description="Nodes with the same value form a pool; empty means one pool."
    )
    min_node_age: Span = Field(
        default=Duration("5m"), description="Younger nodes are not compared with others."
    )
    fill_low_nodes: FillLowNodes = Field(
        default=FillLowNodes.AUTO,
        description="Whether to fill nodes that are far below the others; `auto` does not if an "
        "autoscaler manages nodes, because it would remove them.",
    )

    min_pod_age: Span = Field(
        default=Duration("2m"), description="Younger pods are not moved for load."
    )
    min_replicas: Count = Field(
        default=1, description="Pods of workloads with fewer replicas are not moved."
    )
    single_replica: SingleReplica = Field(
        default=SingleReplica.REFUSE,
        description="Whether the only replica of a workload may move where surge is not possible.",
    )
    surge: Surge = Field(
        default=Surge.SINGLE_REPLICA,
        description="Which Deployments get one more replica on the target before the pod goes: "
        "those with one replica, all, or none. The annotation `evenkeel.io/surge` overrides it.",
    )
    pods_without_pdb: PodsWithoutPdb = Field(
        default=PodsWithoutPdb.ALLOW,
        description="Whether pods that no PodDisruptionBudget covers may move.",
    )
    local_storage: LocalStorage = Field(
        default=LocalStorage.REFUSE,
        description="Whether pods with `hostPath` or `emptyDir` on disk may move and lose it.",
    )
    protected_storage_classes: tuple[StorageClassName, ...] = Field(
        default=(), description="Pods with a claim of one of these classes are never moved."
    )
    bare_pods: BarePods = Field(
        default=BarePods.SKIP,
        description="Pods without a controller are skipped, or replaced by a copy.",
    )
    jobs: Jobs = Field(
        default=Jobs.SKIP,
        description="Pods of Jobs are skipped, or moved if their podFailurePolicy ignores "
        "disruptions.",
    )
    groups: Groups = Field(
        default=Groups.REFUSE,
        description="PodGroups that cannot be moved pod by pod stay on nodes under maintenance, "
        "or are restarted: all of their pods are evicted together if they fit elsewhere at once.",
    )
    replacing_owners: tuple[OwnerKind, ...] = Field(
        default=(),
        description="Other kinds whose controllers replace pods, for example "
        "`Rollout.argoproj.io`.",
    )

    eviction_grace_period: Wait | None = Field(
        default=None, description="Lengthens the grace period of evicted pods; never shortens it."
    )
    temporary_pdb: OptionalPdb = Field(
        default=TemporaryPdb(),
        description="Protects a workload that has no PDB while its pods move.",
    )
    max_in_flight_per_node: Count = Field(
        default=2, description="Most moves at once away from one node."
    )
    max_inbound_per_node: Count = Field(
        default=5, description="Most moves at once towards one node."
    )
    maintenance_parallelism: Count = Field(
        default=5, description="Most moves at once away from a node under maintenance."
    )
    workload_cooldown: Span = Field(
        default=Duration("5m"), description="A workload is not moved for load again for this long."
    )
    node_cooldown: Span = Field(
        default=Duration("30m"),
        description="A node on which the replacements of moves did not start accepts no load "
        "moves for this long after the last of them, unless a pod starts there meanwhile.",
    )
    lineage_cooldown: Span = Field(
        default=Duration("1h"),
        description="A pod and its replacements are moved for load once in this time.",
    )
    migration_deadline: Wait = Field(
        default=Duration("5m"),
        description="A move that takes longer, plus the pod's grace period, fails.",
    )
    max_attempts: Count = Field(default=3, description="How often a step is attempted.")
    keep_finished: Span = Field(
        default=Duration("1h"),
        description="How long finished Migrations are kept; cool-downs and the breaker use them.",
    )
    breaker: Breaker = Field(
        default=Breaker(), description="When moves are stopped because moves go wrong."
    )
    maintenance: Maintenance = Field(
        default=Maintenance(), description="How a node under maintenance is treated."
    )
    consolidation: Consolidation = Field(
        default=Consolidation(), description="How `Consolidation` empties nodes."
    )
    hygiene: Hygiene = Field(
        default=Hygiene(), description="Which pods `Hygiene` replaces or removes."
    )
    console: Console = Field(default=Console(), description="The web page of the rebalancer.")
    leader_election: LeaderElection = Field(
        default=LeaderElection(), description="Which of several replicas acts."
    )

    @property
    def needs_extender(self) -> bool:
        """Whether moves for load need a live extender."""
        return self.require_extender and self.guide is Guide.EXTENDER

    @property
    def guides_all_new_pods(self) -> bool:
        """Whether every new pod of a workload is guided while one of its pods moves.

        A policy cannot count, so two moves of one workload must not be open at a time.
        """
        return self.guide is Guide.ADMISSION

    @property
    def needs_guidance(self) -> bool:
        """Whether moves for load need something that sends replacements to their targets."""
        return self.require_extender or self.guide is Guide.ADMISSION

    def mode_of(self, strategy: Strategy) -> Mode:
        """Return whether this strategy's plans are carried out."""
        return self.modes.get(strategy, self.mode)

    @model_validator(mode="after")
    def _waits_agree(self) -> Self:
        if self.revalidate_after > self.revalidate_within:
            raise broken_rule(
                f"{self.revalidate_after} is longer than revalidateWithin "
                f"({self.revalidate_within})",
                "revalidateAfter",
                "revalidateWithin",
            )
        if self.keep_finished < self.lineage_cooldown:
            raise broken_rule(
                f"{self.keep_finished} is shorter than lineageCooldown ({self.lineage_cooldown}), "
                "which is remembered in finished Migrations",
                "keepFinished",
                "lineageCooldown",
            )
        return self
