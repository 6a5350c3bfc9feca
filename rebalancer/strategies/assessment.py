"""What is wanted of the nodes now: goals that have been broken often enough.

One bad sample proves little, so goals for load stand only after `observations` new samples
in a row; a pool's spread counts each node at its ends for itself, otherwise in a large pool
a new node's spike in every sample would look like one that lasts. What is only waiting is
listed with its count, so that nobody wonders why nothing happens.

An assessor remembers counts and nothing else: the same looks in the same order give the
same assessments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

import msgspec

from common.cluster.records import NodeName
from common.config import LoadSettings
from common.load import Observations
from rebalancer.goals import AtMost, Dimension, Empty, Goal, Spread
from rebalancer.reasons import Refusal
from rebalancer.strategies.base import Look, Participation, Refused, Strategy
from rebalancer.strategies.load_balancing import LoadBalancing, levels_of, spread
from rebalancer.strategies.node_maintenance import NodeMaintenance
from rebalancer.strategies.participation import participation
from rebalancer.strategies.pools import Levels, downwards, far, percent
from rebalancer.strategies.promises import Promises
from rebalancer.strategies.reach import NO_EVICTABLE_POD, Evictable
from rebalancer.strategies.resource_optimization import ResourceOptimization, allowed, at_most
from rebalancer.strategies.words import NAMES

STRATEGIES: tuple[Strategy, ...] = (NodeMaintenance(), ResourceOptimization(), LoadBalancing())

_TOLD: Final = 200
"""Characters of an error that are shown."""


class Waiting(msgspec.Struct, frozen=True):
    """A goal that is broken now, but not yet in enough samples."""

    goal: Goal
    seen: int
    needed: int
    words: str


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What one look calls for."""

    goals: tuple[Goal, ...]
    waiting: tuple[Waiting, ...]
    participation: Participation
    notes: tuple[str, ...]


class _Watch(NamedTuple):
    """One thing that is counted: a node that is too high, or too far from its pool."""

    what: Literal["ceiling", "high", "low"]
    node: NodeName
    dimension: Dimension


class Assessor:
    """Assesses looks, one after the other."""

    def __init__(self, settings: LoadSettings) -> None:
        self._needed = settings.observations
        self._observations: Observations[_Watch] = Observations(
            settings.observations, settings.clear_observations
        )
        self._watched: set[_Watch] = set()

    def assess(self, look: Look, evictable: Evictable, *, at_once: bool = False) -> Assessment:
        """Return the goals that stand; `at_once` takes the samples at hand for enough."""
        parts = participation(look, evictable)
        stated, notes = _stated(look, parts)
        judge = None
        if not at_once:
            judge = _Round(look, parts.promises, self._observations, self._needed)
        verdicts = [_verdict(goal, judge) for goal in stated]
        if judge is not None:
            self._finish(look, judge)
        return Assessment(
            goals=tuple(v for v in verdicts if not isinstance(v, Waiting)),
            waiting=tuple(v for v in verdicts if isinstance(v, Waiting)),
            participation=_completed(parts, judge.early if judge is not None else ()),
            notes=notes,
        )

    def moved(self, nodes: Collection[NodeName]) -> None:
        """Start over with these nodes: we have moved pods away from them or onto them."""
        for watch in self._watched:
            if watch.node in nodes:
                self._observations.restart(watch)

    def _finish(self, look: Look, judge: _Round) -> None:
        """Count what is no longer broken as good, and forget what is gone or long fine."""
        fine: set[_Watch] = set()
        if not look.load.resting:
            fine = {w for w in self._watched - judge.standing.keys() if judge.clears(w)}
        watched = self._watched.union(judge.standing) - fine
        self._watched = {watch for watch in watched if watch.node in look.load.nodes}
        self._observations.keep(self._watched)


