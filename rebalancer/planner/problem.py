"""What is to be planned, in numbers: nodes as rows, pods when somebody asks for them.

Rows follow the sorted names of the nodes, and the pods of a node are looked at by uid, so
that nothing depends on the order of a map. A pod is judged once, when its node first has
to give; most pods of a large cluster are never looked at.

Pairs of all nodes lie in memory resource by resource: nearly every question to all nodes is
about one resource after the other, and is answered several times faster that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.snapshot import NodeView
from rebalancer.evictability import Budgets, Purpose, lineage_of, past_of
from rebalancer.goals import MARGIN, PRECISION, AtMost, Ceiling, Dimension, Empty, Spread
from rebalancer.planner.instance import CPU, MEMORY, Flags, Floats, Instance, Ints
from rebalancer.planner.movable import Movable, disruption, keeps_to_its_request
from rebalancer.planner.settings import PlannerSettings
from rebalancer.reasons import Refusal, unjudgeable

if TYPE_CHECKING:
    from rebalancer.strategies import Assessment, Look

Judge = Callable[[PodRecord, Purpose], tuple[Refusal, ...]]

TOLERANCE: Final = 1e-7
"""Points by which sums of loads may be off and still count as equal."""

AXES: Final = {Dimension.CPU: CPU, Dimension.MEMORY: MEMORY}

LISTED: Final = 40_000
"""Beyond so many pods, only those that were looked at are listed in an instance."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Everything that a plan is made of."""

    look: Look
    assessment: Assessment
    judge: Judge
    budgets: Budgets
    settings: PlannerSettings


class _Pool(NamedTuple):
    """The nodes that a goal compares."""

    names: tuple[NodeName, ...]
    rows: Ints
    inside: Flags


