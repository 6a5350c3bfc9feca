# SPDX-License-Identifier: Apache-2.0
"""How many moves may run at once: the one table of limits.

A limit counts moves that have something in common: a node, a namespace, a workload. The planner
uses the table to cut a plan into what starts in this cycle and what waits; pacing uses it again
right before a Migration begins. Each of them supplies what runs: the planner the chains of a
plan and the open Migrations, pacing the Migrations that a Migration has to leave room for.
`docs/limits.md` lists the limits. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from enum import Flag, auto
from typing import Final, NamedTuple

import msgspec

from common.api.migrations import Purpose
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, NodeName, PodRecord
from rebalancer.pod_groups import GroupKey
from rebalancer.refusals import Reason, Refusal
from rebalancer.rules import ClusterRules

FEW_REPLICAS: Final = 4
"""With fewer replicas, one of them moves at a time."""
MOST_GUIDES: Final = 10
"""With `guide: admission`, this many moves run at once."""
_STATEFUL_SET: Final = "StatefulSet"


class LimitedMove(NamedTuple):
    """A move as limits count it."""

    purpose: Purpose
    namespace: str
    source: NodeName
    target: NodeName
    workload: ControllerId | None
    stateful_set: ControllerId | None
    surging: ControllerId | None = None
    """The workload whose count the move raises for a while."""
    pod_group: GroupKey | None = None
    """The gang in which the pod runs."""

    @classmethod
    def of(cls, migration: MigrationRecord, rules: ClusterRules) -> LimitedMove:
        """Return what counts of a Migration."""
        stateful = migration.controller_kind == _STATEFUL_SET
        return cls(
            migration.purpose,
            migration.namespace,
            migration.source,
            migration.target,
            migration.workload_id,
            migration.controller_id if stateful else None,
            migration.workload_id if migration.surge else None,
            rules.pod_groups.key_of(migration.pod_uid),
        )


class Running(Flag):
    """In which sense a move runs."""

    THIS_CYCLE = auto()
    """It belongs to the same cycle; it may be finished already."""
    UNDER_WAY = auto()


Key = Callable[[LimitedMove, ClusterRules], Hashable | None]
"""Returns what moves are counted by; None for a move that the limit does not bind."""
Most = Callable[[LimitedMove, ClusterRules, int], int | None]
"""Returns the limit for a move, given the replicas of its workload; None for no limit."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How many moves with the same key may run at once."""

    name: str
    """What a plan names that puts a move off: a key of the configuration, where there is one."""
    reason: Reason
    """What a Migration that waits for it names."""
    key: Key
    most: Most
    running: Running = Running.UNDER_WAY
    """Which moves it counts: one that runs in any of these senses."""
    binds: Purpose | None = None
    """Which moves it binds; None binds all."""
    counts: Purpose | None = None
    """What those moves have to be for; None counts all."""

    def refusal(self, move: LimitedMove, rules: ClusterRules, count: int, most: int) -> Refusal:
        """Return that a move has to wait, with `count` others running."""
        node = move.target if self.key is _target else move.source
        pool = rules.of_node(node).words
        return self.reason.refusal(
            count=count, limit=most, node=node, namespace=move.namespace, pool=pool
        )


def _all(_: LimitedMove, __: ClusterRules) -> Hashable:
    return "all"


def _pool(move: LimitedMove, rules: ClusterRules) -> Hashable | None:
    return rules.of_node(move.source).name or None


def _namespace(move: LimitedMove, _: ClusterRules) -> Hashable:
    return move.namespace


def _source(move: LimitedMove, _: ClusterRules) -> Hashable:
    return move.source


def _target(move: LimitedMove, _: ClusterRules) -> Hashable:
    return move.target


def _stateful_set(move: LimitedMove, _: ClusterRules) -> Hashable | None:
    return move.stateful_set


def _workload(move: LimitedMove, _: ClusterRules) -> Hashable | None:
    return move.workload


def _surging(move: LimitedMove, _: ClusterRules) -> Hashable | None:
    return move.surging


def _pod_group(move: LimitedMove, _: ClusterRules) -> Hashable | None:
    return move.pod_group


def _spare(move: LimitedMove, rules: ClusterRules, _: int) -> int | None:
    return None if move.pod_group is None else rules.pod_groups.spare(move.pod_group)


def _guides_all(rules: ClusterRules) -> bool:
    return rules.rules.config.guides_all_new_pods


