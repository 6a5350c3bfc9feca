# SPDX-License-Identifier: Apache-2.0
"""Required pod affinity and anti-affinity, in both directions (plugins/interpodaffinity).

Pods that end still count here. Two habits of the real one are kept: when no pod that
runs, and nothing in this pod, has a rule about it, nominated pods are not asked either;
and a namespace selector of the pod itself that an unlabelled namespace fulfils (`!team`)
stands for every namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from common.cluster.records import PodRecord
from common.cluster.shapes import PodTerm
from common.fit.index.arrays import Flags, Ints
from common.fit.index.facts import NodeFacts
from common.fit.index.pod_groups import Group, PodGroups, tally
from common.fit.index.terms import concerns
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "InterPodAffinity"
_LONELY: Final = (Rejection(_PLUGIN, "PodAffinity", "node(s) didn't match pod affinity rules"),)
_REPELLED: Final = (
    Rejection(
        _PLUGIN, "PodAntiAffinity", "node(s) didn't match pod anti-affinity rules", resolvable=True
    ),
)
_UNWANTED: Final = (
    Rejection(
        _PLUGIN,
        "ExistingPodAntiAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        resolvable=True,
    ),
)

Domains = Mapping[str, Flags]
"""Topology key → by number of the value, whether something holds in that domain."""


@dataclass(frozen=True, slots=True)
class Relations:
    """What ties a pod to the pods that run."""

    unwanted: Domains
    """Where a pod runs whose anti-affinity is about this one."""
    repelled: Domains
    """Where a pod runs that this one's anti-affinity is about."""
    company: Domains
    """Where a pod runs that all terms of this one's affinity are about."""
    affinity: tuple[Reach, ...]
    anti_affinity: tuple[Reach, ...]
    first_of_its_kind: bool
    """No pod matches its affinity yet, but the pod itself would."""

    @property
    def indifferent(self) -> bool:
        return not (self.unwanted or self.affinity or self.anti_affinity)


