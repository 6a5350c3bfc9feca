# SPDX-License-Identifier: Apache-2.0
"""May this move begin, or go on, now? The checks of one Migration.

Every Migration is checked, whichever program created it. Limits count by what Migrations claim,
so what a Migration claims about its pod is compared with the cluster first.

A move is under way once it was allowed to begin, until it is finished. A Migration that is
under way itself is measured only against older ones: when a limit is lowered, the oldest go on
and the younger wait, instead of all waiting for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from common.api.contract import under_maintenance
from common.api.migrations import Phase, Purpose, Step
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.config import Guide, Mode, RebalancerConfiguration, Strategy
from common.load import NodeLoad
from rebalancer.evictability import MoveHistory, move_history, was_carried_out
from rebalancer.goals import MARGIN, Ceiling, dimensions_of
from rebalancer.limits import LimitedMove, Running, Tally, replicas_of
from rebalancer.pod_starts import starts_no_pods
from rebalancer.projection import lingers
from rebalancer.refusals import Reason, Refusal
from rebalancer.rules import ClusterRules
from rebalancer.strategies.participation import CONTROL_PLANE_LABELS
from rebalancer.strategies.pools import percent_now

_CALLED_OFF: Final = frozenset(
    {
        Reason.MAINTENANCE_ENDED.value,
        Reason.COUNT_CHANGED.value,
        Reason.RAISE_REVERTED.value,
        Reason.WORKLOAD_CHANGED.value,
        Reason.STRATEGY_OFF.value,
    }
)
"""Why a move that had begun may end before its pod left although nothing went wrong."""
_LETS_POD_GO: Final = (Step.EVICTED, Step.LOWERED)
"""A move may wait for one of these until its deadline, for example while its rule observes."""
_STRATEGIES: Final = frozenset(Strategy)


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """The cluster and the configuration at one moment."""

    snapshot: Snapshot
    config: RebalancerConfiguration
    now_s: float
    rules: ClusterRules = field(init=False)

    def __post_init__(self) -> None:
        rules = ClusterRules(self.config, self.snapshot, self.now_s)
        object.__setattr__(self, "rules", rules)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One Migration that is to begin or go on, and what it is measured against."""

    migration: MigrationRecord
    pod: PodRecord
    others: Sequence[MigrationRecord]
    """All other Migrations, finished ones too."""
    ahead: Sequence[MigrationRecord]
    """Those of them under way that this one has to leave room for."""
    moment: Moment
    begun: bool = False
    """It was allowed to begin already."""
    guided: bool
    """The scheduler of the pod has asked an extender."""
    filled: NodeLoad | None = None
    """The target with this pod and those that are ahead; None where its load is not known."""

    @property
    def purpose(self) -> Purpose:
        return self.migration.purpose

    @property
    def snapshot(self) -> Snapshot:
        return self.moment.snapshot

    @property
    def config(self) -> RebalancerConfiguration:
        return self.moment.config

    @property
    def now_s(self) -> float:
        return self.moment.now_s

    @property
    def rules(self) -> ClusterRules:
        """What holds for the nodes and pods of this moment."""
        return self.moment.rules

    def soon_over(self) -> list[MigrationRecord]:
        """Return those ahead whose outcome can be waited for: a pod may drain for hours."""
        return [m for m in self.ahead if not lingers(m, self.snapshot, self.now_s)]


def ahead_of(
    migration: MigrationRecord, others: Iterable[MigrationRecord], begun: Collection[str] = ()
) -> list[MigrationRecord]:
    """Return which of the others a Migration has to leave room for.

    `begun` holds the uids of those that were allowed to begin and do not show it yet.
    """
    found = [m for m in others if m.open and has_begun(m, begun)]
    # Age orders Migrations the same way for every leader, so two never wait for each other.
    mine = _age(migration)
    return [m for m in found if _age(m) < mine] if has_begun(migration, begun) else found


def has_begun(migration: MigrationRecord, begun: Collection[str]) -> bool:
    """Tell whether a Migration was allowed to begin; `begun` as for `ahead_of`."""
    return migration.phase == Phase.IN_PROGRESS or migration.uid in begun


Check = Callable[[Start], Refusal | None]


def not_paused(start: Start) -> Refusal | None:
    if start.config.paused:
        return Reason.PAUSED.refusal()
    return paused_by(start.snapshot, start.now_s)


def paused_by(snapshot: Snapshot, now_s: float) -> Refusal | None:
    """Return who stops all moves by the ConfigMap that is made for it."""
    found = snapshot.pause(now_s)
    return None if found is None else Reason.PAUSED.refusal("by", words=found.words)


def acting(start: Start) -> Refusal | None:
    """A strategy of another author follows the general mode."""
    name, source = start.migration.strategy, start.migration.source
    if name in _STRATEGIES:
        return start.rules.observed(Strategy(name), source, start.pod.namespace)
    if start.config.mode is Mode.ACT:
        return None
    return Reason.OBSERVING.refusal(strategy=name)


