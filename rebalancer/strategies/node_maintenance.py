# SPDX-License-Identifier: Apache-2.0
"""Empty the nodes that carry the maintenance label.

A person has decided that already, so nothing is observed several times, and neither missing
measurements nor the kind of node prevent it: a control-plane node with the label is emptied
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from common.api.contract import MAINTENANCE_LABEL, under_maintenance
from common.cluster.records import NodeName
from common.config import GENERAL, Mode, NodeRules
from common.config import Strategy as StrategyName
from rebalancer.goals import Empty, Goal
from rebalancer.strategies.base import ClusterView, Participation

NAMED: Final = 5
"""Nodes that a note names at most."""


class NodeMaintenance:
    """States that a node with the maintenance label has to be emptied."""

    name: ClassVar[StrategyName] = StrategyName.NODE_MAINTENANCE
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        return [
            Empty(strategy=self.name, node=name, message=f"{name} is under maintenance")
            for name in _labeled(cluster)
        ]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Name nodes whose label has no effect, and those that take pods by requests."""
        return [
            *_odd_labels(cluster),
            *_off(cluster),
            *_observed(cluster),
            *_by_requests(cluster, parts),
        ]


def notes_when_off(cluster: ClusterView) -> Sequence[str]:
    """Name the nodes whose label has no effect because the strategy is not enabled."""
    why = "NodeMaintenance is not among enabledStrategies"
    return _without_effect(_labeled(cluster), why)


def _off(cluster: ClusterView) -> Iterator[str]:
    """Name nodes whose pool does not have the strategy, while others do."""
    for rules, names in _by_rule(cluster).items():
        if StrategyName.NODE_MAINTENANCE not in rules.enabled_strategies:
            rule = f" of {rules.words}" if rules.sets("enabled_strategies") else ""
            why = f"NodeMaintenance is not among enabledStrategies{rule}"
            yield from _without_effect(names, why)


def _observed(cluster: ClusterView) -> Iterator[str]:
    for rules, names in _by_rule(cluster).items():
        found = rules.mode_of(StrategyName.NODE_MAINTENANCE)
        enabled = StrategyName.NODE_MAINTENANCE in rules.enabled_strategies
        if enabled and found.mode is Mode.OBSERVE:
            rule = f" by {found.by}" if found.by != GENERAL else ""
            yield from _without_effect(names, f"the mode of NodeMaintenance is observe{rule}")


def _by_rule(cluster: ClusterView) -> dict[NodeRules, list[NodeName]]:
    """Return the labeled nodes by what holds for them."""
    found: dict[NodeRules, list[NodeName]] = {}
    for name in _labeled(cluster):
        found.setdefault(cluster.rules.of_node(name), []).append(name)
    return found


def _without_effect(labeled: Sequence[NodeName], why: str) -> Sequence[str]:
    if not labeled:
        return ()
    verb = "has" if len(labeled) == 1 else "have"
    return [f"{_listed(labeled)} {verb} the label {MAINTENANCE_LABEL} without effect: {why}."]


def _odd_labels(cluster: ClusterView) -> Sequence[str]:
    """Name the nodes whose label has a value that is probably a mistake."""
    labels = {name: view.node.labels for name, view in sorted(cluster.snapshot.nodes.items())}
    return [
        f"{name} is not emptied: its label {MAINTENANCE_LABEL} is "
        f"{found[MAINTENANCE_LABEL] or 'empty'}, and only true counts."
        for name, found in labels.items()
        if found.get(MAINTENANCE_LABEL, "false") not in ("true", "false")
    ]


def _by_requests(cluster: ClusterView, parts: Participation) -> Sequence[str]:
    """Say where pods of drained nodes go by what pods request, because load is not known."""
    loads, refused = cluster.load.nodes, parts.refuges_refused
    found = sorted(n for n in loads if not loads[n].known and n not in refused)
    if not found or not _labeled(cluster):
        return ()
    it = "it takes" if len(found) == 1 else "they take"
    what = "pods from nodes under maintenance by requests"
    return [f"The load of {_listed(found)} is not known: {it} {what}."]


def _labeled(cluster: ClusterView) -> list[NodeName]:
    views = cluster.snapshot.nodes
    return sorted(name for name in views if under_maintenance(views[name].node.labels))


def _listed(names: Sequence[NodeName]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more nodes" if more > 0 else "")
