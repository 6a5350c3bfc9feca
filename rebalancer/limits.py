"""May this move begin, or go on, now? The registry of limits.

A limit looks at one Migration among the others that are under way and answers with a named
reason or nothing. Whoever made the Migration, all of them are asked; so what it says of its
pod is checked against the cluster first, for limits count by what Migrations say.

Under way is what has been allowed to begin and is not finished. A Migration that is under
way itself is measured only against its elders: when a limit is lowered, the eldest go on
and the younger wait, instead of all waiting for each other. `docs/limits.md` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord, Phase, Step
from common.cluster.records import PodRecord
from common.cluster.snapshot import Snapshot
from common.config import Mode, RebalancerConfiguration, Strategy
from common.contract import under_maintenance
from common.load import NodeLoad
from rebalancer.draining import lingers
from rebalancer.evictability import Purpose, took_place
from rebalancer.goals import MARGIN, Ceiling, Dimension
from rebalancer.pod_starts import starts_no_pods
from rebalancer.reasons import Refusal
from rebalancer.strategies.participation import CONTROL_PLANE_LABELS
from rebalancer.strategies.pools import percent_now
from rebalancer.strategies.resource_optimization import allowed
from rebalancer.strategies.words import NAMES

FEW_REPLICAS: Final = 4
"""Below so many replicas, one of them moves at a time."""
MAKES_ROOM: Final = "MakesRoom"
"""The reason of moves from nodes that are not to be emptied themselves."""

_STATEFUL_SET: Final = "StatefulSet"
_STRATEGIES: Final = frozenset(Strategy)
_PAUSED: Final = Refusal("Paused", "paused is set", for_good=False)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The question: one Migration, and what it is measured against."""

    migration: MigrationRecord
    pod: PodRecord
    others: Sequence[MigrationRecord]
    """All other Migrations, finished ones too."""
    ahead: Sequence[MigrationRecord]
    """Those of them under way that this one has to leave room for."""
    snapshot: Snapshot
    config: RebalancerConfiguration
    now_s: float
    guided: bool
    """The pod's scheduler has asked an extender."""
    filled: NodeLoad | None = None
    """The target with this pod and those that are ahead; none where its load is not known."""

    @property
    def purpose(self) -> Purpose:
        return purpose_of(self.migration)

    def soon_over(self) -> list[MigrationRecord]:
        """Return those ahead whose outcome can be waited for: a pod may drain for hours."""
        return [m for m in self.ahead if not lingers(m, self.snapshot, self.now_s)]


def ahead_of(
    migration: MigrationRecord, others: Iterable[MigrationRecord], begun: Collection[str] = ()
) -> list[MigrationRecord]:
    """Return which of the others a Migration has to leave room for.

    `begun` holds the uids of those that were allowed to begin and do not show it yet.
    """
    found = [m for m in others if m.open and _has_begun(m, begun)]
    mine = _age(migration)
    return [m for m in found if _age(m) < mine] if _has_begun(migration, begun) else found


def _has_begun(migration: MigrationRecord, begun: Collection[str]) -> bool:
    return migration.phase == Phase.IN_PROGRESS or migration.uid in begun


Rule = Callable[[Start], Refusal | None]


def not_paused(start: Start) -> Refusal | None:
    return _PAUSED if start.config.paused else None


def acting(start: Start) -> Refusal | None:
    """A strategy that is not ours, somebody else's, follows the general mode."""
    config, name = start.config, start.migration.strategy
    mode = config.mode_of(Strategy(name)) if name in _STRATEGIES else config.mode
    if mode is Mode.ACT:
        return None
    return Refusal("Observing", f"{name} only observes", for_good=False)


def strategy_is_on(start: Start) -> Refusal | None:
    name = start.migration.strategy
    if name not in _STRATEGIES or name in start.config.enabled_strategies:
        return None
    return Refusal("StrategyOff", f"{name} is not among enabledStrategies")


def pod_is_on_its_source(start: Start) -> Refusal | None:
    source, node = start.migration.source, start.pod.node
    if node == source:
        return None
    return Refusal(
        "NotOnSource", f"the Migration says {source}, and the pod is on {node or 'none'}"
    )


def owner_is_as_said(start: Start) -> Refusal | None:
    """For now: the owner's own owner may be known a little later than the pod."""
    migration, owner = start.migration, start.pod.owner
    top = start.snapshot.top_workload(start.pod)
    controller = owner.uid if owner is not None else ""
    workload = top.uid if top is not None else controller
    if (migration.controller_uid, migration.workload_uid) == (controller, workload):
        return None
    words = "the pod's controller or workload is not the one that the Migration names"
    return Refusal("OtherOwner", words, for_good=False)


