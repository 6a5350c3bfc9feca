# SPDX-License-Identifier: Apache-2.0
"""The fewest evictions that meet all goals of a cluster, solved exactly (HiGHS).

One binary variable per pod and node that it may go to. All rules hold in the end state; that
the moves can be made one after the other is checked afterwards, and a solution without such
an order is cut off and the next one sought.

With `priorityPolicy: LowFirst` every goal opens as few priorities as possible: first the sum of
opened priorities is minimized, then, with that sum, the evictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Final

import highspy
import numpy as np

from bench.zoo.model import HOST, ZONE, Model, Workload
from bench.zoo.replay import Step, ordered

SECONDS: Final = 60.0
RETRIES: Final = 12
"""Solutions without an order that are cut off before the cluster counts as order-blocked."""
PRECISION: Final = 0.05
"""Points by which a goal may be missed and still counts as met: samples are not more precise."""
SAFE: Final = 1e-4
"""Points that end states keep from limits, beyond what a solver's tolerance could hide."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge knows about a cluster."""

    solvable: bool | None
    """None where neither a solution nor a proof against one was found in time."""
    evictions: int | None
    """The fewest known."""
    bound: int
    """The fewest possible, as far as proven."""
    order_blocked: bool = False
    steps: tuple[Step, ...] = ()
    last_resort: bool = False
    """Nodes can be emptied only if replicas pile up, or soft constraints yield."""
    opened: int | None = None
    """The fewest priorities that goals have to open; None where that is not proven."""

    @property
    def proven(self) -> bool:
        return self.evictions is not None and self.bound >= self.evictions


def judge(model: Model, *, seconds: float = SECONDS) -> Verdict:
    """Solve a cluster; where nodes must be emptied, piling replicas up is the last resort."""
    found = _solved(_Program(model, last_resort=False), seconds)
    if found.solvable is False and model.emptied.any():
        found = _solved(_Program(model, last_resort=True), seconds)
    return found


def _solved(program: _Program, seconds: float) -> Verdict:
    bound, opened = 0, 0
    if program.opening:
        first = program.fewest_opened(seconds)
        if first.steps is None:
            return Verdict(False if first.infeasible else None, None, 0)
        opened = program.opened
    for cut_off in range(RETRIES):
        answer = program.solve(seconds)
        bound = max(bound, answer.bound)
        if answer.steps is None and answer.infeasible and cut_off:
            break  # no solution is left, and none before had an order
        if answer.steps is None:
            return Verdict(False if answer.infeasible else None, None, bound)
        steps = ordered(program.model, answer.steps, last_resort=program.last_resort)
        if steps is not None:
            return Verdict(
                True,
                len(steps),
                bound,
                steps=tuple(steps),
                opened=opened,
                last_resort=program.last_resort,
            )
        program.exclude(answer.steps)
    return Verdict(None, None, bound, order_blocked=True)


@dataclass(frozen=True, slots=True)
class _Answer:
    infeasible: bool
    bound: int
    steps: list[Step] | None


