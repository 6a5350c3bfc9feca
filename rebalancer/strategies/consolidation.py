# SPDX-License-Identifier: Apache-2.0
"""Empty a set of nodes so that an autoscaler can remove them, and keep them empty until then.

The set that saves the most is chosen: nodes whose pods all find room elsewhere, below
`consolidation.target`. It is one decision for each node: if one pod cannot go, the node stays as
it is. What is being emptied carries a mark, an annotation that both programs read and autoscalers
do not; a marked node is given up only if it can no longer be emptied.

While pods wait for nodes, or a node is above its ceiling, no further node is emptied; if the
others have no room for what is above, a node that was emptied is given back.
Nor is a further one chosen before the moves of the last choice have ended: what their pods will
use is an estimate until then, and with estimates that are too low more nodes seem to be spare,
those among them to which these pods are going.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.config import Strategy as StrategyName
from rebalancer.goals import BALANCED, Ceiling, Empty, Goal, Places
from rebalancer.refusals import Reason, Refusal
from rebalancer.strategies.base import ClusterView, Consolidated, Participation, Refused
from rebalancer.strategies.consolidation_choice import choose
from rebalancer.strategies.consolidation_survey import (
    CANDIDATES,
    PODS,
    Market,
    Surveyed,
    costs,
    filled_in,
    is_on,
    marked_nodes,
    refusal,
    surveyed,
)
from rebalancer.strategies.pools import percent, percent_now
from rebalancer.strategies.resource_optimization import above

NAMED: Final = 3
"""Nodes that a note names at most."""
_KEPT_EMPTY: Final = Reason.KEPT_EMPTY.refusal()
_WAITS: Final = frozenset({Reason.BEING_REMOVED, Reason.NOT_READY, Reason.UNKNOWN_LOAD})
"""A marked node with one of these reasons stays marked; no pod is moved for it now."""
_BEFORE: Final = frozenset({Reason.TOO_YOUNG, Reason.NOT_EMPTIED})
"""These count only before a node is marked."""


class Consolidation:
    """States that the nodes which were chosen have to be emptied, whole."""

    name: ClassVar[StrategyName] = StrategyName.CONSOLIDATION
    for_load: ClassVar[bool] = False
    """It keeps nodes empty while load is not known; it empties none then."""

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        target = cluster.config.consolidation.target
        further = (100.0,) * len(cluster.config.further_resources)
        return [
            Empty(
                strategy=self.name,
                node=name,
                message=f"{name} is emptied so that an autoscaler can remove it",
                ceiling=Ceiling(target, target, further),
                places=parts.consolidated.places.get(name, ()),
            )
            for name in parts.consolidated.emptied
        ]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        return parts.consolidated.notes


def with_choice(cluster: ClusterView, parts: Participation) -> Participation:
    """Return which nodes take part, once it is chosen which are emptied.

    Those take no pods and are not compared with others: an empty node is no reason to move pods.
    """
    if StrategyName.CONSOLIDATION not in cluster.rules.rules.enabled_anywhere():
        return parts
    found = _Decision(cluster, parts).made()
    return replace(
        parts,
        consolidated=found,
        sources_refused=_with(parts.sources_refused, found.kept),
        targets_refused=_with(parts.targets_refused, found.kept),
        spread_refused=_with(parts.spread_refused, found.kept),
        last_resorts=_with(parts.last_resorts, found.kept),
    )


def _with(refused: Refused, names: Collection[NodeName]) -> Refused:
    new = {n: (*refused.get(n, ()), _KEPT_EMPTY) for n in names if not _is_in(refused, n)}
    return {**refused, **new}


def _is_in(refused: Refused, name: NodeName) -> bool:
    return any(each.name == Reason.KEPT_EMPTY for each in refused.get(name, ()))


@dataclass(slots=True)
class _Decision:
    """Decides for one moment."""

    cluster: ClusterView
    parts: Participation
    released: dict[NodeName, str] = field(default_factory=dict)
    stuck: dict[NodeName, tuple[PodRecord, Refusal]] = field(default_factory=dict)

    def made(self) -> Consolidated:
        marked = marked_nodes(self.cluster)
        if self.cluster.load.resting:
            return Consolidated(marked, (), ("Consolidation rests: too little load is known.",))
        resting, nodes = self._marked(marked)
        stop = self._stop()
        if not stop and self.cluster.consolidates:
            nodes += self._others(marked)
        chosen = self._chosen(nodes)
        for node in nodes:
            if node.marked and node.name not in chosen:
                self.released[node.name] = "its pods have no room elsewhere any more"
        kept = frozenset(chosen) | resting
        if stop and kept:
            kept = self._without_needed(kept)
        emptied = tuple(n.name for n in nodes if n.name in kept and n.pods)
        if self.parts.pending:
            emptied = ()
        return Consolidated(kept, emptied, tuple(self._notes(kept, stop)), chosen)

    def _marked(self, marked: Collection[NodeName]) -> tuple[frozenset[NodeName], list[Surveyed]]:
        """Return the marked nodes that only wait, and those to be emptied further."""
        waiting, nodes = set(), []
        for name in sorted(marked):
            view = self.cluster.snapshot.nodes[name]
            against = refusal(self.cluster, self.parts, view)
            if against is not None and against.name in _WAITS:
                waiting.add(name)
                continue
            if against is not None and against.name not in _BEFORE:
                self.released[name] = against.message
                continue
            found = surveyed(view, self.cluster, self.parts, marked=True)
            if isinstance(found, Surveyed):
                nodes.append(found)
            else:
                self.released[name] = f"{found[0].key} stays: {found[1].message}"
        return frozenset(waiting), nodes

    def _others(self, marked: Set[NodeName]) -> list[Surveyed]:
        """Return further nodes that could be emptied, those with the fewest pods first."""
        views = self.cluster.snapshot.nodes
        taken = marked | {move.target for move in self._moves()}
        names = [n for n in views if n not in taken and is_on(self.cluster, n)]
        free = [n for n in names if refusal(self.cluster, self.parts, views[n]) is None]
        nodes: list[Surveyed] = []
        for name in sorted(free, key=lambda n: (len(views[n].pods), n)):
            found = surveyed(views[name], self.cluster, self.parts, marked=False)
            if isinstance(found, Surveyed):
                nodes.append(found)
            else:
                self.stuck[name] = found
            if len(nodes) >= CANDIDATES or sum(len(n.pods) for n in nodes) >= PODS:
                break
        return nodes

    def _chosen(self, nodes: Sequence[Surveyed]) -> dict[NodeName, Places]:
        """Return the nodes to empty, with where their pods find room."""
        if not nodes:
            return {}
        market = Market(self.cluster, self.parts, nodes)
        choice = choose(market.packing())
        found = {market.names[row]: market.places(places) for row, places in choice.items()}
        takers = {name for name, may in zip(market.names, market.takes, strict=True) if may}
        if takers <= found.keys():  # somewhere the next pod has to go
            new = sorted(n.name for n in nodes if n.name in found and not n.marked)
            for name in new[:1]:
                del found[name]
        return found

    def _stop(self) -> str:
        """Return why no further node is emptied."""
        if self.parts.pending:
            return f"pod {self.parts.pending} is waiting for a node"
        if any(move.strategy == StrategyName.CONSOLIDATION for move in self._moves()):
            return "its last moves have not ended yet"
        hot = sorted(self._hot())
        return f"{_listed(hot)} {'is' if len(hot) == 1 else 'are'} above the ceiling" if hot else ""

    def _moves(self) -> Iterator[MigrationRecord]:
        yield from (m for m in self.cluster.snapshot.migrations.values() if m.open)

    def _hot(self) -> Iterator[NodeName]:
        for name, load in self.cluster.load.nodes.items():
            closed = not load.known or _closed(self.parts.sources_refused.get(name, ()))
            if not closed and above(load, self.parts.ceilings[name]):
                yield name

    def _without_needed(self, kept: frozenset[NodeName]) -> frozenset[NodeName]:
        """Give a node back if the others have no room for what is above ceilings."""
        loads, ceilings = self.cluster.load.nodes, self.parts.ceilings
        hot = list(self._hot())
        free = [n for n in loads if n not in kept and n not in self.parts.targets_refused]
        for dimension in BALANCED:
            over = sum((percent(loads[n], dimension) - ceilings[n].of(dimension)) for n in hot)
            room = sum(
                max(0.0, ceilings[n].of(dimension) - percent_now(loads[n], dimension))
                for n in free
                if n not in hot
            )
            if hot and over > room:
                prices = filled_in(costs(self.cluster, kept))
                given = min(kept, key=lambda n: (prices[n], n))
                self.released[given] = "other nodes are above their ceilings and have no room"
                return kept - {given}
        return kept

    def _notes(self, kept: Collection[NodeName], stop: str) -> Iterator[str]:
        for name, why in sorted(self.released.items()):
            yield f"{name} is no longer kept empty: {why}."
        if stop:
            yield f"Consolidation empties no further node: {stop}."
        if kept:
            yield from self._about(kept)
        for (reason, count), example in _by_reason(self.stuck).items():
            pod, against = self.stuck[example]
            more = f" (and {count - 1} more nodes: {reason})" if count > 1 else ""
            yield f"{example} is not emptied: {pod.key} stays, because {against.message}{more}."
        unknown = [n for n, c in costs(self.cluster, self.cluster.snapshot.nodes).items() if not c]
        if unknown:
            yield (
                f"The cost of {_listed(sorted(unknown))} is not known: the lowest one counts "
                "(consolidation.cost)."
            )

    def _about(self, kept: Collection[NodeName]) -> Iterator[str]:
        verb = "is" if len(kept) == 1 else "are"
        yield (
            f"{_listed(sorted(kept))} {verb} emptied or kept empty for an autoscaler: "
            f"{len(kept)} of {len(self.cluster.snapshot.nodes)} nodes."
        )
        if StrategyName.LOAD_BALANCING in self.cluster.rules.rules.enabled_anywhere():
            yield (
                "LoadBalancing wants pods spread over all nodes and Consolidation on few: "
                f"{_listed(sorted(kept))} {verb} not compared with others and not filled."
            )


def _closed(refusals: Sequence[Refusal]) -> bool:
    return any(each.name != Reason.KEPT_EMPTY for each in refusals)


def _by_reason(
    stuck: Mapping[NodeName, tuple[PodRecord, Refusal]],
) -> dict[tuple[str, int], NodeName]:
    """Return one node for each reason, with the number of nodes; of many reasons the first."""
    counts = Counter(why.name for _, why in stuck.values())
    first = {why.name: name for name, (_, why) in sorted(stuck.items(), reverse=True)}
    ranked = sorted(counts, key=lambda reason: (-counts[reason], reason))[:NAMED]
    return {(reason, counts[reason]): first[reason] for reason in ranked}


def _listed(names: Sequence[NodeName]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
