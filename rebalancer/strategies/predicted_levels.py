# SPDX-License-Identifier: Apache-2.0
"""What our own moves predicted for nodes, and whether it holds.

A plan may bring a node to exactly its ceiling, or a pool to exactly its spread, where going
further would cost another eviction. The next sample may be slightly above that, and would
call for just this eviction. So a node that is no more than `MARGIN` points from what the last
move from it or to it predicted counts as being there. What was predicted above a threshold,
because the plan was not yet complete, is still above it.

Migrations carry the predictions, so a new leader judges as the old one did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from common.api.migrations import NodeUse
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.load import NodeLoad
from rebalancer.goals import BALANCED, MARGIN, Dimension
from rebalancer.strategies.pools import Levels, percent

PredictedLevels: TypeAlias = Mapping[Dimension, Levels]
"""Nodes that are where our own moves were predicted to bring them, with that level."""


def predictions_that_hold(
    migrations: Iterable[MigrationRecord], loads: Mapping[NodeName, NodeLoad]
) -> PredictedLevels:
    """Return the levels that were predicted and that hold."""
    predicted = _last_predictions(migrations)
    return {
        dimension: {
            name: level
            for name, use in predicted.items()
            if (load := loads.get(name)) is not None
            and abs(percent(load, dimension) - (level := _level(use, dimension))) <= MARGIN
        }
        for dimension in BALANCED
    }


def _last_predictions(migrations: Iterable[MigrationRecord]) -> dict[NodeName, NodeUse]:
    """Return what was predicted of each node by the last move that touches it."""
    moves = sorted(migrations, key=lambda move: (move.created_s, move.name))
    pairs = ((move, move.predicted) for move in moves if move.predicted is not None)
    touched = (((m.source, use.source), (m.target, use.target)) for m, use in pairs)
    return {name: use for both in touched for name, use in both if use is not None}


def _level(use: NodeUse, dimension: Dimension) -> float:
    return use.cpu_percent if dimension is Dimension.CPU else use.memory_percent
