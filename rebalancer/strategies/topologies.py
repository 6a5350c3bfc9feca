# SPDX-License-Identifier: Apache-2.0
"""How pods are spread over the domains of a topology spread constraint, as kube-scheduler counts.

Of a pod that states no constraint, those of kube-scheduler hold (systemDefaultConstraints in
pkg/scheduler/framework/plugins/podtopologyspread/plugin.go), for the pods that its ReplicaSet,
StatefulSet or ReplicationController selects (DefaultSelector in plugins/helper/spread.go; what
Services select of them is not asked, since their pods have the same labels).

A constraint that does not count the pod itself asks nothing of where that pod is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.cluster.records import PodRecord
from common.cluster.selectors import Selector
from common.cluster.shapes import Spread
from common.fit import Candidate, World
from common.fit.predicates.topology_spread import constraint_selector, counted_rows, spreading
from rebalancer.strategies.evenness import Ints, distance, width
from rebalancer.strategies.shares import HOST, ZONE

DEFAULTS: Final = ((HOST, 3), (ZONE, 5))
"""Topology keys and skews of kube-scheduler's own constraints."""
_SELECTING: Final = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """The domains of one constraint, and the pods that it counts."""

    constraint: Spread
    namespace: str
    selector: Selector
    held: Ints
    """By domain."""
    ids: Ints
    """The domain of each row; negative where pods are not counted."""
    names: tuple[str, ...]
    """The values of the label, by domain."""
    at: tuple[int, ...]
    """The rows with pods that it counts, in a domain or not."""

    @property
    def skew(self) -> int:
        return self.constraint.max_skew

    @property
    def short(self) -> bool:
        """Whether there are fewer domains than wanted."""
        return self.constraint.hard and self.held.size < self.constraint.min_domains

    def distance(self, held: Ints) -> int:
        """Return how many pods have to move at least until they are spread well."""
        return distance(held, self.skew, short=self.short)

    def width(self, held: Ints) -> int:
        """Return by how much the fullest domain is above the emptiest."""
        return width(held, short=self.short)


def topology_of(world: World, candidate: Candidate, constraint: Spread, rows: Ints) -> Topology:
    """Return how pods are spread for a constraint of the candidate; rows are the index's."""
    question = world.ask(candidate)
    found = spreading(question, constraint)
    pods, _ = counted_rows(question, found.selector)
    number = np.append(np.where(found.domains, np.cumsum(found.domains) - 1, -1), -1)
    values = sorted(found.column.values.items(), key=lambda item: item[1])
    return Topology(
        constraint=constraint,
        namespace=candidate.namespace,
        selector=found.selector,
        held=found.counts[found.domains],
        ids=np.where(found.eligible, number[found.column.ids], -1)[rows],
        names=tuple(value for value, at in values if found.domains[at]),
        at=tuple(np.flatnonzero(np.isin(rows, pods)).tolist()),
    )


def constraints_of(pod: PodRecord, candidate: Candidate, world: World) -> tuple[Spread, ...]:
    """Return the constraints that ask where the replacement of a pod is."""
    stated = candidate.shape.spread or _defaults(pod, world)
    return tuple(each for each in stated if _counts_itself(each, candidate))


def _counts_itself(constraint: Spread, candidate: Candidate) -> bool:
    selector = constraint_selector(constraint, candidate.labels)
    return bool(selector.requirements) and selector.matches(candidate.labels)


def _defaults(pod: PodRecord, world: World) -> tuple[Spread, ...]:
    controller = world.snapshot.controller(pod)
    if controller is None or controller.kind not in _SELECTING:
        return ()
    return tuple(_default(key, skew, controller.selector) for key, skew in DEFAULTS)


def _default(key: str, skew: int, selector: Selector) -> Spread:
    return Spread(
        max_skew=skew,
        topology_key=key,
        hard=False,
        selector=selector,
        min_domains=1,
        honor_affinity=True,
        honor_taints=False,
        match_label_keys=(),
    )
