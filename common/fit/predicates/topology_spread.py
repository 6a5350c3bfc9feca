# SPDX-License-Identifier: Apache-2.0
"""Hard topology spread constraints (plugins/podtopologyspread).

Pods that end do not count. A domain exists if a node with all of the constraints' labels,
and eligible by the constraint's policies, is in it; the emptiest of them sets the measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from common.cluster.selectors import Operator, Requirement, Selector
from common.cluster.shapes import PodShape, Spread
from common.fit.index.arrays import Flags, Ints
from common.fit.index.columns import Column
from common.fit.index.facts import NodeFacts
from common.fit.index.pod_groups import tally
from common.fit.predicates.base import Predicate
from common.fit.predicates.node_affinity import selected
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "PodTopologySpread"
_MESSAGE: Final = "node(s) didn't match pod topology spread constraints"
_UNEVEN: Final = (Rejection(_PLUGIN, "TopologySpread", _MESSAGE, resolvable=True),)
_UNLABELLED: Final = (
    Rejection(_PLUGIN, "TopologyLabelMissing", f"{_MESSAGE} (missing required label)"),
)


@dataclass(frozen=True, slots=True)
class Spreading:
    """A constraint, and how the pods that it counts are spread now."""

    constraint: Spread
    selector: Selector
    column: Column
    eligible: Flags
    domains: Flags
    """By number of the value: whether there is such a domain."""
    counts: Ints
    """By number of the value: how many pods."""
    itself: int
    """One if the constraint would count the pod too."""
    least: int
    """What the emptiest domain has."""

    def skew(self, value: int, more: int) -> int:
        """Return the skew with the pod, and with `more` others, in a domain."""
        least = self.least
        if more:
            counts = self.counts.copy()
            counts[value] += more
            least = _least(self.constraint, counts[self.domains])
        return int(self.counts[value]) + more + self.itself - least


def constraint_selector(constraint: Spread, labels: Mapping[str, str]) -> Selector:
    """Return which pods a constraint counts: its selector and the pod's values of some labels."""
    keys = [
        Requirement(key, Operator.IN, frozenset({labels[key]}))
        for key in constraint.match_label_keys
        if key in labels
    ]
    return constraint.selector.plus(*keys) if keys else constraint.selector


def eligible_nodes(facts: NodeFacts, shape: PodShape, constraint: Spread) -> Flags:
    """Return the rows that a constraint's policies let count."""
    found = facts.alive
    if constraint.honor_affinity:
        chosen = selected(shape, facts)
        found = found if chosen is None else found & chosen
    return found & facts.tolerable(shape.tolerations) if constraint.honor_taints else found


def spreadings(ask: Question) -> tuple[Spreading, ...]:
    """Work out how the pods that the pod's hard constraints count are spread."""
    hard = [constraint for constraint in ask.pod.shape.spread if constraint.hard]
    labelled = _labelled(ask.index.facts, hard)
    return tuple(_spreading(ask, constraint, labelled) for constraint in hard)


def spreading(ask: Question, constraint: Spread) -> Spreading:
    """Work out the same for one constraint, hard or soft, of the pod or by default.

    Nodes count that have the keys of all constraints of the pod that are as hard. Soft ones know
    only domains with a node that could take the pod (initPreScoreState in scoring.go).
    """
    shape, facts = ask.pod.shape, ask.seek().facts
    peers = [each for each in shape.spread if each.hard == constraint.hard]
    labelled = _labelled(facts, peers if constraint in peers else [constraint])
    if constraint.hard:
        return _spreading(ask, constraint, labelled)
    chosen = selected(shape, facts)
    usable = labelled & facts.tolerable(shape.tolerations) & facts.open_to(shape.tolerations)
    return _spreading(ask, constraint, labelled, usable if chosen is None else usable & chosen)


def _labelled(facts: NodeFacts, constraints: Iterable[Spread]) -> Flags:
    found = facts.alive
    for constraint in constraints:
        found = found & facts.column(constraint.topology_key).present()
    return found


def counted_rows(ask: Question, selector: Selector) -> tuple[Ints, Ints]:
    """Return rows and numbers of the pods of the pod's namespace that a selector counts."""
    if not selector.requirements:
        # An empty selector selects all and counts none (countPodsMatchSelector).
        return tally(())
    groups = ask.index.pod_groups.find(selector, (ask.pod.namespace,))
    return tally(group for group in groups if not group.terminating)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    found = ask.prefilter(spreadings)
    everywhere = all(s.constraint.topology_key in info.node.labels for s in found)
    for spreading in found:
        value = int(spreading.column.ids[info.row])
        if value < 0:
            return _UNLABELLED
        counts_here = everywhere and spreading.eligible[info.row]
        more = _counted(ask, spreading, info) if info.nominated and counts_here else 0
        if spreading.skew(value, more) > spreading.constraint.max_skew:
            return _UNEVEN
    return NONE


def allow(ask: Question) -> Flags | None:
    allowed: Flags | None = None
    for spreading in ask.prefilter(spreadings):
        room = spreading.constraint.max_skew + spreading.least - spreading.itself
        # The absent, which as an index are the last, have no domain and are refused.
        by_value = np.append(spreading.counts <= room, np.False_)
        fitting = spreading.column.pick(by_value)
        allowed = fitting if allowed is None else allowed & fitting
    return allowed


def _spreading(
    ask: Question, constraint: Spread, labelled: Flags, usable: Flags | None = None
) -> Spreading:
    facts = ask.index.facts
    column = facts.column(constraint.topology_key)
    selector = constraint_selector(constraint, ask.pod.labels)
    eligible = labelled & eligible_nodes(facts, ask.pod.shape, constraint)
    domains = np.zeros(column.size, dtype=np.bool_)
    domains[column.ids[eligible if usable is None else eligible & usable]] = True
    rows, numbers = counted_rows(ask, selector)
    counting = eligible[rows]
    counts = np.bincount(
        column.ids[rows[counting]], weights=numbers[counting], minlength=column.size
    ).astype(np.int64)
    itself = int(selector.matches(ask.pod.labels))
    least = _least(constraint, counts[domains])
    return Spreading(constraint, selector, column, eligible, domains, counts, itself, least)


def _least(constraint: Spread, held: Ints) -> int:
    """Return what the emptiest domain has; with too few domains, a missing one is empty."""
    return 0 if held.size < constraint.min_domains else int(held.min())


def _counted(ask: Question, spreading: Spreading, info: NodeInfo) -> int:
    """Return how many of the pods nominated to a node the constraint counts."""
    return sum(
        nominee.namespace == ask.pod.namespace and spreading.selector.matches(nominee.labels)
        for nominee in info.nominated
    )


TOPOLOGY_SPREAD: Final = Predicate("topology-spread", reject, allow)
