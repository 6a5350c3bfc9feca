# SPDX-License-Identifier: Apache-2.0
"""What is to be planned, in numbers: nodes as rows, pods on demand.

Rows follow the sorted names of the nodes, and the pods of a node are judged in the order of
their uids, so that nothing depends on the order of a map. A pod is judged once, when its node
first has to give; most pods of a large cluster are never judged.

Arrays of [node, resource] are laid out in memory resource by resource (Fortran order): nearly
every question to all nodes is about one resource after the other, and is answered several
times faster that way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from common.api.contract import Unknown
from common.api.migrations import Purpose
from common.cache.snapshot import NodeView
from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import PriorityPolicy, Strategy
from common.load import Load, NodeLoad, requested_load
from rebalancer.evictability import Budgets, lineage_of, move_history
from rebalancer.goals import (
    BALANCED,
    MARGIN,
    PRECISION,
    AtMost,
    Ceiling,
    Distribute,
    Empty,
    Goal,
    Relocate,
    Spread,
    dimensions_of,
)
from rebalancer.planner.fingerprint import Fingerprints
from rebalancer.planner.instance import Flags, Floats, Instance, Ints
from rebalancer.planner.movable import Movable, disruption, keeps_to_its_request
from rebalancer.planner.observed import observed
from rebalancer.planner.plan import Level
from rebalancer.planner.priorities import Priorities
from rebalancer.planner.program import Solve
from rebalancer.planner.resources import (
    amounts,
    further_columns,
    pod_amounts,
    rows_of_amounts,
)
from rebalancer.projection import on_their_way
from rebalancer.refusals import Refusal, unjudgeable

if TYPE_CHECKING:
    from rebalancer.strategies import Assessment, ClusterView

Judge = Callable[[PodRecord, Purpose], tuple[Refusal, ...]]
Surges = Callable[[PodRecord, Purpose], bool]
Reaches = Callable[[Sequence[Movable]], tuple[Flags, Ints]]
"""[K, N] where kinds of pods could ever run, the first anywhere, and [P] of which kind pods are."""


def _never(_: PodRecord, __: Purpose) -> bool:
    return False


_ALL_OF_IT: Final = Ceiling(100.0, 100.0)
TOLERANCE: Final = 1e-7
"""Points by which sums of loads may be off and still count as equal."""

LISTED: Final = 40_000
"""In larger clusters, only pods that were judged are listed in an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEffort:
    """How hard the planner tries; counted, not timed, so that equal demands give equal plans."""

    evaluations: int = 20_000
    """How many times a pod may be judged against all nodes.

    Calibrated to five seconds for 5,000 nodes and 150,000 pods on two cores.
    """
    alternatives: int = 5
    """Next best targets that a move names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Everything that a plan is made of."""

    cluster: ClusterView
    assessment: Assessment
    judge: Judge
    budgets: Budgets
    surges: Surges = _never
    """Tells whether a pod moves by surge."""
    effort: SearchEffort = SearchEffort()
    all_pods: bool = False
    """Explain the pods of nodes that need not give too, one by one."""
    solve: Solve | None = None
    """The exact solver, where there is one."""
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    """What remembers the pods of earlier demands."""


class _Pool(NamedTuple):
    """The nodes that a goal compares."""

    names: tuple[NodeName, ...]
    rows: Ints
    inside: Flags


class _Others(NamedTuple):
    """The pods of a node that were not judged."""

    uids: tuple[PodUid, ...]
    rows: Ints
    loads: Floats
    priorities: Ints

    def up_to(self, most: float) -> _Others:
        """Return those of this priority or a lower one."""
        low = self.priorities <= most
        if low.all():
            return self
        uids = tuple(uid for uid, fine in zip(self.uids, low.tolist(), strict=True) if fine)
        return _Others(uids, self.rows[low], self.loads[low], self.priorities[low])


