# SPDX-License-Identifier: Apache-2.0
"""A linear problem in whole numbers, as plain arrays: what a solver is asked, and its answer.

The planner states problems and reads answers; who solves them, and where, is decided outside
(`rebalancer/solver`). Limits count work, never seconds, so that the same problem has the same
answer on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rebalancer.linear_problem import Answer, LinearProblem
from rebalancer.planner.instance import Floats, Ints

__all__ = ["INFINITE", "Answer", "LinearProblem", "Program", "Solve"]

INFINITE: Final = float("inf")


Solve = Callable[[LinearProblem], Answer | None]
"""Returns None where the solver failed: the plan is then made without it."""


class Program:
    """Collects columns and rows."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._whole: list[bool] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._least: list[float] = []
        self._most: list[float] = []

    def column(self, cost: float = 0.0, *, upper: float = 1.0, whole: bool = True) -> int:
        """Add a column from zero to `upper`; return its number."""
        self._cost.append(cost)
        self._upper.append(upper)
        self._whole.append(whole)
        return len(self._cost) - 1

    def row(
        self,
        terms: Sequence[tuple[int, float]],
        *,
        least: float = -INFINITE,
        most: float = INFINITE,
    ) -> None:
        """Add a row of columns and values; a column may stand in it several times."""
        if not terms:
            return
        columns, values = zip(*terms, strict=True)
        place = np.full(len(columns), len(self._least), dtype=np.int64)
        where = np.array(columns, dtype=np.int64)
        self._entries.append((place, where, np.array(values, dtype=np.float64)))
        self._least.append(least)
        self._most.append(most)

    def problem(self, *, nodes: int) -> LinearProblem:
        """Return it as arrays; entries of the same place are added up."""
        height = len(self._least)
        parts = zip(*self._entries, strict=True)
        row, column, value = (np.concatenate(part) for part in parts)
        place, which = np.unique(column * height + row, return_inverse=True)
        summed = np.bincount(which, weights=value, minlength=len(place))
        return LinearProblem(
            cost=_floats(self._cost),
            upper=_floats(self._upper),
            whole=np.array(self._whole, dtype=np.uint8).tobytes(),
            least=_floats(self._least),
            most=_floats(self._most),
            row=(place % height).astype(np.int32).tobytes(),
            column=(place // height).astype(np.int32).tobytes(),
            value=summed.tobytes(),
            nodes=nodes,
        )


def _floats(values: Sequence[float]) -> bytes:
    return np.array(values, dtype=np.float64).tobytes()