def strategy_is_on(start: Start) -> Refusal | None:
    name = start.migration.strategy
    if name not in _STRATEGIES:
        return None
    migration = start.migration
    return start.rules.strategy_off(Strategy(name), migration.source, migration.reason)


def in_its_window(start: Start) -> Refusal | None:
    """A window that closes stops what has not begun; a strategy of another author has none."""
    name = start.migration.strategy
    if start.begun or name not in _STRATEGIES:
        return None
    return start.rules.closed(Strategy(name), start.migration.source, start.pod.namespace)


def pod_is_on_its_source(start: Start) -> Refusal | None:
    source, node = start.migration.source, start.pod.node
    if node == source:
        return None
    return Reason.NOT_ON_SOURCE.refusal(source=source, node=node or "none")


def owner_matches(start: Start) -> Refusal | None:
    """The refusal is for now: the owner's own owner may be read a little later than the pod."""
    migration, owner = start.migration, start.pod.owner
    # Limits count by the owners that a Migration names; a wrong one would evade them.
    top = start.snapshot.top_workload(start.pod)
    controller = owner.uid if owner is not None else ""
    workload = top.uid if top is not None else controller
    if (migration.controller_uid, migration.workload_uid) == (controller, workload):
        return None
    return Reason.OTHER_OWNER.refusal()


def maintenance_goes_on(start: Start) -> Refusal | None:
    return maintenance_ended(start.migration, start.snapshot)


def target_takes_pods(start: Start) -> Refusal | None:
    """A node that was cordoned, marked or lost meanwhile cannot get the replacement."""
    name = start.migration.target
    view = start.snapshot.nodes.get(name)
    if view is None:
        return Reason.TARGET_GONE.refusal(node=name)
    if under_maintenance(view.node.labels):
        return Reason.TARGET_UNDER_MAINTENANCE.refusal(node=name)
    if any(label in view.node.labels for label in CONTROL_PLANE_LABELS):
        return Reason.TARGET_CONTROL_PLANE.refusal(node=name)
    # A cordoned node fails the NodeUnschedulable filter of kube-scheduler, and a node that is not
    # Ready has a NoSchedule taint (pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    if view.node.unschedulable:
        return Reason.TARGET_CORDONED.refusal(node=name)
    if not view.node.ready:
        return Reason.TARGET_NOT_READY.refusal(node=name)
    return None


def target_starts_pods(start: Start) -> Refusal | None:
    """Pods may fail there since the plan was made, which excluded nodes that failed before.

    A drain uses such a node as the last resort.
    """
    if start.purpose is not Purpose.LOAD:
        return None
    name = start.migration.target
    found = starts_no_pods(name, start.snapshot, now_s=start.now_s)
    if found is None:
        return None
    return Reason.TARGET_STARTS_NO_PODS.refusal(node=name, cause=found.message)


def target_stays_under_its_ceilings(start: Start) -> Refusal | None:
    """Other pods may have arrived since the plan was made, or use more than they did then."""
    load = start.filled
    if load is None:
        return None
    ceiling = Ceiling(*start.rules.of_node(load.name).thresholds)
    if _begins_an_exchange(start):
        ceiling = ceiling.transient()
    resources = dimensions_of(start.config)
    over = [d for d in resources if percent_now(load, d) > ceiling.of(d) + MARGIN]
    if not over:
        return None
    use = " and ".join(
        f"{percent_now(load, d):.0f} % {d.label} (allowed {ceiling.of(d):g} %)" for d in over
    )
    return Reason.TARGET_TOO_FULL.refusal(node=load.name, use=use)


def _begins_an_exchange(start: Start) -> bool:
    """Tell whether a pod of the target leaves once this one is gone, directly or in a cycle."""
    mine, waiting = start.migration, [m for m in start.others if m.open]
    gone = {mine.pod_uid}
    while after := [m for m in waiting if m.pod_uid not in gone and not gone.isdisjoint(m.needs)]:
        if any(m.source == mine.target for m in after):
            return True
        gone.update(m.pod_uid for m in after)
    return False


def group_keeps_its_minimum(start: Start) -> Refusal | None:
    """Other pods of the group may have failed since this move was allowed to begin.

    Older moves that have begun go first, so their pods count as gone.
    """
    leaving = [each.pod_uid for each in start.ahead]
    return start.rules.pod_groups.refusal(start.pod, leaving)


def canary(start: Start) -> Refusal | None:
    """Until replacements are known to be guided, one move at a time finds out."""
    if start.purpose is not Purpose.LOAD or start.guided or not start.config.needs_guidance:
        return None
    if not any(m.purpose is Purpose.LOAD for m in start.soon_over()):
        return None
    if start.config.guide is Guide.ADMISSION:
        return Reason.CANARY.refusal("admission")
    return Reason.CANARY.refusal(scheduler=start.pod.shape.scheduler_name)


