# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the nodes: goals, stated by strategies and met by the planner.

A goal names nodes and percentages, or a rule about many pods, never victims, unless a rule of
the pod itself is broken where it runs: then it names that pod. Plain values, each with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar, Final

import msgspec

from common.cluster.records import NodeName, PodUid
from common.cluster.selectors import Selector
from common.cluster.shapes import Spread as SpreadConstraint
from common.config import LoadSettings, Strategy

PRECISION: Final = 0.05
"""Points: a node that is no further above a threshold is at it; samples are not more precise."""
MARGIN: Final = 0.5
"""Points that a plan keeps from thresholds where that costs nothing, and by which nodes may
later differ from what it predicted."""


class Dimension(msgspec.Struct, frozen=True, gc=False, order=True):
    """A resource of which a node may use too much."""

    CPU: ClassVar[Dimension]
    MEMORY: ClassVar[Dimension]

    axis: int
    """Its place among the resources: CPU, memory, then further ones."""
    label: str
    """How people write it."""
    key: str
    """The key of the configuration with its threshold."""


Dimension.CPU = Dimension(0, "CPU", "cpuThreshold")
Dimension.MEMORY = Dimension(1, "memory", "memoryThreshold")
BALANCED: Final = (Dimension.CPU, Dimension.MEMORY)
"""The resources whose spread is judged; all others have a ceiling only."""


def dimensions_of(config: LoadSettings) -> tuple[Dimension, ...]:
    """Return the resources that nodes are judged by, in the order of their axes."""
    names = tuple(resource.name for resource in config.further_resources)
    return (*BALANCED, *_further(names)) if names else BALANCED


@lru_cache(maxsize=16)
def _further(names: tuple[str, ...]) -> tuple[Dimension, ...]:
    key = "prometheus.resources[{}].threshold".format
    places = enumerate(names)
    return tuple(Dimension(len(BALANCED) + i, name, key(i)) for i, name in places)


class Ceiling(msgspec.Struct, frozen=True, gc=False, repr_omit_defaults=True):
    """The most that a node may be used, in percent of its allocatable."""

    cpu_percent: float
    mem_percent: float
    further: tuple[float, ...] = ()
    """Of further resources, in their order."""

    @property
    def percents(self) -> tuple[float, ...]:
        """Return the percentages by the axes of resources."""
        return (self.cpu_percent, self.mem_percent, *self.further)

    def of(self, dimension: Dimension) -> float:
        """Return the percentage for one resource."""
        return self.percents[dimension.axis]

    def transient(self) -> Ceiling:
        """Return the most that a node may be used between two halves of an exchange.

        CPU may go half-way from the ceiling to 100 %: pods are slower for a moment. Memory keeps
        its ceiling: a node that runs out of memory kills pods.
        """
        return Ceiling((self.cpu_percent + 100.0) / 2.0, self.mem_percent, self.further)


Places = tuple[tuple[PodUid, NodeName], ...]
"""Where pods go."""


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
    ceiling: Ceiling | None = None
    """All of its pods move as for load, onto nodes that stay below this, or none of them does.

    Without it they are moved as far as possible, as for maintenance.
    """
    places: Places = ()
    """Where its pods find room together with those of the other nodes that are emptied whole."""


class Relocate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod has to leave its node for one that suits it."""

    strategy: Strategy
    node: NodeName
    """Where it is."""
    pod: PodUid
    name: str
    """namespace/name"""
    tiers: tuple[frozenset[NodeName], ...] = ()
    """Where it should go, the best nodes first; nothing stands for anywhere that it fits."""
    gains: tuple[float, ...] = ()
    """What each of these is worth beside the goals of other pods, at most 1; empty: 1 each."""
    per_host: int = 0
    """How many replicas of its workload a host may hold then; 0 leaves it to the planner."""
    message: str


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is removed without a target: it has ended, is not ready, or its group restarts."""

    strategy: Strategy
    node: NodeName
    pod: PodUid
    namespace: str
    name: str
    finished: bool
    """Whether it has ended; no PodDisruptionBudget is asked about such a pod."""
    message: str
    group: str = ""
    """The group that is restarted with it: all of its pods are evicted, or none."""
    deferred_by: str = ""
    """What keeps it from being removed in this cycle; empty if nothing does."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Distribute(msgspec.Struct, frozen=True, kw_only=True):
    """Pods have to be spread over the domains of a topology spread constraint."""

    strategy: Strategy
    namespace: str
    name: str
    """Whose constraint it is: `Deployment shop/web`."""
    pod: PodUid
    """One of the pods that have it; its replacement says which nodes count."""
    constraint: SpreadConstraint
    selector: Selector
    """Which pods of the namespace it counts."""
    message: str

    def counts(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the constraint counts a pod."""
        return namespace == self.namespace and self.selector.matches(labels)


NodeGoal = AtMost | Spread | Empty
"""About what nodes use."""
PodGoal = Relocate | Distribute
"""About where pods run."""
Goal = NodeGoal | PodGoal


def title(goal: Goal) -> str:
    """Return what a goal asks for in short: `n7 below 80 % CPU`."""
    if isinstance(goal, AtMost):
        limits = " and ".join(f"{goal.ceiling.of(d):g} % {d.label}" for d in goal.broken)
        return f"{goal.node} below {limits}"
    if isinstance(goal, Spread):
        nodes = f"pool {goal.pool}" if goal.pool else "all nodes"
        return f"{nodes} within {goal.points:g} points of {goal.dimension.label}"
    if isinstance(goal, Relocate):
        return f"{goal.name} away from {goal.node}"
    if isinstance(goal, Distribute):
        wanted = goal.constraint
        return f"{goal.name} within {wanted.max_skew} per {wanted.topology_key}"
    return f"{goal.node} empty"
