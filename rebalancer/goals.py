"""What is wanted of the nodes: goals, stated by strategies and met by the planner.

A goal names nodes and percentages, never victims. Plain values, with words for people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from common.cluster.records import NodeName
from common.config import Strategy

PRECISION: Final = 0.05
"""Points: who is no further above a threshold is at it, for nobody measures more precisely."""
MARGIN: Final = 0.5
"""Points that a plan keeps from thresholds where that costs nothing, and by which nodes may
later differ from what it promised."""


class Dimension(StrEnum):
    """A resource that is balanced."""

    CPU = "cpu"
    MEMORY = "memory"


class Ceiling(msgspec.Struct, frozen=True, gc=False):
    """The most that a node may be used, in percent of its allocatable."""

    cpu_percent: float
    mem_percent: float


class AtMost(msgspec.Struct, frozen=True, kw_only=True):
    """A node above its ceiling has to come under it."""

    strategy: Strategy
    node: NodeName
    ceiling: Ceiling
    broken: tuple[Dimension, ...]
    """The resources that were above it when the goal was stated, the worse one first."""
    words: str


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The highest and the lowest node of a pool may differ by so many points."""

    strategy: Strategy
    pool: str
    """The value of the pool label; empty where all nodes are one pool."""
    dimension: Dimension
    points: float
    nodes: tuple[NodeName, ...]
    """Who takes part, by name."""
    fill_low: bool
    """Whether the low end counts too; otherwise only nodes above the others' mean do."""
    words: str


class Empty(msgspec.Struct, frozen=True, kw_only=True):
    """A node has to be emptied of every pod that may move."""

    strategy: Strategy
    node: NodeName
    words: str


Goal = AtMost | Spread | Empty