CHECKS: Final[tuple[Check, ...]] = (
    not_paused,
    acting,
    strategy_is_on,
    in_its_window,
    pod_is_on_its_source,
    owner_matches,
    maintenance_goes_on,
    target_takes_pods,
    target_starts_pods,
    target_stays_under_its_ceilings,
)
LATE_CHECKS: Final[tuple[Check, ...]] = (canary,)
"""Made after the limits, because the first refusal is the one that people read."""


SWITCHES: Final[tuple[Check, ...]] = (
    not_paused,
    acting,
    strategy_is_on,
    maintenance_goes_on,
    group_keeps_its_minimum,
)
"""How people stop moves, and what no PDB guards; checked again right before an eviction is sent."""


def switched_off(start: Start) -> Refusal | None:
    """Return which switch stops a move."""
    return next(_refusals(SWITCHES, start), None)


def against(start: Start) -> tuple[Refusal, ...]:
    """Return all that keeps a Migration from beginning now, in the order of the checks."""
    return (*_refusals(CHECKS, start), *_broken_limits(start), *_refusals(LATE_CHECKS, start))


def _refusals(checks: Iterable[Check], start: Start) -> Iterator[Refusal]:
    return (found for check in checks if (found := check(start)) is not None)


def _broken_limits(start: Start) -> Iterator[Refusal]:
    """Yield the limits that a Migration would break, with what runs beside it."""
    tally = Tally(start.rules)
    for other in start.others:
        if not other.open and was_carried_out(other) and _same_cycle(other, start):
            tally.add(LimitedMove.of(other, start.rules), Running.THIS_CYCLE)
    for other in start.ahead:
        same = Running.THIS_CYCLE if _same_cycle(other, start) else Running(0)
        tally.add(LimitedMove.of(other, start.rules), Running.UNDER_WAY | same)
    mine = LimitedMove.of(start.migration, start.rules)
    replicas = replicas_of(start.pod, start.snapshot)
    # The pod is here, so its own namespace counts, whatever the Migration claims.
    mine = mine._replace(namespace=start.pod.namespace)
    return (refusal for _, refusal in tally.broken_by(mine, replicas))


def history_for(start: Start) -> MoveHistory:
    """Return the moves that cooldowns count from; moves of one plan do not delay each other."""
    mine = start.migration
    kin = [
        m
        for m in start.others
        if m.workload_id == mine.workload_id or m.replacement_uid == mine.pod_uid
    ]
    other_plans = (m for m in kin if not _of_one_plan(m, mine))
    return MoveHistory(
        move_history(other_plans).workload_moved_s, move_history(kin).lineage_moved_s
    )


def _of_one_plan(other: MigrationRecord, mine: MigrationRecord) -> bool:
    """Anyone can write any plan id; a Migration created after the other's end is another plan."""
    named = bool(mine.plan_id) and other.plan_id == mine.plan_id
    return named and (other.finished_s is None or mine.created_s <= other.finished_s)


def maintenance_ended(migration: MigrationRecord, snapshot: Snapshot) -> Refusal | None:
    """Return that the maintenance is over that an open move was made for, before its eviction."""
    if migration.strategy != Strategy.NODE_MAINTENANCE or not migration.open:
        return None
    pod = snapshot.pods.get(migration.pod_uid)
    # A move whose pod has left goes on to its end: the replacement is created anyway.
    over = migration.evicted_s is not None or migration.done(Step.LOWERED)
    if over or pod is None or pod.terminating:
        return None
    drains = migration.purpose is Purpose.MAINTENANCE
    # A move that does not drain its own node makes room for pods of any node that is drained.
    source = snapshot.nodes.get(migration.source)
    served = (source,) if drains else snapshot.nodes.values()
    if any(view is not None and under_maintenance(view.node.labels) for view in served):
        return None
    if drains:
        return Reason.MAINTENANCE_ENDED.refusal(node=migration.source)
    return Reason.MAINTENANCE_ENDED.refusal("none")


def called_off(migration: MigrationRecord) -> bool:
    """Tell whether a Migration was given up before the eviction, although nothing went wrong."""
    reasons = {found.type: found.reason for found in migration.conditions}
    out_of_time = any(reasons.get(step) == Reason.DEADLINE_EXCEEDED for step in _LETS_POD_GO)
    ended = out_of_time or not _CALLED_OFF.isdisjoint(reasons.values())
    return ended and migration.evicted_s is None


def _age(migration: MigrationRecord) -> tuple[float, str]:
    return migration.created_s, migration.name


def _same_cycle(other: MigrationRecord, start: Start) -> bool:
    mine = start.migration
    if mine.plan_id and other.plan_id == mine.plan_id:
        return True
    # Anyone can write any plan id; a new one for each Migration must not lift the limit.
    return start.now_s - other.created_s < start.config.rescheduling_interval.seconds