def node_is_still_to_be_emptied(start: Start) -> Refusal | None:
    return maintenance_ended(start.migration, start.snapshot)


def target_takes_pods(start: Start) -> Refusal | None:
    """A node that was cordoned, marked or lost meanwhile cannot get the replacement."""
    name = start.migration.target
    view = start.snapshot.nodes.get(name)
    if view is None:
        return Refusal("TargetGone", f"{name} is not there any more")
    if under_maintenance(view.node.labels):
        return Refusal("TargetUnderMaintenance", f"{name} is to be emptied itself")
    if any(label in view.node.labels for label in CONTROL_PLANE_LABELS):
        return Refusal("TargetControlPlane", f"{name} is a control-plane node")
    if view.node.unschedulable:
        return Refusal("TargetCordoned", f"{name} takes no pods")
    if not view.node.ready:
        return Refusal("TargetNotReady", f"{name} is not Ready", for_good=False)
    return None


def target_starts_pods(start: Start) -> Refusal | None:
    """Pods may fail there since it was chosen; what failed before that, plans have heeded.

    A drain uses such a node as the last resort.
    """
    if start.purpose is not Purpose.LOAD:
        return None
    name = start.migration.target
    found = starts_no_pods(name, start.snapshot, now_s=start.now_s)
    return None if found is None else Refusal("TargetStartsNoPods", f"{name}: {found.words}")


def target_stays_under_its_ceilings(start: Start) -> Refusal | None:
    """Others may have come meanwhile, or what is there may use more than when it was planned."""
    load = start.filled
    if load is None:
        return None
    ceiling = Ceiling(start.config.cpu_threshold, start.config.memory_threshold)
    over = [d for d in Dimension if percent_now(load, d) > allowed(ceiling, d) + MARGIN]
    if not over:
        return None
    use = " and ".join(
        f"{percent_now(load, d):.0f} % {NAMES[d]} (allowed {allowed(ceiling, d):g} %)" for d in over
    )
    return Refusal("TargetTooFull", f"{load.name} would use {use}", for_good=False)


def max_reschedule_pods(start: Start) -> Refusal | None:
    """Count a plan whole, and what others made within one interval as if it were one."""
    if start.purpose is not Purpose.LOAD:
        return None
    limit = start.config.max_reschedule_pods
    moved = [m for m in start.others if _same_cycle(m, start) and not m.open and took_place(m)]
    moving = [m for m in start.ahead if _same_cycle(m, start)]
    count = sum(purpose_of(m) is Purpose.LOAD for m in (*moved, *moving))
    return _full("MaxReschedulePods", count, limit, "pods of this cycle were or are being moved")


def max_per_namespace(start: Start) -> Refusal | None:
    """Count what a namespace has under way, and what it lost in this cycle already."""
    limit, namespace = start.config.max_per_namespace, start.pod.namespace
    if limit is None or start.purpose is not Purpose.LOAD:
        return None
    moved = [m for m in start.others if _same_cycle(m, start) and not m.open and took_place(m)]
    found = [m for m in (*moved, *start.ahead) if m.namespace == namespace]
    count = sum(purpose_of(m) is Purpose.LOAD for m in found)
    what = f"pods of namespace {namespace} were moved in this cycle or are being moved"
    return _full("MaxPerNamespace", count, limit, what)


def max_in_flight_per_node(start: Start) -> Refusal | None:
    if start.purpose is not Purpose.LOAD:
        return None
    source, limit = start.migration.source, start.config.max_in_flight_per_node
    count = _from(source, start.ahead)
    return _full("MaxInFlightPerNode", count, limit, f"moves away from {source} are under way")


def maintenance_parallelism(start: Start) -> Refusal | None:
    if start.purpose is not Purpose.MAINTENANCE:
        return None
    source, limit = start.migration.source, start.config.maintenance_parallelism
    count = _from(source, start.ahead)
    return _full("MaintenanceParallelism", count, limit, f"moves away from {source} are under way")


def max_inbound_per_node(start: Start) -> Refusal | None:
    target, limit = start.migration.target, start.config.max_inbound_per_node
    count = sum(m.target == target for m in start.ahead)
    return _full("MaxInboundPerNode", count, limit, f"moves towards {target} are under way")


def one_of_a_stateful_set(start: Start) -> Refusal | None:
    mine = start.migration
    if mine.controller_kind != _STATEFUL_SET:
        return None
    count = sum(m.controller_id == mine.controller_id for m in start.ahead)
    return _full("StatefulSetOneAtATime", count, 1, "pods of its StatefulSet are being moved")


