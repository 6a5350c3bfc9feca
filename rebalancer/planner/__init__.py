"""Planning: goals in, the fewest moves out, with the proof of how few could do."""

from rebalancer.planner.constraints import CONSTRAINTS, Constraint
from rebalancer.planner.limits import LIMITS, Limit
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, Plan, Refused, Unmet
from rebalancer.planner.planner import make_plan
from rebalancer.planner.problem import Demand
from rebalancer.planner.settings import PlannerSettings

__all__ = (
    "CONSTRAINTS",
    "LIMITS",
    "Bound",
    "Constraint",
    "Demand",
    "Level",
    "Limit",
    "Move",
    "NodePlan",
    "Plan",
    "PlannerSettings",
    "Refused",
    "Unmet",
    "make_plan",
)
