# SPDX-License-Identifier: Apache-2.0
"""Move the pods that the scheduler would not place where they are.

Labels and taints of nodes and labels of pods change while pods run, and Kubernetes evicts none for
it. A pod is moved only for a rule that its replacement has too: otherwise that one could come
back to the same node.

Taints that Kubernetes or an autoscaler sets, such as that of a cordon, say something about the
node for a while, and are not a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from common.api.objects import Taint
from common.cluster.records import NodeRecord, PodRecord, PodUid
from common.cluster.shapes import PodShape
from common.cluster.tolerations import REPELLING
from common.config import Strategy as StrategyName
from common.fit import replacement
from common.fit.predicates.node_affinity import selects
from rebalancer.goals import Goal, Relocate
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.conflicts import Conflicts, Cost, conflicts, fewest
from rebalancer.strategies.homes import Homes, settled
from rebalancer.strategies.pools import lasting, not_tolerated

CHOICES: Final = 8
"""How often the pods that leave are chosen again, without those that find no place."""
NAMED: Final = 5
"""Pods that a note names at most."""


class Violations:
    """States that pods have to leave nodes that no longer fit them."""

    name: ClassVar[StrategyName] = StrategyName.VIOLATIONS
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        search = _Search(cluster, parts)
        found = {**search.unfit(), **search.apart()}
        pods = (cluster.snapshot.pods[uid] for uid in sorted(found))
        return [
            Relocate(
                strategy=self.name,
                node=pod.node,
                pod=pod.uid,
                name=pod.key,
                message=f"{pod.key} violates its rules on {pod.node}: {found[pod.uid]}",
            )
            for pod in sorted(pods, key=lambda pod: (pod.node, pod.uid))
            if search.homes.movable(pod)
        ]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Name the pods that violate their rules and may not be moved."""
        search = _Search(cluster, parts)
        pods = (cluster.snapshot.pods[uid] for uid in search.unfit())
        stay = sorted(pod.key for pod in pods if not search.homes.movable(pod))
        if not stay:
            return ()
        more = f" and {len(stay) - NAMED} more" if len(stay) > NAMED else ""
        verb = "violates" if len(stay) == 1 else "violate"
        names = f"{', '.join(stay[:NAMED])}{more}"
        return [f"{names} {verb} rules of where to run, but may not be moved."]


class _Search:
    """What is violated at one moment, in words, by pod."""

    def __init__(self, cluster: ClusterView, parts: Participation) -> None:
        self._cluster = cluster
        self._snapshot = cluster.snapshot
        self.homes = Homes(cluster, parts)

    def unfit(self) -> dict[PodUid, str]:
        """Return the pods whose node their selector, affinity or tolerations rule out."""
        found = {}
        for view in self._snapshot.nodes.values():
            taints = tuple(lasting(view.node.taints))
            known: dict[int, str] = {}
            for uid, pod in view.pods.items():
                words = known.get(id(pod.shape))
                if words is None:
                    words = known[id(pod.shape)] = _ruled_out(pod.shape, view.node, taints)
                if words and settled(pod) and self._for_the_next_too(pod, view.node, taints):
                    found[uid] = words
        return found

    def _for_the_next_too(
        self, pod: PodRecord, node: NodeRecord, taints: tuple[Taint, ...]
    ) -> bool:
        return bool(_ruled_out(replacement(pod, self._snapshot).shape, node, taints))

    def apart(self) -> dict[PodUid, str]:
        """Return the fewest pods that have to leave so that anti-affinity holds."""
        found, pods = conflicts(self._cluster.world), self._snapshot.pods
        leaving = {uid for uid in self.unfit() if self.homes.of(pods[uid])}
        staying = {uid: others - leaving for uid, others in found.items() if uid not in leaving}
        near = {uid: others for uid, others in staying.items() if others}

        def cost(uid: PodUid) -> tuple[float, str]:
            return float(pods[uid].shape.priority), uid

        chosen = self._with_places(near, cost)
        # Where none of them has somewhere to go now, the plan may make room for one.
        left = {uid: near[uid] - chosen for uid in near.keys() - chosen}
        crowded = {uid: others for uid, others in left.items() if others}
        chosen |= fewest(crowded, lambda uid: self.homes.movable(pods[uid]), cost)
        return {uid: _too_near(pods[min(near[uid])]) for uid in chosen}

    def _with_places(self, near: Conflicts, cost: Cost) -> set[PodUid]:
        """Return the fewest pods that have somewhere to go, also one after the other.

        Of several choices the one after which the fewest pods are left that have to be apart.
        """
        pods, stuck = self._snapshot.pods, set[PodUid]()
        found: list[tuple[int, int, set[PodUid]]] = []
        for _ in range(CHOICES):
            free = {uid for uid in near if self.homes.of(pods[uid])} - stuck
            chosen = fewest(near, free.__contains__, cost)
            seated = self.homes.in_turn(pods[uid] for uid in sorted(chosen, key=cost))
            left = sum(len(near[uid] - seated) for uid in near.keys() - seated)
            found.append((left, len(chosen), chosen))
            if seated == chosen:
                break
            stuck |= chosen - seated
        return min(found, key=lambda each: each[:2])[2]


def _too_near(other: PodRecord) -> str:
    return f"required anti-affinity keeps it apart from {other.key} on {other.node}"


def _ruled_out(shape: PodShape, node: NodeRecord, taints: tuple[Taint, ...]) -> str:
    """Return which rule of a pod a node breaks; empty if none."""
    if not selects(shape, node):
        return "its node selector or required node affinity does not select the node"
    return not_tolerated(taints, shape.tolerations, REPELLING) if taints else ""
