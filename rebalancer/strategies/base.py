# SPDX-License-Identifier: Apache-2.0
"""What a strategy is, what it is given, and which nodes take part.

A strategy states goals for nodes and never picks victims: the planner does. It remembers
nothing either: whether a goal has been broken in enough samples is for the assessor to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName, PodRecord
from common.config import NodeRules, RebalancerConfiguration
from common.config import Strategy as StrategyName
from common.fit import World
from common.load import LoadView
from rebalancer.goals import Ceiling, Goal, Places
from rebalancer.refusals import Refusal
from rebalancer.rules import ClusterRules
from rebalancer.strategies.mobility import Mobility
from rebalancer.strategies.pending_pods import PendingTimes
from rebalancer.strategies.predicted_levels import PredictedLevels
from rebalancer.strategies.settling import settling_nodes

Refused = Mapping[NodeName, tuple[Refusal, ...]]
"""Nodes that are kept out, each with every reason; a node that is not listed may take part."""


@dataclass(frozen=True, slots=True)
class Consolidated:
    """Which nodes are emptied or kept empty, and what people should know about it."""

    kept: frozenset[NodeName] = frozenset()
    emptied: tuple[NodeName, ...] = ()
    """Those of them that still have pods which have to leave."""
    notes: tuple[str, ...] = ()
    places: Mapping[NodeName, Places] = field(default_factory=dict)
    """Where the pods of each of these find room."""


Judge = Callable[[PodRecord], tuple[Refusal, ...]]


def _nothing(_: PodRecord) -> tuple[Refusal, ...]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class ClusterView:
    """The cluster at one moment: its objects, its estimated load, and the configuration."""

    snapshot: Snapshot
    load: LoadView
    config: RebalancerConfiguration
    now_s: float
    world: World
    pending_times: PendingTimes = field(default_factory=PendingTimes)
    """For how long pods have been waiting for nodes."""
    consolidated: frozenset[NodeName] = frozenset()
    """Nodes that a plan in the making empties, besides those that are marked."""
    not_emptied: frozenset[NodeName] = frozenset()
    """Nodes that no plan could empty whole a short while ago."""
    consolidates: bool = True
    """Whether further nodes are chosen to be emptied; the choice is costly."""
    rules: ClusterRules = field(init=False, repr=False)
    """What holds for each node and pod at this moment."""
    settling: frozenset[NodeName] = field(init=False, repr=False)
    """Nodes whose pressure and further resources say nothing yet, because pods came or left."""

    def __post_init__(self) -> None:
        rules = ClusterRules(self.config, self.snapshot, self.now_s)
        object.__setattr__(self, "rules", rules)
        settling = settling_nodes(self.config, self.snapshot, self.load, self.now_s)
        object.__setattr__(self, "settling", settling)


@dataclass(frozen=True, slots=True)
class Participation:
    """Which nodes may give pods, may take pods, and are compared with others."""

    sources_refused: Refused
    """Give no pods for the sake of load. Goals to empty a node are not bound by this."""
    targets_refused: Refused
    """Take no pods that are moved for load."""
    refuges_refused: Refused
    """Take no pods from a node under maintenance; fewer reasons than for load."""
    spread_refused: Refused
    """Are not compared with the other nodes of their pool."""
    last_resorts: Refused
    """Take pods from a node under maintenance only if no other node does."""
    pools: Mapping[str, tuple[NodeName, ...]]
    """Every node, by name, under its pool: that of the rules and the value of the pool label."""
    autoscalers: Mapping[str, str]
    """What shows that an autoscaler may remove nodes of a pool; empty where nothing does."""
    ceilings: Mapping[NodeName, Ceiling]
    """For every node, whatever strategies are enabled."""
    predicted: PredictedLevels
    """Levels that our own moves predicted for nodes, where the prediction holds."""
    notes: tuple[str, ...] = ()
    states: Refused = field(default_factory=dict)
    """What is known of nodes and closes nothing to them: it is only shown."""
    held: frozenset[NodeName] = frozenset()
    """Nodes whose pool waits or only observes: they give no pods for goals of other nodes."""
    pending: str = ""
    """A pod that has been waiting for a node for a short while; empty if none has."""
    consolidated: Consolidated = field(default_factory=Consolidated)
    """Which nodes are emptied for an autoscaler, or kept empty."""
    refusals: Judge = field(default=_nothing, compare=False, repr=False)
    """What the gates have against moving a pod for load."""
    pool_rules: Mapping[str, NodeRules] = field(default_factory=dict, compare=False)
    """What holds for the nodes of each pool: all of a pool follow one rule of the configuration."""
    mobility: Mobility = field(kw_only=True, compare=False, repr=False)
    """Which nodes could give or take pods at all; worked out on demand, because it is costly."""


class Strategy(Protocol):
    """States goals for nodes."""

    name: ClassVar[StrategyName]
    for_load: ClassVar[bool]
    """Pauses while too little is known about load, and needs consecutive observations."""

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        """Return the goals for this moment, by node or pool."""

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Return, in full sentences, what a reader of the plan might wonder about."""
