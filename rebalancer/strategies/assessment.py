# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the nodes now: goals that have been broken often enough.

Goals for load stand once enough samples in a row have shown them broken (`observations`).
What is only waiting is listed with its count, so that people see why nothing happens yet.

An assessor remembers counts and nothing else: the same views of the cluster in the same
order give the same assessments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from common.cluster.records import NodeName
from common.config import LoadSettings
from common.load import Observations
from rebalancer.goals import AtMost, Distribute, Empty, Goal, PodGoal, Spread
from rebalancer.refusals import Reason, Refusal
from rebalancer.strategies.base import ClusterView, Judge, Participation, Refused, Strategy
from rebalancer.strategies.consolidation import Consolidation, with_choice
from rebalancer.strategies.duplicates import Duplicates
from rebalancer.strategies.hygiene import Hygiene
from rebalancer.strategies.load_balancing import LoadBalancing
from rebalancer.strategies.mobility import NO_EVICTABLE_POD, Evictable
from rebalancer.strategies.node_maintenance import NodeMaintenance, notes_when_off
from rebalancer.strategies.observations import SampleCheck, Waiting, Watch
from rebalancer.strategies.participation import participation
from rebalancer.strategies.preferred_nodes import PreferredNodes
from rebalancer.strategies.resource_optimization import ResourceOptimization
from rebalancer.strategies.topology_spread import TopologySpread
from rebalancer.strategies.violations import Violations

STRATEGIES: tuple[Strategy, ...] = (
    NodeMaintenance(),
    Consolidation(),
    Violations(),
    Duplicates(),
    PreferredNodes(),
    Hygiene(),
    TopologySpread(),
    ResourceOptimization(),
    LoadBalancing(),
)