@dataclass(frozen=True, slots=True)
class Reach:
    """A term of the pod itself, with the namespaces that it reaches."""

    term: PodTerm
    namespaces: frozenset[str] | None
    """`None` stands for all of them."""

    def about(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        return self.term.selector.matches(labels)

    def groups(self, pod_groups: PodGroups) -> Iterable[Group]:
        reached = list(pod_groups.namespaces) if self.namespaces is None else self.namespaces
        return pod_groups.find(self.term.selector, reached)


def relations(ask: Question) -> Relations:
    """Work out what ties the pod to the pods that run."""
    pod, index = ask.pod, ask.index
    affinity = tuple(reach(ask, term) for term in pod.shape.affinity)
    anti_affinity = tuple(reach(ask, term) for term in pod.shape.anti_affinity)
    company = _company(affinity, index.pod_groups, index.facts)
    itself = all(r.about(pod.namespace, pod.labels) for r in affinity)
    return Relations(
        unwanted=_unwanted(ask),
        repelled=_domains(
            index.facts,
            (
                (r.term.topology_key, tally(r.groups(index.pod_groups))[0])
                for r in anti_affinity
                if index.facts.knows(r.term.topology_key)
            ),
        ),
        company=company,
        affinity=affinity,
        anti_affinity=anti_affinity,
        first_of_its_kind=not company and itself,
    )


def reach(ask: Question, term: PodTerm) -> Reach:
    """Return a term with the namespaces that it reaches now."""
    selector = term.namespace_selector
    if selector.matches({}):
        return Reach(term, None)
    if not selector.requirements or selector.never:
        return Reach(term, term.namespaces)
    known = ask.world.snapshot.namespaces.values()
    return Reach(term, term.namespaces | {n.name for n in known if selector.matches(n.labels)})


def reject(ask: Question, info: NodeInfo) -> Rejections:
    ties = ask.prefilter(relations)
    if ties.indifferent:
        return NONE
    if not _has_company(ask, ties, info):
        return _LONELY
    if _is_repelled(ask, ties, info):
        return _REPELLED
    return _UNWANTED if _is_unwanted(ask, ties, info) else NONE


def allow(ask: Question) -> Flags | None:
    ties = ask.prefilter(relations)
    if ties.indifferent:
        return None
    facts = ask.index.facts
    allowed = ~_within(facts, ties.unwanted) & ~_within(facts, ties.repelled)
    for each in ties.affinity:
        column = facts.column(each.term.topology_key)
        joined = ties.company.get(column.key)
        if ties.first_of_its_kind:
            allowed &= column.present()
        else:
            allowed &= column.pick(joined) if joined is not None else False
    return allowed


def _has_company(ask: Question, ties: Relations, info: NodeInfo) -> bool:
    keys = [r.term.topology_key for r in ties.affinity]
    if not all(key in info.node.labels for key in keys):
        return False
    facts = ask.index.facts
    if all(_holds(facts, ties.company, key, info.row) for key in keys):
        return True
    # A pod that is nominated to this node is in all of its domains.
    if any(_all_about(ties.affinity, nominee) for nominee in info.nominated):
        return True
    return ties.first_of_its_kind


def _is_repelled(ask: Question, ties: Relations, info: NodeInfo) -> bool:
    facts = ask.index.facts
    if any(_holds(facts, ties.repelled, key, info.row) for key in ties.repelled):
        return True
    return any(
        r.term.topology_key in info.node.labels and r.about(nominee.namespace, nominee.labels)
        for r in ties.anti_affinity
        for nominee in info.nominated
    )


def _is_unwanted(ask: Question, ties: Relations, info: NodeInfo) -> bool:
    facts = ask.index.facts
    if any(_holds(facts, ties.unwanted, key, info.row) for key in ties.unwanted):
        return True
    pod, of_namespace = ask.pod, ask.namespace_labels()
    return any(
        term.topology_key in info.node.labels
        and concerns(term, pod.namespace, pod.labels, of_namespace)
        for nominee in info.nominated
        for term in nominee.shape.anti_affinity
    )


def _all_about(affinity: tuple[Reach, ...], pod: PodRecord) -> bool:
    return all(r.about(pod.namespace, pod.labels) for r in affinity)


def _holds(facts: NodeFacts, domains: Domains, key: str, row: int) -> bool:
    return key in domains and bool(domains[key][facts.column(key).ids[row]])


def _within(facts: NodeFacts, domains: Domains) -> Flags:
    found = np.zeros(facts.capacity, dtype=np.bool_)
    for key, values in domains.items():
        found |= facts.column(key).pick(values)
    return found


def _unwanted(ask: Question) -> Domains:
    pod, index = ask.pod, ask.index
    about = index.anti_affinity_terms.about(pod.namespace, pod.labels, ask.namespace_labels())
    where = (
        (term.topology_key, np.array(list(rows), dtype=np.int64))
        for (term, _), rows in about
        if index.facts.knows(term.topology_key)
    )
    return _domains(index.facts, where)


def _company(affinity: tuple[Reach, ...], pod_groups: PodGroups, facts: NodeFacts) -> Domains:
    if not affinity:
        return {}
    rows, _ = tally(
        group
        for group in affinity[0].groups(pod_groups)
        if all(r.about(group.namespace, group.labels) for r in affinity[1:])
    )
    return _domains(facts, ((r.term.topology_key, rows) for r in affinity))


def _domains(facts: NodeFacts, where: Iterable[tuple[str, Ints]]) -> Domains:
    """Return the domains of these rows; keys of which none has a value are left out."""
    found: dict[str, Flags] = {}
    for key, rows in where:
        values = facts.column(key).holding(rows)
        if values.any():
            found[key] = found[key] | values if key in found else values
    return found


POD_AFFINITY: Final = Predicate("pod-affinity", reject, allow)