class Problem:
    """The nodes by row, the goals, and the pods that may be moved."""

    def __init__(
        self,
        demand: Demand,
        policy: PriorityPolicy | None = None,
        kept: Mapping[NodeName, float] = MappingProxyType({}),
    ) -> None:
        cluster, parts = demand.cluster, demand.assessment.participation
        self.demand = demand
        self.snapshot = cluster.snapshot
        self._past = move_history(cluster.snapshot.migrations.values())
        self.goals = tuple(demand.assessment.goals)
        self.dimensions = dimensions_of(cluster.config)
        self.axes = tuple(dimension.axis for dimension in self.dimensions)
        """All resources; the last axis of arrays is the resource."""
        self._pools: dict[int, _Pool] = {}
        self.emptied = tuple(goal for goal in self.goals if isinstance(goal, Empty))
        self.spreads = tuple(goal for goal in self.goals if isinstance(goal, Spread))
        self.nodes: tuple[NodeName, ...] = tuple(sorted(cluster.snapshot.nodes))
        self.row_of = {name: row for row, name in enumerate(self.nodes)}
        self.all_rows: Flags = np.ones(len(self.nodes), dtype=np.bool_)
        """[N] to copy, which is cheaper than to make it."""
        offered = [cluster.snapshot.nodes[name].node.allocatable for name in self.nodes]
        self.capacity = _columns([[max(amount, 1) for amount in amounts(each)] for each in offered])
        inbound = _requests_on_their_way(cluster)
        believed = [_believed(cluster, name, inbound) for name in self.nodes]
        self.now = _columns([amounts(each.room) for each in believed])
        """[N, R] what room is judged by: terminating pods still use theirs."""
        settled = [b.settled for b in believed]
        self.load = _columns([amounts(each) for each in settled])
        """[N, R] what goals are judged by: terminating pods have left."""
        ceilings = [_ceiling_of(demand, name) for name in self.nodes]
        self.ceiling = _columns([(each.cpu_percent, each.mem_percent) for each in ceilings])
        if len(self.axes) > self.capacity.shape[1]:
            self._add_further(believed, ceilings)
        self.empty = self._flags(goal.node for goal in self.emptied)
        whole = [goal for goal in self.emptied if goal.ceiling is not None]
        self.drained = self.empty & ~self._flags(goal.node for goal in whole)
        """[N] is emptied as far as possible, as for maintenance."""
        above = (goal for goal in self.goals if isinstance(goal, AtMost))
        self.hot = tuple(goal for goal in above if not self.empty[self.row_of[goal.node]])
        """The goals of nodes that are not emptied anyway."""
        stated = (goal for goal in self.goals if isinstance(goal, Relocate))
        self.relocations = {g.pod: g for g in stated if not self.empty[self.row_of[g.node]]}
        """The goals of single pods, of nodes that are not emptied anyway."""
        self.per_host = {
            self.snapshot.pods[goal.pod].controller_id: goal.per_host
            for goal in self.relocations.values()
            if goal.per_host
        }
        """By workload, how many of its replicas a host may hold, where a goal says so."""
        self.distributions = tuple(goal for goal in self.goals if isinstance(goal, Distribute))
        self._distributed: dict[tuple[str, int], bool] = {}
        self.gives = ~self._flags(parts.sources_refused) | self.empty
        self.takes = ~self._flags(parts.targets_refused) & ~self.empty
        self.shelters = ~self._flags(parts.refuges_refused) & ~self.empty
        self.last_resorts = self._flags(parts.last_resorts)
        self.houses = self.takes | self.shelters
        """[N] takes pods for load or from nodes that are emptied."""
        self._own_goals: dict[NodeName, AtMost | Empty] = {g.node: g for g in self.hot}
        self._own_goals.update({goal.node: goal for goal in self.emptied})
        self.gives &= ~self._held()
        self._lower_ceilings()
        self.limit = self.ceiling * self.capacity / 100.0
        self.slack = TOLERANCE * self.capacity
        self.roof = self.limit + self.slack - (self.now - self.load)
        """What a node may use at most with a pod more; terminating pods still use theirs."""
        self.emptied_ceiling = self._emptied_ceiling(whole)
        """[N, R] the most that a node may be used with pods of nodes that are emptied for load."""
        self.emptied_roof = self.roof - (self.ceiling - self.emptied_ceiling) * self.capacity / 100
        self.transient_roof = self._transient_roof()
        """The same while pods are exchanged."""
        self.highest_ceiling = float(self.ceiling.max(initial=0.0))
        self.strictness = self._strictness()
        """[N, R] by how many points the ceiling of a node above it is below the highest one."""
        self.enough = self._enough()
        """What a node may use at most that had to come under its ceiling."""
        self.aim = self.limit - MARGIN / 100.0 * self.capacity
        """The same with some distance, which plans keep where it costs nothing."""
        self.worst = self._worst()
        self.pods: list[Movable] = []
        self._given_up: dict[int, list[Movable]] = {}
        self._wanted: dict[PodUid, tuple[Flags, ...]] = {}
        self.refused: dict[PodUid, tuple[Refusal, ...]] = {}
        self._at: dict[int, tuple[Movable, ...]] = {}
        self._searched: dict[int, tuple[Movable, ...]] = {}
        self._loads: dict[int, Floats] = {}
        self._others: dict[int, _Others] = {}
        chosen = cluster.config.priority_policy if policy is None else policy
        self.priorities = Priorities(self, chosen, kept)

    def _add_further(self, believed: Sequence[NodeLoad], ceilings: Sequence[Ceiling]) -> None:
        """Append the columns of further resources."""
        late = self.demand.cluster.settling
        found = further_columns(
            believed,
            ceilings,
            [name in late for name in self.nodes],
            len(self.axes) - len(BALANCED),
        )
        self.capacity = np.asfortranarray(np.hstack((self.capacity, found.capacity)))
        self.now = np.asfortranarray(np.hstack((self.now, found.now)))
        self.load = np.asfortranarray(np.hstack((self.load, found.load)))
        self.ceiling = np.asfortranarray(np.hstack((self.ceiling, found.ceiling)))

    def movables(self, row: int) -> tuple[Movable, ...]:
        """Return the pods of a node that a plan may move, by uid."""
        if row not in self._searched:
            most, left_out = self.priorities.leaving(row), self._given_up.get(row, ())
            self._searched[row] = tuple(
                m for m in self.judged(row) if m.priority <= most and m not in left_out
            )
        return self._searched[row]

    def judged(self, row: int) -> tuple[Movable, ...]:
        """Return the pods of a node that no gate refuses, by uid; they are judged only once."""
        if row not in self._at:
            self._at[row] = self._judged(row) if self.gives[row] else ()
        return self._at[row]

    def relocating(self, goal: Relocate) -> Movable | None:
        """Return the pod that a goal names, if no gate refuses to move it."""
        pods = self.judged(self.row_of[goal.node])
        return next((m for m in pods if m.pod.uid == goal.pod), None)

    def repairs(self, m: Movable) -> bool:
        """Tell whether a pod has to leave its node so much that others make room for it."""
        goal = self.relocations.get(m.pod.uid)
        return goal is not None and goal.strategy is Strategy.VIOLATIONS

    def distributes(self, pod: PodRecord) -> bool:
        """Tell whether a goal asks in which domain a pod is."""
        if not self.distributions:
            return False
        key = (pod.namespace, id(pod.labels))
        if key not in self._distributed:
            self._distributed[key] = any(
                goal.counts(pod.namespace, pod.labels) for goal in self.distributions
            )
        return self._distributed[key]

    def has_own_goal(self, m: Movable) -> bool:
        """Tell whether a goal is about where this pod runs, not about what nodes use."""
        return m.pod.uid in self.relocations or self.distributes(m.pod)

    def wanted(self, m: Movable) -> tuple[Flags, ...]:
        """[N] each, where a pod should go by its own goal, the best nodes first."""
        goal = self.relocations.get(m.pod.uid)
        if goal is None or not goal.tiers:
            return ()
        found = self._wanted.get(goal.pod)
        if found is None:
            found = self._wanted[goal.pod] = tuple(self._flags(tier) for tier in goal.tiers)
        return found

    def suits(self, m: Movable, row: int) -> bool:
        """Tell whether a node is one that a pod's own goal asks for."""
        tiers = self.wanted(m)
        return not tiers or any(tier[row] for tier in tiers)

    def lost(self, goal: Relocate, m: Movable | None, row: int | None) -> float:
        """Return how much a goal is short of its best nodes with its pod on this one."""
        most = max(goal.gains, default=1.0)
        if m is None or row is None:
            return most
        gains = goal.gains or (1.0,) * len(goal.tiers)
        reached = (g for g, tier in zip(gains, self.wanted(m), strict=True) if tier[row])
        return most - next(reached, 0.0) if goal.tiers else 0.0

    def gave_up(self, m: Movable) -> bool:
        """Tell whether moving a pod was tried without success."""
        return m in self._given_up.get(m.row, ())

    def loads(self, row: int) -> Floats:
        """[P, R] what the pods of a node that may be moved use, in their order."""
        pods = self.movables(row)
        found = self._loads.get(row)
        if found is None:
            found = self._loads[row] = self.load_rows(pods)
        return found

    def load_rows(self, pods: Sequence[Movable]) -> Floats:
        """[P, R] what pods use, also of none."""
        return rows_of_amounts([m.load for m in pods], len(self.axes))

    def rows(self, goal: Spread) -> Ints:
        """Return the rows of the nodes that a goal compares."""
        return self._pool(goal).rows

    def inside(self, goal: Spread) -> Flags:
        """[N] the same rows as flags."""
        return self._pool(goal).inside

    def _pool(self, goal: Spread) -> _Pool:
        # Thousands of names are slow to hash; the pool keeps them, so their id stays theirs.
        found = self._pools.get(id(goal.nodes))
        if found is None:
            known = [self.row_of[name] for name in goal.nodes if name in self.row_of]
            rows = np.array(known, dtype=np.int64)
            inside = np.zeros(len(self.nodes), dtype=np.bool_)
            inside[rows] = True
            found = self._pools[id(goal.nodes)] = _Pool(goal.nodes, rows, inside)
        return found

    def give_up(self, pods: Iterable[Movable]) -> None:
        """Treat pods as immovable: moving them was tried without success."""
        for m in pods:
            self._given_up.setdefault(m.row, []).append(m)
            self._searched.pop(m.row, None)
            self._loads.pop(m.row, None)

    def take_back(self) -> list[Movable]:
        """Treat pods that were given up as movable again; return them."""
        found = [m for pods in self._given_up.values() for m in pods]
        if found:
            self.start_over()
        return found

    def start_over(self) -> None:
        """Search again with all pods that priorities allow to leave."""
        self._given_up.clear()
        self._searched.clear()
        self._loads.clear()

    def percent(self, load: Floats) -> Floats:
        """[N, R] utilization with these loads."""
        return 100.0 * load / self.capacity

    def level(self, row: int, percent: Floats) -> Level:
        """Return the utilization of a node; unknown further resources have a ceiling of nothing."""
        cpu, memory, *rest = percent.tolist()
        names = zip(self.dimensions[len(BALANCED) :], rest, strict=True)
        known = self.ceiling[row] > 0.0
        return Level(
            cpu, memory, tuple((d.label, value if known[d.axis] else nan) for d, value in names)
        )

    def gap(self, goal: Spread, load: Floats) -> float:
        """Return how far apart the nodes of a goal are with these loads."""
        rows, axis = self.rows(goal), goal.dimension.axis
        levels = 100.0 * load[:, axis][rows] / self.capacity[:, axis][rows]
        return width(levels, fill_low=goal.fill_low)

    def goal_of(self, row: int) -> AtMost | Empty | None:
        """Return the goal that a node has for itself; to be emptied outweighs a ceiling."""
        return self._own_goals.get(self.nodes[row])

    def axes_of(self, row: int) -> tuple[int, ...]:
        """Return the resources that a node is short of by its goals; all where it has none."""
        goal = self.goal_of(row)
        if isinstance(goal, AtMost):
            return tuple(dimension.axis for dimension in goal.broken)
        compared = {s.dimension.axis for s in self.spreads if self.inside(s)[row]}
        return tuple(sorted(compared)) or self.axes

    def instance(self, reach: Reaches | None = None, lifted: Collection[Goal] = ()) -> Instance:
        """Return the problem as numbers only, with the pods that were judged and may leave.

        For goals that are lifted, pods of any priority may. `reach` tells where pods could run;
        without it every node counts as one where they could: that can only be too many, so the
        bound stays valid.

        For the bound of a spread, pods that were not judged are listed too, as if they could
        all be moved anywhere, unless there are very many.
        """
        judged = self.leaving(lifted)
        most = self.priorities.everywhere(lifted)
        others = self._not_judged(most) if self.spreads else []
        loads = self.load_rows(judged)
        allowed, kinds = self._anywhere(judged) if reach is None else reach(judged)
        unknown = np.zeros(sum(len(o.uids) for o in others), dtype=np.int64)
        return Instance(
            nodes=self.nodes,
            capacity=self.capacity,
            load=self.load,
            ceiling=self.ceiling,
            gives=self.gives,
            takes=self.houses,
            pods=tuple(chain((m.pod.uid for m in judged), *(other.uids for other in others))),
            at=np.concatenate([_ints([m.row for m in judged]), *(o.rows for o in others)]),
            pod_load=np.concatenate([loads, *(o.loads for o in others)]),
            allowed=allowed,
            kinds=np.concatenate([kinds, unknown]),
            empty=self.empty,
        )

    def leaving(self, lifted: Collection[Goal] = ()) -> list[Movable]:
        """Return the pods that were judged and whose priorities let them leave."""
        most = self.priorities.everywhere(lifted).tolist()
        return [m for m in self.pods if m.priority <= most[m.row]]

    def _anywhere(self, pods: Sequence[Movable]) -> tuple[Flags, Ints]:
        return self.all_rows[None, :], np.zeros(len(pods), dtype=np.int64)

    def _not_judged(self, most: Floats) -> list[_Others]:
        """Return the pods that were not judged, of priorities that may leave their nodes."""
        if len(self.snapshot.pods) > LISTED:
            return []
        rows = (row for row in np.flatnonzero(self.gives).tolist() if row not in self._at)
        return [self._others_at(row).up_to(most[row]) for row in rows]

    def _others_at(self, row: int) -> _Others:
        if row not in self._others:
            pods = sorted(self.snapshot.nodes[self.nodes[row]].pods.items())
            loads = [self.demand.cluster.load.load_of(pod) for _, pod in pods]
            self._others[row] = _Others(
                uids=tuple(uid for uid, _ in pods),
                rows=np.full(len(pods), row, dtype=np.int64),
                loads=rows_of_amounts([pod_amounts(load) for load in loads], len(self.axes)),
                priorities=_ints([pod.shape.priority for _, pod in pods]),
            )
        return self._others[row]

    def _judged(self, row: int) -> tuple[Movable, ...]:
        purpose = Purpose.MAINTENANCE if self.drained[row] else Purpose.LOAD
        view, judge = self.snapshot.nodes[self.nodes[row]], self.demand.judge
        axes, found = self.axes_of(row), []
        # A pool without a strategy for load gives only the pods that have a goal of their own.
        some = not (
            self.empty[row] or self.demand.cluster.rules.of_node(view.node.name).gives_for_load
        )
        for uid, pod in sorted(view.pods.items()):
            if some and uid not in self.relocations and not self.distributes(pod):
                continue
            refusals = judge(pod, purpose) or observed(self, pod, row)
            if refusals:
                self.refused[uid] = refusals
                continue
            try:
                found.append(self._movable(pod, row, view, purpose, axes))
            except Exception as error:  # it stays, and is named; the others go on
                self.refused[uid] = (unjudgeable(error),)
        return tuple(found)

    def _movable(
        self, pod: PodRecord, row: int, there: NodeView, purpose: Purpose, axes: Sequence[int]
    ) -> Movable:
        load = self.demand.cluster.load.load_of(pod)
        used = pod_amounts(load)
        within = keeps_to_its_request(pod, used, axes)
        movable = Movable(
            number=len(self.pods),
            pod=pod,
            row=row,
            load=np.array(used),
            cpu_milli=load.cpu_milli,
            mem_bytes=load.mem_bytes,
            maintenance=purpose is Purpose.MAINTENANCE,
            consolidated=bool(self.empty[row]) and purpose is Purpose.LOAD,
            cost=disruption(pod, there, self._moved_s(pod), within=within),
            group=pod.controller_id,
            surges=self.demand.surges(pod, purpose),
        )
        self.pods.append(movable)
        return movable

    def _moved_s(self, pod: PodRecord) -> float:
        """Return when a pod, or one of its workload, was moved last."""
        if not self._past.lineage_moved_s and not self._past.workload_moved_s:
            return 0.0
        top = self.snapshot.top_workload(pod)
        workload = (
            self._past.workload_moved_s.get(top.controller_id, 0.0) if top is not None else 0.0
        )
        return max(workload, self._past.lineage_moved_s.get(lineage_of(pod), 0.0))

    def _flags(self, names: Iterable[NodeName]) -> Flags:
        found = np.zeros(len(self.nodes), dtype=np.bool_)
        found[[self.row_of[name] for name in names if name in self.row_of]] = True
        return found

    def _held(self) -> Flags:
        """[N] has to wait by the rules, and no goal of its own: it would only make room."""
        held = self._flags(self.demand.assessment.participation.held)
        if held.any():
            held &= ~self._flags(self._own_goals)
            held &= ~self._flags(goal.node for goal in self.relocations.values())
            spread = (p.node for p in self.snapshot.pods.values() if self.distributes(p))
            held &= ~self._flags(spread)
            for goal in self.spreads:
                held &= ~self.inside(goal)
        return held

    def _lower_ceilings(self) -> None:
        for goal in self.goals:
            if isinstance(goal, AtMost):
                row = self.row_of[goal.node]
                self.ceiling[row] = np.minimum(self.ceiling[row], goal.ceiling.percents)

    def _emptied_ceiling(self, goals: Sequence[Empty]) -> Floats:
        found: Floats = self.ceiling.copy(order="K")
        for ceiling in {goal.ceiling for goal in goals if goal.ceiling is not None}:
            for axis, most in enumerate(ceiling.percents):
                found[:, axis] = np.minimum(found[:, axis], most)
        return found

    def _transient_roof(self) -> Floats:
        rows = self.ceiling.tolist()
        ceilings = [Ceiling(cpu, memory, tuple(rest)).transient() for cpu, memory, *rest in rows]
        higher = np.asfortranarray(
            rows_of_amounts([each.percents for each in ceilings], len(self.axes))
        )
        found: Floats = self.roof + (higher - self.ceiling) * self.capacity / 100.0
        return found

    def _enough(self) -> Floats:
        found: Floats = self.limit + PRECISION / 100.0 * self.capacity
        for goal in self.hot:
            row = self.row_of[goal.node]
            for axis in set(self.axes) - {dimension.axis for dimension in goal.broken}:
                # A little above its ceiling is no goal, and need not come down with the other.
                found[row, axis] = max(found[row, axis], self.load[row, axis])
        return found

    def _strictness(self) -> Floats:
        found: Floats = np.zeros_like(self.ceiling)
        rows = _ints([self.row_of[goal.node] for goal in self.hot])
        found[rows] = self.ceiling.max(axis=0, initial=0.0) - self.ceiling[rows]
        return found

    def _worst(self) -> float:
        """Return the utilization that no node may exceed afterwards unless it does so now.

        It is that of the worst node, by its dominant resource. Where a node has too much of
        anything, be it pressure, a further resource or more than a low threshold of its pool,
        it is the worst, and the others may be used up to their ceilings.
        """
        known = self.gives | self.takes
        highest = float(self.percent(self.load)[known].max(initial=0.0))
        return max(highest, self.highest_ceiling) if self.hot else highest