LIMITS: Final[tuple[Limit, ...]] = (
    Limit(
        name="maxReschedulePods",
        reason=Reason.MAX_RESCHEDULE_PODS,
        key=_all,
        most=lambda _move, rules, _: rules.rules.config.max_reschedule_pods,
        running=Running.THIS_CYCLE,
        binds=Purpose.LOAD,
        counts=Purpose.LOAD,
    ),
    Limit(
        name="pools[].limits.maxReschedulePods",
        reason=Reason.MAX_PER_POOL,
        key=_pool,
        most=lambda move, rules, _: rules.of_node(move.source).max_reschedule_pods,
        running=Running.THIS_CYCLE,
        binds=Purpose.LOAD,
        counts=Purpose.LOAD,
    ),
    Limit(
        name="maxPerNamespace",
        reason=Reason.MAX_PER_NAMESPACE,
        key=_namespace,
        most=lambda move, rules, _: rules.of_namespace(move.namespace).max_per_namespace,
        running=Running.THIS_CYCLE | Running.UNDER_WAY,
        binds=Purpose.LOAD,
        counts=Purpose.LOAD,
    ),
    # Counts all moves away from the node: one that drains it takes a place as well.
    Limit(
        name="maxInFlightPerNode",
        reason=Reason.MAX_IN_FLIGHT_PER_NODE,
        key=_source,
        most=lambda move, rules, _: rules.of_node(move.source).max_in_flight_per_node,
        binds=Purpose.LOAD,
    ),
    Limit(
        name="maintenanceParallelism",
        reason=Reason.MAINTENANCE_PARALLELISM,
        key=_source,
        most=lambda move, rules, _: rules.of_node(move.source).maintenance_parallelism,
        binds=Purpose.MAINTENANCE,
    ),
    # Also binds drains: pods that start at once compete for image pulls and CPU of the target.
    Limit(
        name="maxInboundPerNode",
        reason=Reason.MAX_INBOUND_PER_NODE,
        key=_target,
        most=lambda move, rules, _: rules.of_node(move.target).max_inbound_per_node,
    ),
    # By default the controller handles one pod after the other anyway, and waits for each to be
    # Ready (pkg/controller/statefulset/stateful_set_control.go, `monotonic`).
    Limit(
        name="StatefulSetOneAtATime",
        reason=Reason.STATEFUL_SET_ONE_AT_A_TIME,
        key=_stateful_set,
        most=lambda _move, _rules, _replicas: 1,
    ),
    # Two raises of one count could not be told apart.
    Limit(
        name="SurgeOneAtATime",
        reason=Reason.SURGE_ONE_AT_A_TIME,
        key=_surging,
        most=lambda _move, _rules, _replicas: 1,
    ),
    # The API server evaluates every Migration that guides for every pod that is created, at 0.2 ms
    # of CPU each (docs/decisions/0016-the-api-server-can-guide.md).
    Limit(
        name="guide",
        reason=Reason.GUIDES_AT_ONCE,
        key=_all,
        most=lambda _move, rules, _: MOST_GUIDES if _guides_all(rules) else None,
    ),
    # A pod that has left does not count any more, neither as running nor as moving.
    Limit(
        name="PodGroupMinimum",
        reason=Reason.POD_GROUP_AT_ONCE,
        key=_pod_group,
        most=_spare,
    ),
    Limit(
        name="workload",
        reason=Reason.WORKLOAD_AT_ONCE,
        key=_workload,
        most=lambda _, rules, replicas: 1 if _guides_all(rules) else at_once(replicas),
    ),
)


class Tally:
    """Counts the moves that run, by limit and by what they have in common."""

    def __init__(self, rules: ClusterRules) -> None:
        self._rules = rules
        self._counts: Counter[tuple[str, Hashable]] = Counter()
        self._counting: dict[Running, list[Limit]] = {}
        """The limits that count moves which run in some sense: most count only some."""

    def add(self, move: LimitedMove, running: Running, *, sign: int = +1) -> None:
        """Count a move that runs; with `sign` -1, take it back."""
        limits = self._counting.get(running)
        if limits is None:
            limits = self._counting[running] = [each for each in LIMITS if each.running & running]
        for limit in limits:
            counted = limit.counts in (None, move.purpose)
            key = limit.key(move, self._rules) if counted else None
            if key is not None:
                self._counts[limit.name, key] += sign

    def broken_by(self, move: LimitedMove, replicas: int) -> Iterator[tuple[Limit, Refusal]]:
        """Yield the limits that a move would break by running too, in their order.

        `replicas` is how many pods the workload of the moved pod should have.
        """
        for limit in LIMITS:
            key, most = limit.key(move, self._rules), limit.most(move, self._rules, replicas)
            if key is None or most is None or limit.binds not in (None, move.purpose):
                continue
            count = self._counts[limit.name, key]
            if count >= most:
                yield limit, limit.refusal(move, self._rules, count, most)


def at_once(replicas: int) -> int:
    """Return how many pods of a workload may be moving at the same time."""
    return 1 if replicas < FEW_REPLICAS else max(2, replicas // 10)


def replicas_of(pod: PodRecord, snapshot: Snapshot) -> int:
    """Return how many pods the workload of a pod should have."""
    found = snapshot.top_workload(pod)
    return found.desired if found is not None else len(snapshot.siblings(pod))
