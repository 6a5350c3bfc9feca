"""The configuration of the rebalancer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    model_validator,
)

from common.config.choices import (
    BarePods,
    FillLowNodes,
    Jobs,
    LocalStorage,
    Mode,
    PodsWithoutPdb,
    SingleReplica,
    Strategy,
)
from common.config.durations import Duration
from common.config.shared import Configuration
from common.config.values import (
    Count,
    Flag,
    LabelKey,
    Namespace,
    ObjectName,
    OwnerKind,
    OwnNamespace,
    Percent,
    Pods,
    Points,
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

# client-go spreads retries by this factor (tools/leaderelection/leaderelection.go).
_JITTER: Final = 1.2


class TemporaryPdb(Settings):
    """The guard of a workload that has none while its pods move."""

    min_available: Pods | None = Field(
        default=None, description="Pods that must stay; 1 unless `maxUnavailable` is set."
    )
    max_unavailable: Pods | None = Field(default=None, description="Pods that may be missing.")
    expiry: Wait = Field(
        default=Duration("5m"),
        description="Removed so long after it was made or last renewed, at the latest.",
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
            raise broken_rule("minAvailable is set too: a budget has only one", "maxUnavailable")
        return self


class PriorityThreshold(Settings):
    """From which priority on pods are left alone."""

    name: ObjectName | None = Field(default=None, description="A PriorityClass; its value counts.")
    value: Priority | None = Field(default=None, description="The priority itself.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.name is None) == (self.value is None):
            raise broken_rule("name or value is wanted, one of them", "name", "value")
        return self


class Breaker(Settings):
    """When moving stops because moves go wrong."""

    window: Count = Field(
        default=20, description="How many votes are looked at; each moved workload has one."
    )
    minimum: Count = Field(default=5, description="Fewer votes open nothing.")
    bad_share: Share = Field(default=0.2, description="Opens above this share of bad votes.")
    half_open_after: Wait = Field(
        default=Duration("10m"), description="One move may try after this; doubles up to 1h."
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


class Maintenance(Settings):
    """How a node under maintenance is treated."""

    cordon: Flag = Field(
        default=True, description="Cordon the node first; undone when the label goes, if we did it."
    )


class LeaderElection(Settings):
    """Which of several rebalancers acts."""

    enabled: Flag = Field(default=True, description="Off only where there is never a second one.")
    namespace: OwnNamespace = Field(
        default="",
        description="Where the Lease is, and where those of extenders are looked for; empty is "
        "the namespace the program runs in, outside a cluster `evenkeel`.",
    )
    name: ObjectName = Field(default="evenkeel-rebalancer", description="Name of the Lease.")
    lease_duration: Wait = Field(
        default=Duration("15s"),
        description="Others take over after so long without a renewal.",
    )
    renew_deadline: Wait = Field(
        default=Duration("10s"), description="A leader that cannot renew for so long stops."
    )
    retry_period: Wait = Field(default=Duration("2s"), description="Pause between attempts.")

    @model_validator(mode="after")
    def _never_two_leaders(self) -> Self:
        if self.lease_duration <= self.renew_deadline:
            raise broken_rule(
                f"{self.lease_duration} is not longer than renewDeadline ({self.renew_deadline})",
                "leaseDuration",
                "renewDeadline",
            )
        if self.renew_deadline <= _JITTER * self.retry_period:
            raise broken_rule(
                f"{self.renew_deadline} is not longer than {_JITTER} × retryPeriod "
                f"({self.retry_period})",
                "renewDeadline",
                "retryPeriod",
            )
        return self


def _off_is_none(value: Any) -> Any:
    if value is None:
        raise ValueError("is empty: write off, or a block with minAvailable or maxUnavailable")
    if value in ("off", False):
        return None
    if value is True or isinstance(value, str):
        said = "true" if value is True else value
        raise ValueError(f"must be a block of keys or off, not {said}")
    return value


def _no_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ValueError(f"{value} stands there twice")
    return values


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
Strategies = Annotated[tuple[Strategy, ...], AfterValidator(_no_repeats)]


class RebalancerConfiguration(Configuration):
    """Everything the rebalancer can be told."""

    kind: Literal["RebalancerConfiguration"] = Field(
        default="RebalancerConfiguration", description="Required in a file."
    )
    rescheduling_interval: Wait = Field(
        default=Duration("30s"),
        description="How often the cluster is looked at and a plan is made.",
    )
    enabled_strategies: Strategies = Field(
        default=(Strategy.LOAD_BALANCING, Strategy.RESOURCE_OPTIMIZATION),
        description="What to strive for; a strategy that is not named is off.",
    )
    imbalance_threshold: Percent = Field(
        default=20.0,
        description="`LoadBalancing` acts when the highest and the lowest node of a pool differ "
        "by more points of utilisation.",
    )
    max_reschedule_pods: Count = Field(
        default=10, description="Pods moved per cycle; emptying a node is not bound by it."
    )
    max_per_namespace: Count | None = Field(
        default=None,
        description="Pods of one namespace moved per cycle, those still under way included; "
        "emptying a node is not bound by it. None means no limit.",
    )
    excluded_namespaces: tuple[Namespace, ...] = Field(
        default=("kube-system", "kube-public"), description="Pods in these are never moved."
    )
    excluded_pod_selector: Selector = Field(
        default="", description="Pods that match are never moved; empty excludes nobody."
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

    mode: Mode = Field(
        default=Mode.OBSERVE,
        description="`observe` plans and shows, and moves nothing; `act` carries plans out. "
        "The flag `--mode` overrides it.",
    )
    modes: Mapping[Strategy, Mode] = Field(
        default={},
        description="Another mode for single strategies, for example `{LoadBalancing: observe}`.",
    )
    paused: Flag = Field(
        default=False, description="Stops all moves at once; looked at before each one."
    )

    revalidate_after: Span = Field(
        default=Duration("15s"),
        description="A plan waits at least this long for newer samples before it is acted on.",
    )
    revalidate_within: Wait = Field(
        default=Duration("90s"),
        description="Moves whose nodes have no newer sample by then are dropped.",
    )
    min_gain: Points = Field(
        default=1.0, description="A chain of moves must gain this much utilisation per eviction."
    )

    scheduler_names: SchedulerNames = Field(
        default=("default-scheduler",),
        description="Schedulers that ask our extender; pods of others are not moved for load.",
    )
    require_extender: Flag = Field(
        default=True, description="Without a live extender that the scheduler asks, no load moves."
    )
    allow_sampling: Flag = Field(
        default=False,
        description="Move for load also if the scheduler shows the extender only some nodes.",
    )

    pool_label: LabelKey = Field(
        default="", description="Nodes with the same value form a pool; empty makes all nodes one."
    )
    min_node_age: Span = Field(
        default=Duration("5m"), description="Younger nodes take no part in the spread."
    )
    fill_low_nodes: FillLowNodes = Field(
        default=FillLowNodes.AUTO,
        description="Whether to fill nodes that are far below the others; `auto` does not where "
        "an autoscaler manages nodes, for it would remove them.",
    )

    min_pod_age: Span = Field(default=Duration("2m"), description="Younger pods stay.")
    min_replicas: Count = Field(default=1, description="Workloads with fewer replicas stay.")
    single_replica: SingleReplica = Field(
        default=SingleReplica.REFUSE, description="Whether the only replica of a workload may move."
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
        description="Pods without a controller stay, or are replaced by a copy.",
    )
    jobs: Jobs = Field(
        default=Jobs.SKIP,
        description="Pods of Jobs stay, or move if their podFailurePolicy ignores disruptions.",
    )
    replacing_owners: tuple[OwnerKind, ...] = Field(
        default=(),
        description="Further kinds that replace their pods, for example `Rollout.argoproj.io`.",
    )

    eviction_grace_period: Wait | None = Field(
        default=None, description="Lengthens the grace of evicted pods; never shortens their own."
    )
    temporary_pdb: OptionalPdb = Field(
        default=TemporaryPdb(),
        description="Guards a workload that has no budget while its pods move.",
    )
    max_in_flight_per_node: Count = Field(
        default=2, description="Moves at once away from one node."
    )
    max_inbound_per_node: Count = Field(default=5, description="Moves at once towards one node.")
    maintenance_parallelism: Count = Field(
        default=5, description="Moves at once away from a node under maintenance."
    )
    workload_cooldown: Span = Field(
        default=Duration("5m"), description="A workload rests so long after a move."
    )
    node_cooldown: Span = Field(
        default=Duration("30m"),
        description="A node on which the replacements of moves did not start takes no load moves "
        "for so long after the last of them, unless a pod starts there meanwhile.",
    )
    lineage_cooldown: Span = Field(
        default=Duration("1h"), description="A pod and its replacements move once in this time."
    )
    migration_deadline: Wait = Field(
        default=Duration("5m"),
        description="A move that takes longer, plus the pod's grace, failed.",
    )
    max_attempts: Count = Field(default=3, description="How often a step is tried.")
    keep_finished: Span = Field(
        default=Duration("1h"),
        description="Finished Migrations stay so long; they are the memory.",
    )
    breaker: Breaker = Field(
        default=Breaker(), description="When moving stops because moves go wrong."
    )
    maintenance: Maintenance = Field(
        default=Maintenance(), description="How a node under maintenance is treated."
    )
    leader_election: LeaderElection = Field(
        default=LeaderElection(), description="Which of several rebalancers acts."
    )

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
