# SPDX-License-Identifier: Apache-2.0
"""Problems in whole numbers that a judge writes down term by term, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import highspy

SECONDS: Final = 20.0
NO_LIMIT: Final[float] = highspy.kHighsInf

Terms = Sequence[tuple[int, float]]
"""Columns, each with a factor."""


class Problem:
    """Columns with costs, whose sum is minimized, and rows that limit sums of them."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # has no stubs
        for name, value in {"output_flag": False, "threads": 1, "time_limit": seconds}.items():
            self._solver.setOptionValue(name, value)
        self._columns = 0

    def column(self, cost: float, most: float = 1.0) -> int:
        """Add a column, a whole number from 0 to `most`; return its number."""
        self._solver.addVar(0.0, most)
        self._solver.changeColCost(self._columns, cost)
        self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1
        return self._columns - 1

    def row(self, least: float, most: float, terms: Terms) -> None:
        """Limit a sum."""
        indices, values = [column for column, _ in terms], [value for _, value in terms]
        self._solver.addRow(least, most, len(terms), indices, values)

    def at_most(self, most: float, terms: Terms) -> None:
        self.row(-NO_LIMIT, most, terms)

    def solved(self) -> list[float] | None:
        """Return the values of the columns; None without a proven optimum."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values: list[float] = self._solver.getSolution().col_value
        return values

    def relax(self) -> None:
        """Take fractions too: the optimum is then a bound of that of whole numbers."""
        # The simplex method takes six times as long on problems of thousands of columns.
        for name, value in {"solve_relaxation": True, "solver": "ipm"}.items():
            self._solver.setOptionValue(name, value)

    @property
    def objective(self) -> float:
        """The sum of costs of the best solution found."""
        return float(self._solver.getInfo().objective_function_value)
