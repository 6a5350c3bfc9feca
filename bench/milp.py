# SPDX-License-Identifier: Apache-2.0
"""Linear problems in whole numbers, for HiGHS.

`highspy` is imported when something is solved, because it is a development requirement and
nothing else needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from types import ModuleType
from typing import Any, Final

import numpy as np

from rebalancer.planner.instance import Floats, Ints

_GAP: Final = 0.999
"""Costs are whole numbers: a smaller gap than one is none."""
_SEED: Final = 1


class SolverMissing(Exception):
    """The exact solver is not installed."""


class SolverFailed(Exception):
    """The exact solver refuses a problem that it should take."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What the solver found and proved."""

    infeasible: bool
    values: Floats | None
    bound: int
    spent_s: float = 0.0


class Model:
    """Minimise the sum of chosen binary variables under linear rows."""

    def __init__(self, costs: Floats, *, whole: bool) -> None:
        self._lower, self._upper = [0.0] * len(costs), [1.0] * len(costs)
        self._costs = costs.tolist()
        self._whole = [whole] * len(costs)
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._least: list[Floats] = []
        self._most: list[Floats] = []
        self._count = 0

    def variable(self, lower: float, upper: float) -> int:
        """Add a variable that costs nothing and need not be whole; return its column."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._costs.append(0.0)
        self._whole.append(False)
        return len(self._costs) - 1

    def rows(
        self, count: int, row: Ints, column: Ints, value: Floats, least: Floats, most: Floats
    ) -> None:
        """Add rows: least ≤ the sum of value · column ≤ most."""
        self._entries.append((row + self._count, column, value))
        self._least.append(least)
        self._most.append(most)
        self._count += count

    @property
    def columns(self) -> int:
        """Return how many variables there are."""
        return len(self._costs)

    @property
    def trivial(self) -> bool:
        """Return whether there is nothing to choose."""
        return not self._costs

    @property
    def holds_at_zero(self) -> bool:
        """Return whether all rows hold when every variable is zero."""
        least, most = np.concatenate(self._least), np.concatenate(self._most)
        return bool((least <= 0.0).all() and (most >= 0.0).all())

    def lp(self, highspy: ModuleType) -> Any:
        """Return the problem as HiGHS takes it."""
        row, column, value = self._matrix()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self._costs), self._count
        lp.col_cost_ = np.array(self._costs)
        lp.col_lower_, lp.col_upper_ = np.array(self._lower), np.array(self._upper)
        lp.row_lower_, lp.row_upper_ = np.concatenate(self._least), np.concatenate(self._most)
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if w else kinds.kContinuous for w in self._whole]
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = np.searchsorted(column, np.arange(len(self._costs) + 1))
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_ = row.astype(np.int32)
        lp.a_matrix_.value_ = value
        return lp

    def _matrix(self) -> tuple[Ints, Ints, Floats]:
        """Return the entries column by column; HiGHS takes no two for the same place."""
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        place, which = np.unique(column * self._count + row, return_inverse=True)
        summed = np.zeros(len(place))
        np.add.at(summed, which, value)
        return place % self._count, place // self._count, summed


def solve(model: Model, *, seconds: float, threads: int, start: Floats | None = None) -> Answer:
    """Return the best solution found in the time, and the best bound proven.

    A solution to start with has a value for each variable; only a better one is searched for.
    """
    highspy = _highspy()
    if model.trivial:  # HiGHS calls it empty and does not look at the rows
        return Answer(infeasible=not model.holds_at_zero, values=np.empty(0), bound=0)
    solver = _solver(highspy, seconds, threads)
    if solver.passModel(model.lp(highspy)) == highspy.HighsStatus.kError:
        raise SolverFailed("the solver does not take the problem")
    if start is not None and len(start) == model.columns:
        known = highspy.HighsSolution()
        known.col_value = start.tolist()
        solver.setSolution(known)
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    infeasible = status in (
        highspy.HighsModelStatus.kInfeasible,
        highspy.HighsModelStatus.kUnboundedOrInfeasible,
    )
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return Answer(
        infeasible=infeasible,
        values=np.array(solver.getSolution().col_value) if found and not infeasible else None,
        bound=_whole_bound(info.mip_dual_bound),
        spent_s=solver.getRunTime(),
    )


def _highspy() -> ModuleType:
    try:
        import highspy
    except ImportError as error:
        raise SolverMissing("the exact solver is not installed: pip install highspy") from error
    module: ModuleType = highspy
    return module


def _solver(highspy: ModuleType, seconds: float, threads: int) -> Any:
    solver = highspy.Highs()
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "time_limit": seconds,
        "threads": threads,
        "random_seed": _SEED,
        "mip_abs_gap": _GAP,
        "mip_rel_gap": 0.0,
    }
    for name, value in options.items():
        solver.setOptionValue(name, value)
    return solver


def _whole_bound(bound: float) -> int:
    return ceil(bound - 1e-6) if np.isfinite(bound) else 0