class _Program:
    """The linear problem in whole numbers."""

    def __init__(self, model: Model, *, last_resort: bool) -> None:
        self.model = model
        self.last_resort = last_resort
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # has no stubs
        options: dict[str, Any] = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.99,
            "random_seed": 1,
        }
        for name, value in options.items():
            self._solver.setOptionValue(name, value)
        self._x: dict[Step, int] = {}
        self._of: dict[int, list[tuple[int, int]]] = {}
        """Target rows and columns of each pod."""
        self._columns = 0
        self._state()
        self._requests()
        self._ceilings()
        for pool, rows in model.pools.items():
            self._spread(rows, model.points(pool))
        for workload in model.workloads.values():
            self._replicas(workload, last_resort=last_resort)
        self.opening: list[int] = []
        """Columns of opened priorities; empty where all have the same, or none matters."""
        self.opened = 0
        if model.low_first and len(model.levels) > 1:
            self._priorities()

    def fewest_opened(self, seconds: float) -> _Answer:
        """Open as few priorities as possible, and keep to that from now on."""
        self._weigh(moves=0.0, opening=1.0)
        found = self.solve(seconds)
        self._weigh(moves=1.0, opening=0.0)
        if found.steps is not None:
            values = np.array(self._solver.getSolution().col_value)
            self.opened = round(float(values[self.opening].sum()))
            self._row(self.opening, [1.0] * len(self.opening), -inf, float(self.opened))
        return found

    def _weigh(self, *, moves: float, opening: float) -> None:
        for columns, cost in ((self._x.values(), moves), (self.opening, opening)):
            for column in columns:
                self._solver.changeColCost(column, cost)

    def _priorities(self) -> None:
        """Let pods leave only where a goal of their node, or one that they help, allows it."""
        model = self.model
        pools = {pool: self._ladder(0) for pool in model.pools}
        own = {row: self._ladder(0) for row in model.hot}
        drains = [self._ladder(model.top_level(int(row))) for row in np.flatnonzero(model.emptied)]
        for number, pod in enumerate(model.pods):
            if not self._of[number] or model.emptied[pod.home] or pod.must_leave:
                continue
            level = model.level(pod)
            if not level:
                continue
            ladders = [own[pod.home]] if pod.home in own else [*own.values(), *drains]
            if any(level not in ladder for ladder in ladders):
                continue  # a node to be emptied has pods of that priority
            if pod.home in model.pool_of:
                ladders.append(pools[model.pool_of[pod.home]])
            opened = [ladder[level] for ladder in ladders if level in ladder]
            columns = [column for _, column in self._of[number]]
            values = [1.0] * len(columns) + [-1.0] * len(opened)
            self._row([*columns, *opened], values, -inf, 0.0)

    def _ladder(self, free: int) -> dict[int, int]:
        """Return a column for each priority above the free ones, opened from below."""
        found: dict[int, int] = {}
        for level in range(free + 1, len(self.model.levels)):
            found[level] = self._variable(0.0)
            self.opening.append(found[level])
            if level - 1 in found:
                self._row([found[level], found[level - 1]], [1.0, -1.0], -inf, 0.0)
        return found

    def solve(self, seconds: float) -> _Answer:
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + seconds)
        self._solver.run()
        status, info = self._solver.getModelStatus(), self._solver.getInfo()
        infeasible = status == highspy.HighsModelStatus.kInfeasible
        if not self._columns:
            return _Answer(not self._holds_at_zero(), 0, [] if self._holds_at_zero() else None)
        bound = ceil(info.mip_dual_bound - 1e-6) if np.isfinite(info.mip_dual_bound) else 0
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if infeasible or not feasible:
            return _Answer(infeasible, max(0, bound), None)
        values = np.array(self._solver.getSolution().col_value)
        steps = [step for step, column in self._x.items() if values[column] > 0.5]
        return _Answer(False, max(0, bound), steps)

    def exclude(self, steps: Sequence[Step]) -> None:
        """Cut off one solution."""
        columns = [self._x[step] for step in steps]
        self._row(columns, [1.0] * len(columns), -inf, len(columns) - 1.0)

    def _state(self) -> None:
        model = self.model
        for number, pod in enumerate(model.pods):
            targets = [r for r in np.flatnonzero(pod.fits) if r != pod.home] if pod.movable else []
            self._of[number] = []
            for row in targets:
                column = self._variable(1.0)
                self._x[number, int(row)] = column
                self._of[number].append((int(row), column))
            must = (bool(model.emptied[pod.home]) and pod.movable) or pod.must_leave
            if targets or must:
                columns = [column for _, column in self._of[number]]
                self._row(columns, [1.0] * len(columns), 1.0 if must else 0.0, 1.0)

    def _flow(self, row: int, weight: Sequence[float]) -> tuple[list[int], list[float]]:
        """Return what a node gains by moves: arrivals less departures."""
        columns, values = [], []
        for (number, target), column in self._x.items():
            if target == row:
                columns.append(column)
                values.append(weight[number])
            elif self.model.pods[number].home == row:
                columns.append(column)
                values.append(-weight[number])
        return columns, values

    def _requests(self) -> None:
        model = self.model
        asked = np.zeros_like(model.offered)
        count = np.zeros(len(model.nodes))
        for pod in model.pods:
            asked[pod.home] += pod.requests
            count[pod.home] += 1
        ones = [1.0] * len(model.pods)
        for row in range(len(model.nodes)):
            for axis in range(len(model.asked_for)):
                unit = max(1.0, model.offered[row, axis])
                weight = [pod.requests[axis] / unit for pod in model.pods]
                left = max(0.0, (model.offered[row, axis] - asked[row, axis]) / unit)
                self._row(*self._flow(row, weight), -inf, left)
            self._row(*self._flow(row, ones), -inf, max(0.0, model.places[row] - count[row]))
            for port in set().union(*(pod.ports for pod in model.pods)):
                needs = [float(port in pod.ports) for pod in model.pods]
                now = sum(port in pod.ports for pod in model.pods if pod.home == row)
                self._row(*self._flow(row, needs), -inf, max(0.0, 1.0 - now))

    def _ceilings(self) -> None:
        model = self.model
        level, hot = model.percent(model.load), set(model.hot)
        for row in range(len(model.nodes)):
            for axis in (0, 1):
                room = model.ceiling[row, axis] - level[row, axis] - SAFE
                # What is no goal may stay as it is, but nothing is added to it.
                room = room + PRECISION if row in hot else max(0.0, room)
                self._row(*self._flow(row, self._points(row, axis)), -inf, room)

    def _points(self, row: int, axis: int) -> list[float]:
        unit = self.model.capacity[row, axis] / 100.0
        return [float(pod.load[axis] / unit) for pod in self.model.pods]

    def _spread(self, rows: Sequence[int], points: float) -> None:
        model = self.model
        level = model.percent(model.load)
        for axis in (0, 1):
            allowed = points + PRECISION
            low = self._variable(0.0, most=100.0, whole=False)
            for row in rows:
                columns, values = self._flow(row, self._points(row, axis))
                # low ≤ level + flow ≤ low + allowed
                self._row(
                    [*columns, low],
                    [*values, -1.0],
                    SAFE - level[row, axis],
                    allowed - level[row, axis] - SAFE,
                )

    def _replicas(self, workload: Workload, *, last_resort: bool) -> None:
        for key in (HOST, ZONE):
            rules = [rule for rule in workload.spreads if rule.key == key]
            for rule in (rule for rule in rules if rule.hard or not last_resort):
                self._skew(workload, key, rule.max_skew, hard=rule.hard)
            for app, repelled_in in workload.repels:
                if repelled_in == key:
                    self._repel(workload, app, key)
            if not rules and not last_resort:
                for domain, most in self.model.caps(workload, key).items():
                    self._row(*self._arrivals(workload, key, domain), -inf, most)

    def _arrivals(
        self, workload: Workload, key: str, domain: str
    ) -> tuple[list[int], list[float], float]:
        """Return how many replicas a domain has in the end, as columns, values, and a constant."""
        names, columns, values, constant = self.model.domain(key), [], [], 0.0
        for number in workload.pods:
            home = names[self.model.pods[number].home] == domain
            constant += home
            for row, column in self._of[number]:
                change = (names[row] == domain) - home
                if change:
                    columns.append(column)
                    values.append(float(change))
        return columns, values, constant

    def _skew(self, workload: Workload, key: str, max_skew: int, *, hard: bool) -> None:
        model = self.model
        domains = sorted(model.eligible(model.pods[workload.pods[0]], key))
        counts = {d: self._arrivals(workload, key, d) for d in domains}
        now = [constant for *_, constant in counts.values()]
        most = max_skew if hard else max(max_skew, int(max(now) - min(now)))
        least = self._variable(0.0, most=float(len(workload.pods)), whole=True)
        for columns, values, constant in counts.values():
            self._row([*columns, least], [*values, -1.0], -constant, most - constant)

    def _repel(self, workload: Workload, app: str, key: str) -> None:
        """Keep pods of a workload out of domains where pods with a label are."""
        model = self.model
        names = model.domain(key)
        others = [w for w in model.workloads.values() if model.pods[w.pods[0]].app == app]
        for domain in sorted(set(names) - {""}):
            mine = self._arrivals(workload, key, domain)
            for other in others:
                if other is workload:
                    self._row(*mine, -inf, 1.0 if model.repairs else max(1.0, mine[2]))
                    continue
                theirs = self._arrivals(other, key, domain)
                self._either(workload, mine, other, theirs)

    def _either(
        self,
        workload: Workload,
        mine: tuple[list[int], list[float], float],
        other: Workload,
        theirs: tuple[list[int], list[float], float],
    ) -> None:
        """Let a domain hold pods of one of two workloads, unless it holds both already."""
        if mine[2] and theirs[2] and not self.model.repairs:
            return
        side = self._variable(0.0)
        sizes = float(len(workload.pods)), float(len(other.pods))
        self._row([*mine[0], side], [*mine[1], -sizes[0]], -inf, -mine[2])
        self._row([*theirs[0], side], [*theirs[1], sizes[1]], -inf, sizes[1] - theirs[2])

    def _variable(self, cost: float, *, most: float = 1.0, whole: bool = True) -> int:
        self._solver.addVar(0.0, most)
        column = self._columns
        self._columns += 1
        self._solver.changeColCost(column, cost)
        if whole:
            self._solver.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        return column

    def _row(
        self,
        columns: Sequence[int],
        values: Sequence[float],
        *limits: float,
    ) -> None:
        """Add least ≤ Σ ≤ most; a constant may stand before the two."""
        *constant, least, most = limits
        shift = constant[0] if constant else 0.0
        if not len(columns):
            return
        self._solver.addRow(
            least - shift if least > -inf else -highspy.kHighsInf,
            most - shift,
            len(columns),
            np.array(columns, dtype=np.int32),
            np.array(values, dtype=np.float64),
        )

    def _holds_at_zero(self) -> bool:
        model = self.model
        idle = not any(pod.must_leave for pod in model.pods)
        return idle and not model.hot and not model.emptied.any()