class Problem:
    """The nodes by row, the goals, and the pods that may be moved."""

    def __init__(self, demand: Demand) -> None:
        look, parts = demand.look, demand.assessment.participation
        self.demand = demand
        self.snapshot = look.snapshot
        self._past = past_of(look.snapshot.migrations.values())
        self.goals = tuple(demand.assessment.goals)
        self.emptied = tuple(goal for goal in self.goals if isinstance(goal, Empty))
        self.spreads = tuple(goal for goal in self.goals if isinstance(goal, Spread))
        self.nodes: tuple[NodeName, ...] = tuple(sorted(look.snapshot.nodes))
        self.row_of = {name: row for row, name in enumerate(self.nodes)}
        offered = [look.snapshot.nodes[name].node.allocatable for name in self.nodes]
        self.capacity = _columns([(max(o.cpu_milli, 1), max(o.mem_bytes, 1)) for o in offered])
        believed = [look.load.nodes[name] for name in self.nodes]
        self.now = _columns([(b.cpu_milli, b.mem_bytes) for b in believed])
        settled = [b.settled for b in believed]
        self.load = _columns([(s.cpu_milli, s.mem_bytes) for s in settled])
        """[N, 2] what goals are judged by: terminating pods have left."""
        self.ceiling = _columns([_ceiling(parts.ceilings.get(name)) for name in self.nodes])
        self.empty = self._flags(goal.node for goal in self.emptied)
        above = (goal for goal in self.goals if isinstance(goal, AtMost))
        self.hot = tuple(goal for goal in above if not self.empty[self.row_of[goal.node]])
        """The goals of nodes that are not emptied anyway."""
        self.gives = ~self._flags(parts.sources_refused) | self.empty
        self.takes = ~self._flags(parts.targets_refused) & ~self.empty
        self.shelters = ~self._flags(parts.refuges_refused) & ~self.empty
        self.last_resorts = self._flags(parts.last_resorts)
        self.houses = self.takes | self.shelters
        """[N] takes some pod or other."""
        self._own_goals: dict[NodeName, AtMost | Empty] = {g.node: g for g in self.hot}
        self._own_goals.update({goal.node: goal for goal in self.emptied})
        self._lower_ceilings()
        self.limit = self.ceiling * self.capacity / 100.0
        self.slack = TOLERANCE * self.capacity
        self.roof = self.limit + self.slack - (self.now - self.load)
        """What a node may use at most with a pod more; terminating pods still use theirs."""
        self.highest_ceiling = float(self.ceiling.max(initial=0.0))
        self.enough = self.limit + PRECISION / 100.0 * self.capacity
        """What a node may use at most that had to come under its ceiling."""
        self.aim = self.limit - MARGIN / 100.0 * self.capacity
        """The same with some distance, which plans keep where it costs nothing."""
        self.worst = self._worst()
        self.pods: list[Movable] = []
        self._given_up: dict[int, list[Movable]] = {}
        self._pools: dict[int, _Pool] = {}
        self.refused: dict[PodUid, tuple[Refusal, ...]] = {}
        self._at: dict[int, tuple[Movable, ...]] = {}
        self._loads: dict[int, Floats] = {}

    def movables(self, row: int) -> tuple[Movable, ...]:
        """Return the pods of a node that may be moved, by uid; they are judged only once."""
        if row not in self._at:
            self._at[row] = self._judged(row) if self.gives[row] else ()
        return self._at[row]

    def loads(self, row: int) -> Floats:
        """[P, 2] what the pods of a node that may be moved use, in their order."""
        pods = self.movables(row)
        found = self._loads.get(row)
        if found is None or len(found) != len(pods):
            found = self._loads[row] = np.array([m.load for m in pods]).reshape(len(pods), 2)
        return found

    def rows(self, goal: Spread) -> Ints:
        """Return the rows of the nodes that a goal compares."""
        return self._pool(goal).rows

    def inside(self, goal: Spread) -> Flags:
        """[N] the same rows as flags."""
        return self._pool(goal).inside

    def _pool(self, goal: Spread) -> _Pool:
        # Thousands of names are slow to hash; who keeps them keeps their id.
        found = self._pools.get(id(goal.nodes))
        if found is None:
            known = [self.row_of[name] for name in goal.nodes if name in self.row_of]
            rows = np.array(known, dtype=np.int64)
            inside = np.zeros(len(self.nodes), dtype=np.bool_)
            inside[rows] = True
            found = self._pools[id(goal.nodes)] = _Pool(goal.nodes, rows, inside)
        return found

    def give_up(self, pods: Iterable[Movable]) -> None:
        """Take pods for immovable: moving them was tried and led nowhere."""
        for m in pods:
            self._at[m.row] = tuple(other for other in self._at[m.row] if other is not m)
            self._given_up.setdefault(m.row, []).append(m)

    def allowed_to_go(self, row: int) -> tuple[Movable, ...]:
        """Return the pods of a node that no gate refuses, those that were given up too."""
        return (*self.movables(row), *self._given_up.get(row, ()))

    def looked_at(self) -> list[int]:
        """Return the rows whose pods were judged."""
        return sorted(self._at)

    def percent(self, load: Floats) -> Floats:
        """[N, 2] utilisation with these loads."""
        return 100.0 * load / self.capacity

    def goal_of(self, row: int) -> AtMost | Empty | None:
        """Return the goal that a node has for itself; to be emptied outweighs a ceiling."""
        return self._own_goals.get(self.nodes[row])

    def axes_of(self, row: int) -> tuple[int, ...]:
        """Return the resources that a node is short of by its goals; both where it has none."""
        goal = self.goal_of(row)
        if isinstance(goal, AtMost):
            return tuple(AXES[dimension] for dimension in goal.broken)
        compared = {AXES[s.dimension] for s in self.spreads if self.inside(s)[row]}
        return tuple(sorted(compared)) or (CPU, MEMORY)

    def instance(self) -> Instance:
        """Return the problem as numbers only, with the pods that were looked at.

        For the sake of a spread's bound, pods that nobody has looked at are listed too, as if
        they could all be moved, unless there are very many. Every node counts as one where a
        pod could run: more than the truth, never less.
        """
        others = self._not_looked_at() if self.spreads else []
        looked_at = [(m.pod.uid, m.row, (m.cpu_milli, m.mem_bytes)) for m in self.pods]
        listed = [*looked_at, *others]
        return Instance(
            nodes=self.nodes,
            capacity=self.capacity,
            load=self.load,
            ceiling=self.ceiling,
            gives=self.gives,
            takes=self.houses,
            pods=tuple(uid for uid, _, _ in listed),
            at=np.array([row for _, row, _ in listed], dtype=np.int64),
            pod_load=_pairs([load for _, _, load in listed]),
            allowed=np.broadcast_to(np.True_, (len(listed), len(self.nodes))),
            empty=self.empty,
        )

    def _not_looked_at(self) -> list[tuple[PodUid, int, tuple[float, float]]]:
        """Return uid, row and load of the pods that were not judged."""
        if len(self.snapshot.pods) > LISTED:
            return []
        found = []
        for row in (r for r in np.flatnonzero(self.gives).tolist() if r not in self._at):
            pods = self.snapshot.nodes[self.nodes[row]].pods
            for uid in sorted(pods):
                load = self.demand.look.load.load_of(pods[uid])
                found.append((uid, row, (load.cpu_milli, load.mem_bytes)))
        return found

    def _judged(self, row: int) -> tuple[Movable, ...]:
        purpose = Purpose.MAINTENANCE if self.empty[row] else Purpose.LOAD
        view, judge = self.snapshot.nodes[self.nodes[row]], self.demand.judge
        found = []
        for uid, pod in sorted(view.pods.items()):
            refusals = judge(pod, purpose)
            if refusals:
                self.refused[uid] = refusals
                continue
            try:
                found.append(self._movable(pod, row, view))
            except Exception as error:  # it stays, and is named; the others go on
                self.refused[uid] = (unjudgeable(error),)
        return tuple(found)

    def _movable(self, pod: PodRecord, row: int, there: NodeView) -> Movable:
        load = self.demand.look.load.load_of(pod)
        used = np.array((load.cpu_milli, load.mem_bytes))
        within = keeps_to_its_request(pod, used, self.axes_of(row))
        movable = Movable(
            number=len(self.pods),
            pod=pod,
            row=row,
            load=used,
            cpu_milli=load.cpu_milli,
            mem_bytes=load.mem_bytes,
            maintenance=bool(self.empty[row]),
            cost=disruption(pod, there, self._moved_s(pod), within=within),
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

    def _lower_ceilings(self) -> None:
        for goal in self.goals:
            if isinstance(goal, AtMost):
                row = self.row_of[goal.node]
                self.ceiling[row] = np.minimum(self.ceiling[row], _ceiling(goal.ceiling))

    def _worst(self) -> float:
        """Return the utilisation of the worst node, by its dominant resource."""
        known = self.gives | self.takes
        return float(self.percent(self.load)[known].max(initial=0.0))


def _pairs(values: Sequence[Sequence[float]]) -> Floats:
    return np.array(values, dtype=np.float64).reshape(len(values), 2)


def _columns(values: Sequence[Sequence[float]]) -> Floats:
    return np.asfortranarray(_pairs(values))


def _ceiling(found: Ceiling | None) -> tuple[float, float]:
    return (found.cpu_percent, found.mem_percent) if found is not None else (100.0, 100.0)