def few_of_a_workload(start: Start) -> Refusal | None:
    workload = start.migration.workload_id
    if workload is None:
        return None
    count = sum(m.workload_id == workload for m in start.ahead)
    limit = at_once(replicas_of(start.pod, start.snapshot))
    return _full("WorkloadAtOnce", count, limit, "pods of its workload are being moved")


def canary(start: Start) -> Refusal | None:
    """Until the scheduler is known to ask an extender, one move at a time finds out."""
    if start.purpose is not Purpose.LOAD or start.guided or not start.config.require_extender:
        return None
    if not any(purpose_of(m) is Purpose.LOAD for m in start.soon_over()):
        return None
    name = start.pod.shape.scheduler_name
    words = f"{name} has not asked an extender yet, so one move at a time tries"
    return Refusal("Canary", words, for_good=False)


LIMITS: Final[tuple[Rule, ...]] = (
    not_paused,
    acting,
    strategy_is_on,
    pod_is_on_its_source,
    owner_is_as_said,
    node_is_still_to_be_emptied,
    target_takes_pods,
    target_starts_pods,
    target_stays_under_its_ceilings,
    max_reschedule_pods,
    max_per_namespace,
    max_in_flight_per_node,
    maintenance_parallelism,
    max_inbound_per_node,
    one_of_a_stateful_set,
    few_of_a_workload,
    canary,
)


SWITCHES: Final[tuple[Rule, ...]] = (
    not_paused,
    acting,
    strategy_is_on,
    node_is_still_to_be_emptied,
)
"""How people stop moves; asked once more right before an eviction is sent."""


def switched_off(start: Start) -> Refusal | None:
    """Return by which switch somebody has stopped a move."""
    return next((found for rule in SWITCHES if (found := rule(start)) is not None), None)


def against(start: Start) -> tuple[Refusal, ...]:
    """Return every limit that a Migration would break by beginning now, in their order."""
    return tuple([found for rule in LIMITS if (found := rule(start)) is not None])


def purpose_of(migration: MigrationRecord) -> Purpose:
    """Return what a Migration says it is for; that its node is to be emptied is checked."""
    empties = migration.strategy == Strategy.NODE_MAINTENANCE and migration.reason != MAKES_ROOM
    return Purpose.MAINTENANCE if empties else Purpose.LOAD


def maintenance_ended(migration: MigrationRecord, snapshot: Snapshot) -> Refusal | None:
    """Return that the maintenance is over which an open, unevicted move was made for."""
    if migration.strategy != Strategy.NODE_MAINTENANCE or not migration.open:
        return None
    pod = snapshot.pods.get(migration.pod_uid)
    # What has left already is steered to its end: its replacement will come anyway.
    if migration.evicted_s is not None or pod is None or pod.terminating:
        return None
    empties = purpose_of(migration) is Purpose.MAINTENANCE
    # What does not empty its own node makes room for pods of any that is being emptied.
    source = snapshot.nodes.get(migration.source)
    served = (source,) if empties else snapshot.nodes.values()
    if any(view is not None and under_maintenance(view.node.labels) for view in served):
        return None
    whose = migration.source if empties else "no node"
    what = "is not" if empties else "is"
    return Refusal("MaintenanceEnded", f"{whose} {what} under maintenance any more")


def called_off(migration: MigrationRecord) -> bool:
    """Tell whether a Migration was given up before the eviction: nothing went wrong."""
    reasons = {found.type: found.reason for found in migration.conditions}
    out_of_time = reasons.get(Step.EVICTED) == "DeadlineExceeded" and migration.evicted_s is None
    return out_of_time or "MaintenanceEnded" in reasons.values()


def at_once(replicas: int) -> int:
    """Return how many pods of a workload may be moving at the same time."""
    return 1 if replicas < FEW_REPLICAS else max(2, replicas // 10)


def replicas_of(pod: PodRecord, snapshot: Snapshot) -> int:
    """Return how many pods the pod's workload is meant to have."""
    found = snapshot.top_workload(pod)
    return found.desired if found is not None else len(snapshot.siblings(pod))


def _age(migration: MigrationRecord) -> tuple[float, str]:
    return migration.created_s, migration.name


def _same_cycle(other: MigrationRecord, start: Start) -> bool:
    mine = start.migration
    if mine.plan_id and other.plan_id == mine.plan_id:
        return True
    # Anybody can write any plan id; a new one for each Migration must not lift the limit.
    return start.now_s - other.created_s < start.config.rescheduling_interval.seconds


def _from(source: str, migrations: Iterable[MigrationRecord]) -> int:
    return sum(m.source == source for m in migrations)


def _full(name: str, count: int, limit: int, what: str) -> Refusal | None:
    if count < limit:
        return None
    return Refusal(name, f"{count} {what}, and {limit} is the limit", for_good=False)