_SHOWN: Final = 200
"""Characters of an error that are shown."""


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The goals that stand, those that wait for more samples, and which nodes take part."""

    goals: tuple[Goal, ...]
    waiting: tuple[Waiting, ...]
    participation: Participation
    notes: tuple[str, ...]
    kept_empty: tuple[NodeName, ...] = ()
    """Nodes that `Consolidation` empties, or has emptied and keeps empty."""


class Assessor:
    """Assesses the cluster at one moment after another."""

    def __init__(self, settings: LoadSettings) -> None:
        self._needed = settings.observations
        self._observations: Observations[Watch] = Observations(
            settings.observations, settings.clear_observations
        )
        self._watched: set[Watch] = set()

    def assess(
        self,
        cluster: ClusterView,
        evictable: Evictable,
        *,
        at_once: bool = False,
        refusals: Judge | None = None,
    ) -> Assessment:
        """Return the goals that stand; with `at_once` the samples at hand are enough.

        `refusals` says what stands against moving a pod, where that matters.
        """
        parts = participation(cluster, evictable)
        judged = refusals or (lambda pod: () if evictable(pod) else (NO_EVICTABLE_POD,))
        parts = replace(parts, refusals=judged)
        parts = with_choice(cluster, parts)
        stated, notes = _stated(cluster, parts)
        judge = None
        if not at_once:
            judge = SampleCheck(cluster, parts.predicted, self._observations, self._needed)
        verdicts = [_verdict(goal, judge) for goal in stated]
        if judge is not None:
            self._finish(cluster, judge)
        return Assessment(
            goals=tuple(v for v in verdicts if not isinstance(v, Waiting)),
            waiting=tuple(v for v in verdicts if isinstance(v, Waiting)),
            participation=_completed(parts, stated, judge.early if judge is not None else ()),
            notes=notes,
            kept_empty=tuple(sorted(parts.consolidated.kept)),
        )

    def moved(self, nodes: Collection[NodeName]) -> None:
        """Count from zero for nodes that we have moved pods away from or onto."""
        for watch in self._watched:
            if watch.node in nodes:
                self._observations.restart(watch)

    def _finish(self, cluster: ClusterView, judge: SampleCheck) -> None:
        """Count what is no longer broken as good, and forget what is gone or long good."""
        fine: set[Watch] = set()
        if not cluster.load.resting:
            fine = {w for w in self._watched - judge.standing.keys() if judge.clears(w)}
        watched = self._watched.union(judge.standing) - fine
        self._watched = {watch for watch in watched if watch.node in cluster.load.nodes}
        self._observations.keep(self._watched)


def _stated(cluster: ClusterView, parts: Participation) -> tuple[list[Goal], tuple[str, ...]]:
    """Return the goals of all strategies for this moment, and their notes."""
    goals: list[Goal] = []
    notes = list(parts.notes)
    resting: list[str] = []
    enabled = cluster.rules.rules.enabled_anywhere()
    for strategy in STRATEGIES:
        if strategy.name not in enabled:
            if isinstance(strategy, NodeMaintenance):
                notes += notes_when_off(cluster)
            continue
        if strategy.for_load and cluster.load.resting:
            resting.append(strategy.name)
            continue
        try:
            stated, noted = strategy.goals(cluster, parts), strategy.notes(cluster, parts)
        except Exception as error:  # the other strategies go on without it
            text = f"{type(error).__name__}: {error}"
            notes.append(f"{strategy.name} states no goals, because that failed: {text[:_SHOWN]}")
            continue
        goals += [goal for goal in stated if _is_enabled(goal, cluster, parts)]
        notes += noted
    return goals, (*_none_enabled(cluster), *_resting(cluster, resting), *notes)


def _is_enabled(goal: Goal, cluster: ClusterView, parts: Participation) -> bool:
    """Tell whether the nodes of a goal have the strategy that states it."""
    if isinstance(goal, Distribute):
        return True  # it is stated only if one of its nodes has
    if isinstance(goal, Spread):
        rules = parts.pool_rules.get(goal.pool)
        return rules is None or goal.strategy in rules.enabled_strategies
    return goal.strategy in cluster.rules.of_node(goal.node).enabled_strategies


def _none_enabled(cluster: ClusterView) -> Iterable[str]:
    if not cluster.rules.rules.enabled_anywhere():
        yield "No strategy is enabled (enabledStrategies), so nothing is planned."


def _resting(cluster: ClusterView, strategies: Sequence[str]) -> Iterable[str]:
    if strategies:
        known = len(cluster.load.nodes) - cluster.load.unknown
        rest = "rest" if len(strategies) > 1 else "rests"
        yield (
            f"{' and '.join(strategies)} {rest}: the load of only {known} of "
            f"{len(cluster.load.nodes)} nodes is known, and two thirds are needed."
        )


def _verdict(goal: Goal, judge: SampleCheck | None) -> Goal | Waiting:
    if judge is None or isinstance(goal, Empty | PodGoal):
        return goal
    return judge.at_most(goal) if isinstance(goal, AtMost) else judge.spread(goal)


def _completed(
    parts: Participation, stated: Iterable[Goal], early: Iterable[NodeName]
) -> Participation:
    """Return which nodes take part, with what the strategies found out about mobility."""
    found = parts.mobility.refused
    empty = {name: why for name, why in found.items() if why is NO_EVICTABLE_POD}
    # A node that is stuck at the low end of one resource may be the highest in the other.
    compared = {name for goal in stated if isinstance(goal, Spread) for name in goal.nodes}
    stuck = {name: why for name, why in found.items() if name not in compared}
    waiting = Reason.SEEN_TOO_RARELY.refusal()
    return replace(
        parts,
        sources_refused=_with(parts.sources_refused, empty),
        spread_refused=_with(parts.spread_refused, stuck | dict.fromkeys(early, waiting)),
    )


def _with(refused: Refused, more: dict[NodeName, Refusal]) -> Refused:
    added = {name: (*refused.get(name, ()), why) for name, why in more.items()}
    return {**refused, **added}
