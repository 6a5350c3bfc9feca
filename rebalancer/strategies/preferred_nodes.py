# SPDX-License-Identifier: Apache-2.0
"""Move pods back to nodes that they prefer, where these have room again.

The scheduler weighs preferences once, when it places a pod: one that came while its preferred
nodes were full stays where it is. A pod moves only to a node that suits it strictly better, and
with this strategy no other one for load moves it to a node that suits it less, so that there is
no way back and forth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final

from common.api.objects import Effect
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.shapes import PodShape
from common.config import Strategy as StrategyName
from common.fit import replacement
from rebalancer.goals import Goal, Relocate
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.homes import Homes
from rebalancer.strategies.pools import lasting, not_tolerated
from rebalancer.strategies.preferences import Preference, Preferences

MOST: Final = 1000
"""Pods that are considered in one cycle, those with the most to gain first."""

TAINTED: Final = 100_000
"""Points for a soft taint: more than terms can add up to, which weigh 100 each at most."""

_SOFT: Final = frozenset({Effect.PREFER_NO_SCHEDULE})


class PreferredNodes:
    """States that pods have to leave for nodes that they prefer."""

    name: ClassVar[StrategyName] = StrategyName.PREFERRED_NODES
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        return list(_Search(cluster, parts).goals())

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        return ()


class _Search:
    """Which pods prefer other nodes at one moment."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._snapshot = cluster.snapshot
        self._homes = Homes(cluster, parts)
        self._preferences = Preferences(cluster.world)
        rows = cluster.world.index.facts
        open_to_moves = (name for name in self._snapshot.nodes if name not in parts.targets_refused)
        self._targets = rows.named(frozenset(open_to_moves))
        self._best: dict[int, Preference] = {}

    def goals(self) -> Iterator[Relocate]:
        """Yield a goal for each pod that would be better off elsewhere, the largest gain first."""
        pods = (self._snapshot.pods[uid] for _, uid in sorted(self._gains()))
        movable = islice((pod for pod in pods if self._homes.movable(pod)), MOST)
        better = [(pod, found) for pod in movable if (found := self._better(pod))]
        most = max((points for _, found in better for points in found), default=1)
        for pod, found in better:
            best_first = sorted(found, reverse=True)
            yield self._goal(
                pod,
                tuple(frozenset(found[points]) for points in best_first),
                tuple(points / most for points in best_first),
            )

    def _gains(self) -> Iterator[tuple[Preference, PodUid]]:
        """Yield the pods that some target would suit better, and by how much, negated."""
        for name, view in self._snapshot.nodes.items():
            tainted = any(taint.effect == Effect.PREFER_NO_SCHEDULE for taint in view.node.taints)
            for uid, pod in view.pods.items():
                if tainted or pod.shape.preferred_nodes:
                    here, best = self._preferences.of(pod.shape, name), self._best_for(pod.shape)
                    if best > here:
                        less = here.untainted - best.untainted, here.weight - best.weight
                        yield Preference(*less), uid

    def _best_for(self, shape: PodShape) -> Preference:
        if id(shape) not in self._best:
            self._best[id(shape)] = self._preferences.best(shape, self._targets)
        return self._best[id(shape)]

    def _better(self, pod: PodRecord) -> dict[int, set[NodeName]]:
        """Return the nodes that take a pod and suit it better than its own, by how much.

        What its template prefers counts, because that is what its replacement will prefer.
        """
        suits, shape = self._preferences.of, replacement(pod, self._snapshot).shape
        here = suits(shape, pod.node)
        found: dict[int, set[NodeName]] = defaultdict(set)
        for name in self._homes.of(pod):
            there = suits(shape, name)
            # No move for load goes to a node that is tainted against the pod.
            if there > here and not there.untainted:
                points = TAINTED * (there.untainted - here.untainted)
                found[points + there.weight - here.weight].add(name)
        return found

    def _goal(
        self, pod: PodRecord, tiers: tuple[frozenset[NodeName], ...], gains: tuple[float, ...]
    ) -> Relocate:
        here = self._preferences.of(pod.shape, pod.node)
        there = self._preferences.of(pod.shape, min(tiers[0]))
        why = f"its node affinity prefers others with {there.weight} to {here.weight}"
        if here.untainted:
            taints = lasting(self._snapshot.nodes[pod.node].node.taints)
            why = not_tolerated(taints, pod.shape.tolerations, _SOFT)
        return Relocate(
            strategy=StrategyName.PREFERRED_NODES,
            node=pod.node,
            pod=pod.uid,
            name=pod.key,
            tiers=tiers,
            gains=gains,
            message=f"{pod.key} prefers other nodes to {pod.node}: {why}",
        )
