"""Strategies: what is wanted of the nodes, stated as goals and never as victims."""

from rebalancer.strategies.assessment import STRATEGIES, Assessment, Assessor, Waiting
from rebalancer.strategies.base import Look, Participation, Refused, Strategy
from rebalancer.strategies.claims import Patience
from rebalancer.strategies.participation import RULES, Role, Rule, participation
from rebalancer.strategies.reach import Evictable, Reach

__all__ = (
    "RULES",
    "STRATEGIES",
    "Assessment",
    "Assessor",
    "Evictable",
    "Look",
    "Participation",
    "Patience",
    "Reach",
    "Refused",
    "Role",
    "Rule",
    "Strategy",
    "Waiting",
    "participation",
)
