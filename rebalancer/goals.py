# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the nodes: goals, stated by strategies and met by the planner.

A goal names nodes and percentages, never victims. Plain values, each with a message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from common.cluster.records import NodeName
from common.config import Strategy

PRECISION: Final = 0.05
"""Points: a node that is no further above a threshold is at it; samples are not more precise."""
MARGIN: Final = 0.5
"""Points that a plan keeps from thresholds where that costs nothing, and by which nodes may
later differ from what it predicted."""


class Dimension(StrEnum):
    """A resource that is balanced."""

    CPU = "cpu"
    MEMORY = "memory"

    @property
    def label(self) -> str:
        """Return it as people write it."""
        return "CPU" if self is Dimension.CPU else "memory"


class Ceiling(msgspec.Struct, frozen=True, gc=False):
    """The most that a node may be used, in percent of its allocatable."""

    cpu_percent: float
    mem_percent: float

    def of(self, dimension: Dimension) -> float:
        """Return the percentage for one resource."""
        return self.cpu_percent if dimension is Dimension.CPU else self.mem_percent

    def transient(self) -> Ceiling:
        """Return the most that a node may be used between two halves of an exchange.

        CPU may go half-way from the ceiling to 100 %: pods are slower for a moment. Memory keeps
        its ceiling: a node that runs out of memory kills pods.
        """
        return Ceiling((self.cpu_percent + 100.0) / 2.0, self.mem_percent)


class AtMost(msgspec.Struct, frozen=True, kw_only=True):
    """A node above its ceiling has to come under it."""

    strategy: Strategy
    node: NodeName
    ceiling: Ceiling
    broken: tuple[Dimension, ...]
    """The resources that were above it when the goal was stated, the worse one first."""
    message: str


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The highest and the lowest node of a pool may differ by a number of points."""

    strategy: Strategy
    pool: str
    """The value of the pool label; empty where all nodes are one pool."""
    dimension: Dimension
    points: float
    nodes: tuple[NodeName, ...]
    """The nodes that are compared, by name."""
    fill_low: bool
    """Whether the low end counts too; otherwise only nodes above the others' mean do."""
    message: str


class Empty(msgspec.Struct, frozen=True, kw_only=True):
    """A node has to be emptied of every pod that may move."""

    strategy: Strategy
    node: NodeName
    message: str


Goal = AtMost | Spread | Empty


def title(goal: Goal) -> str:
    """Return what a goal asks for in short: `n7 below 80 % CPU`."""
    if isinstance(goal, AtMost):
        limits = " and ".join(f"{goal.ceiling.of(d):g} % {d.label}" for d in goal.broken)
        return f"{goal.node} below {limits}"
    if isinstance(goal, Spread):
        nodes = f"pool {goal.pool}" if goal.pool else "all nodes"
        return f"{nodes} within {goal.points:g} points of {goal.dimension.label}"
    return f"{goal.node} empty"
