# SPDX-License-Identifier: Apache-2.0
"""HiGHS: solves one problem with one thread and a limit that counts, so always alike."""

from __future__ import annotations

from typing import Any, Final

import highspy
import numpy as np

from rebalancer.linear_problem import Answer, LinearProblem

OPTIONS: Final[dict[str, bool | int | float | str]] = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 1,
    "mip_rel_gap": 0.0,
    # Costs are whole numbers: a solution this close to the bound is the best one.
    "mip_abs_gap": 0.99,
}


def solve(problem: LinearProblem) -> Answer:
    """Return the best solution that was found within the limit."""
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # has no stubs
    for name, value in (OPTIONS | {"mip_max_nodes": problem.nodes}).items():
        solver.setOptionValue(name, value)
    solver.passModel(_lp(problem))
    solver.run()
    found = solver.getInfo().primal_solution_status
    if found != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Answer(values=b"")
    values = np.array(solver.getSolution().col_value).tobytes()
    return Answer(
        values=values, proven=solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    )


def _lp(problem: LinearProblem) -> Any:
    cost, upper = np.frombuffer(problem.cost), np.frombuffer(problem.upper)
    least, most = np.frombuffer(problem.least), np.frombuffer(problem.most)
    column = np.frombuffer(problem.column, dtype=np.int32)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(least)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
    lp.row_lower_, lp.row_upper_ = least, most
    kinds = highspy.HighsVarType
    whole = np.frombuffer(problem.whole, dtype=np.uint8)
    lp.integrality_ = [kinds.kInteger if each else kinds.kContinuous for each in whole]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(column, np.arange(len(cost) + 1)).astype(np.int32)
    lp.a_matrix_.index_ = np.frombuffer(problem.row, dtype=np.int32)
    lp.a_matrix_.value_ = np.frombuffer(problem.value)
    return lp