def width(levels: Floats, *, fill_low: bool) -> float:
    """Return by how much the highest level is above the lowest, or above the others' mean."""
    if levels.size < 2:
        return 0.0
    highest = float(levels.max())
    if fill_low:
        return highest - float(levels.min())
    return highest - (float(levels.sum()) - highest) / (levels.size - 1)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _columns(values: Sequence[Sequence[float]]) -> Floats:
    return np.asfortranarray(rows_of_amounts(values, len(BALANCED)))


def _requests_on_their_way(cluster: ClusterView) -> dict[NodeName, list[Load]]:
    """Return what pods request that come to nodes whose load is not known."""
    found: dict[NodeName, list[Load]] = {}
    if not cluster.load.unknown:
        return found
    for migration in on_their_way(cluster.snapshot):
        asked = Load(migration.requests_cpu_milli, migration.requests_mem_bytes)
        found.setdefault(migration.target, []).append(asked)
    return found


def _believed(
    cluster: ClusterView, name: NodeName, inbound: Mapping[NodeName, Sequence[Load]]
) -> NodeLoad:
    """Return the load of a node; where it is not known, what pods request there."""
    found = cluster.load.nodes[name]
    if found.known or found.why is Unknown.NO_ALLOCATABLE:
        return found
    asked = requested_load(cluster.snapshot.nodes[name], cluster.now_s, cluster.config)
    for load in inbound.get(name, ()):
        asked = asked.with_pod(load, sign=+1)
    return asked


def _ceiling_of(demand: Demand, name: NodeName) -> Ceiling:
    """Return the ceiling of a node; requests may use all of it, as kube-scheduler has it."""
    known = demand.cluster.load.nodes[name].known
    found = demand.assessment.participation.ceilings.get(name) if known else None
    return found if found is not None else _ALL_OF_IT