class _Round:
    """One look put to the counts."""

    def __init__(
        self,
        look: Look,
        promises: Promises,
        counts: Observations[_Watch],
        needed: int,
    ) -> None:
        self._look = look
        self._promises = promises
        self._counts = counts
        self._needed = needed
        self.standing: dict[_Watch, bool] = {}
        self.early: list[NodeName] = []
        """Nodes at the end of a pool that were not there often enough."""

    def at_most(self, goal: AtMost) -> AtMost | Waiting:
        """Return the goal for the resources that were above it often enough."""
        watches = [_Watch("ceiling", goal.node, d) for d in goal.broken]
        standing = tuple(w.dimension for w in watches if self._stands(w))
        if standing == goal.broken:
            return goal
        if standing:
            narrowed = at_most(self._look.load.nodes[goal.node], goal.ceiling, standing)
            return msgspec.structs.replace(narrowed, strategy=goal.strategy)
        seen = max(self._counts.count(watch) for watch in watches)
        first = goal.broken[0]
        what = f"{goal.node} above {allowed(goal.ceiling, first):g} % {NAMES[first]}"
        return self._waiting(goal, seen, what)

    def spread(self, goal: Spread) -> Spread | Waiting:
        """Return the goal for the nodes that were at the ends of the pool often enough."""
        promised = self._promises[goal.dimension]
        levels = levels_of(self._look, goal.nodes, goal.dimension, promised)
        left, early = levels, self._early(levels, goal)
        if not early:
            return goal
        while early:
            self.early += early
            left = {name: level for name, level in left.items() if name not in early}
            early = self._early(left, goal)
        narrowed = spread(
            goal.pool, goal.dimension, goal.points, left, promised, fill_low=goal.fill_low
        )
        if narrowed is None:
            return self._apart(goal, levels)
        return msgspec.structs.replace(narrowed, strategy=goal.strategy)

    def clears(self, watch: _Watch) -> bool:
        """Count a look that is fine; return whether nothing is left to remember."""
        load = self._look.load.nodes.get(watch.node)
        if load is None or not load.known:
            return False
        self._observe(watch, broken=False)
        return self._counts.count(watch) == 0

    def _early(self, levels: Levels, goal: Spread) -> set[NodeName]:
        ends = far(levels, goal.points, fill_low=goal.fill_low)
        high = {n for n in ends.high if not self._stands(_Watch("high", n, goal.dimension))}
        return high | {n for n in ends.low if not self._stands(_Watch("low", n, goal.dimension))}

    def _apart(self, goal: Spread, levels: Levels) -> Waiting:
        order = downwards(levels)
        high = _Watch("high", order[0], goal.dimension)
        low = _Watch("low", order[-1], goal.dimension)
        seen = self._counts.count(high)
        others = "the mean of the others"
        if goal.fill_low:
            seen, others = min(seen, self._counts.count(low)), low.node
        name = NAMES[goal.dimension]
        what = f"{high.node} more than {goal.points:g} points of {name} above {others}"
        return self._waiting(goal, seen, what)

    def _waiting(self, goal: Goal, seen: int, what: str) -> Waiting:
        return Waiting(goal, seen, self._needed, f"{what} in {seen} of {self._needed} samples")

    def _stands(self, watch: _Watch) -> bool:
        if watch not in self.standing:
            self.standing[watch] = self._observe(watch, broken=True)
        return self.standing[watch]

    def _observe(self, watch: _Watch, *, broken: bool) -> bool:
        load = self._look.load.nodes[watch.node]
        levels = (percent(load, watch.dimension),)
        return self._counts.observe(watch, broken=broken, sample_s=load.sample_end_s, levels=levels)


def _stated(look: Look, parts: Participation) -> tuple[list[Goal], tuple[str, ...]]:
    """Return what this look alone calls for, and what there is to say."""
    goals: list[Goal] = []
    notes = list(parts.notes)
    resting: list[str] = []
    for strategy in STRATEGIES:
        if strategy.name not in look.config.enabled_strategies:
            continue
        if strategy.for_load and look.load.resting:
            resting.append(strategy.name)
            continue
        try:
            stated, told = strategy.goals(look, parts), strategy.notes(look, parts)
        except Exception as error:  # the other strategies go on without it
            words = f"{type(error).__name__}: {error}"
            notes.append(f"{strategy.name} states no goals, because that failed: {words[:_TOLD]}")
            continue
        goals += stated
        notes += told
    return goals, (*_resting(look, resting), *notes)


def _resting(look: Look, strategies: Sequence[str]) -> Iterable[str]:
    if strategies:
        known = len(look.load.nodes) - look.load.unknown
        yield (
            f"{' and '.join(strategies)} rest: the load of only {known} of "
            f"{len(look.load.nodes)} nodes is known, and two thirds are needed."
        )


def _verdict(goal: Goal, judge: _Round | None) -> Goal | Waiting:
    if judge is None or isinstance(goal, Empty):
        return goal
    return judge.at_most(goal) if isinstance(goal, AtMost) else judge.spread(goal)


def _completed(parts: Participation, early: Iterable[NodeName]) -> Participation:
    """Return who takes part, with what was found out on the way."""
    stuck = parts.reach.refused
    empty = {name: why for name, why in stuck.items() if why is NO_EVICTABLE_POD}
    waiting = Refusal("SeenTooRarely", "it is far from its pool in too few samples yet", False)
    return replace(
        parts,
        sources_refused=_with(parts.sources_refused, empty),
        spread_refused=_with(parts.spread_refused, stuck | dict.fromkeys(early, waiting)),
    )


def _with(refused: Refused, more: dict[NodeName, Refusal]) -> Refused:
    added = {name: (*refused.get(name, ()), why) for name, why in more.items()}
    return {**refused, **added}
