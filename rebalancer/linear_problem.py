# SPDX-License-Identifier: Apache-2.0
"""A linear problem in whole numbers and its answer, as plain arrays.

The planner states problems and reads answers, and the solver's process solves them. It imports
this module and must start quickly, so nothing else of ours is imported here.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt


class LinearProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Minimize the cost of chosen columns such that least ≤ the sum of each row ≤ most.

    Arrays are bytes in the machine's own format: both ends of a pipe are on one machine.
    """

    cost: bytes
    upper: bytes
    whole: bytes
    least: bytes
    most: bytes
    row: bytes
    column: bytes
    value: bytes
    nodes: int
    """Nodes of the search tree that may be visited."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a solver found."""

    values: bytes
    """One number for each column; none without a solution."""
    proven: bool = False
    """No solution costs less; otherwise a limit ended the search."""

    def column_values(self) -> npt.NDArray[np.float64] | None:
        """Return the values of the columns, if there is a solution."""
        return np.frombuffer(self.values) if self.values else None
