# SPDX-License-Identifier: Apache-2.0
"""Strategies: what is wanted of the nodes, stated as goals and never as victims."""

from rebalancer.strategies.assessment import STRATEGIES, Assessment, Assessor
from rebalancer.strategies.base import ClusterView, Participation, Refused, Strategy
from rebalancer.strategies.mobility import Evictable, Mobility
from rebalancer.strategies.observations import Waiting
from rebalancer.strategies.participation import (
    RULES,
    Role,
    Rule,
    node_verdicts,
    participation,
)
from rebalancer.strategies.pending_pods import PendingTimes

__all__ = (
    "RULES",
    "STRATEGIES",
    "Assessment",
    "Assessor",
    "ClusterView",
    "Evictable",
    "Mobility",
    "Participation",
    "PendingTimes",
    "Refused",
    "Role",
    "Rule",
    "Strategy",
    "Waiting",
    "node_verdicts",
    "participation",
)
