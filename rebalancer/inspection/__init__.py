# SPDX-License-Identifier: Apache-2.0
"""Answers about one moment of a cluster: why, status, plan, history.

Values in, documents of `console.data` out: the console of the rebalancer and the `evenkeel`
command ask the same functions, so both give the same answer.
"""

from __future__ import annotations

from console.data import Match, WhyDocument, WhyKind
from rebalancer.inspection.health import LoopState, health_document, leader_words, view_of
from rebalancer.inspection.moment import Inspection
from rebalancer.inspection.moves import migration_row, migrations_document
from rebalancer.inspection.nodes import cluster_document, load_moment, node_document, why_node
from rebalancer.inspection.plans import plan_document
from rebalancer.inspection.pods import why_pod
from rebalancer.inspection.search import search
from rebalancer.inspection.workloads import why_workload

__all__ = [
    "Inspection",
    "LoopState",
    "Match",
    "cluster_document",
    "health_document",
    "leader_words",
    "load_moment",
    "migration_row",
    "migrations_document",
    "node_document",
    "plan_document",
    "search",
    "view_of",
    "why",
    "why_node",
    "why_pod",
    "why_workload",
]

_ASK = {WhyKind.POD: why_pod, WhyKind.NODE: why_node, WhyKind.WORKLOAD: why_workload}


def why(asked: Inspection, kind: WhyKind, name: str) -> WhyDocument | None:
    """Return the answer about an object; None if there is none of that name."""
    return _ASK[kind](asked, name)
