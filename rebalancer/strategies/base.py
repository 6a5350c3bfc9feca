"""What a strategy is, what it looks at, and who takes part.

A strategy states goals for nodes and never picks victims: the planner does. It remembers
nothing either: whether a goal has been broken often enough is the assessor's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from common.cluster.records import NodeName
from common.cluster.snapshot import Snapshot
from common.config import RebalancerConfiguration
from common.config import Strategy as StrategyName
from common.fit import World
from common.load import LoadView
from rebalancer.goals import Ceiling, Goal
from rebalancer.reasons import Refusal
from rebalancer.strategies.claims import Patience
from rebalancer.strategies.promises import Promises
from rebalancer.strategies.reach import Reach

Refused = Mapping[NodeName, tuple[Refusal, ...]]
"""Nodes that are kept out, each with every reason; a node that is not named may take part."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The cluster at one moment, what is believed of its load, and what is wanted."""

    snapshot: Snapshot
    load: LoadView
    config: RebalancerConfiguration
    now_s: float
    world: World
    patience: Patience = field(default_factory=Patience)
    """For how long pods have waited for nodes, from earlier looks."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Who may give, who may take, and who is compared with whom; made once per look."""

    sources_refused: Refused
    """Give no pods for the sake of load. A goal to empty a node needs no such leave."""
    targets_refused: Refused
    """Take no pods that are moved for load."""
    refuges_refused: Refused
    """Take no pods from a node under maintenance; fewer reasons than for load."""
    spread_refused: Refused
    """Are not compared with the other nodes of their pool."""
    last_resorts: Refused
    """Take pods from a node under maintenance only if no other node does."""
    pools: Mapping[str, tuple[NodeName, ...]]
    """Every node, by name, under the value of its pool label."""
    autoscalers: Mapping[str, str]
    """What shows that an autoscaler may remove nodes of a pool; empty where nothing does."""
    ceilings: Mapping[NodeName, Ceiling]
    """Hold for every node, whatever strategies are enabled."""
    promises: Promises
    """Levels to which our own moves were to bring nodes, where they are so."""
    notes: tuple[str, ...] = ()
    reach: Reach = field(kw_only=True, compare=False, repr=False)
    """Which nodes could give and take at all; costs something, so it is asked when it matters."""


class Strategy(Protocol):
    """States goals for nodes."""

    name: ClassVar[StrategyName]
    for_load: ClassVar[bool]
    """Rests while too little is known about load, and needs consecutive observations."""

    def goals(self, look: Look, parts: Participation) -> Sequence[Goal]:
        """Return what this look alone calls for, by node or pool."""

    def notes(self, look: Look, parts: Participation) -> Sequence[str]:
        """Say what a person would wonder about, in full sentences."""
