# SPDX-License-Identifier: Apache-2.0
"""Planning: goals in, the fewest moves out, with the proof of how few could do."""

from rebalancer.planner.constraints import CONSTRAINTS, Constraint
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, Plan, Refused, Unmet
from rebalancer.planner.planner import make_plan
from rebalancer.planner.problem import Demand, SearchEffort

__all__ = (
    "CONSTRAINTS",
    "Bound",
    "Constraint",
    "Demand",
    "Level",
    "Move",
    "NodePlan",
    "Plan",
    "Refused",
    "SearchEffort",
    "Unmet",
    "make_plan",
)
