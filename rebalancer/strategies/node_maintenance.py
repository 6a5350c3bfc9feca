"""Empty the nodes that somebody has put under maintenance.

A person has decided that already, so nothing is observed several times, and neither missing
measurements nor the kind of node stand in the way: whoever labels a control-plane node
wants it emptied too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from common.config import Strategy as StrategyName
from common.contract import MAINTENANCE_LABEL, under_maintenance
from rebalancer.goals import Empty, Goal
from rebalancer.strategies.base import Look, Participation


class NodeMaintenance:
    """States that a node with the maintenance label has to be emptied."""

    name: ClassVar[StrategyName] = StrategyName.NODE_MAINTENANCE
    for_load: ClassVar[bool] = False

    def goals(self, look: Look, parts: Participation) -> Sequence[Goal]:
        views = look.snapshot.nodes
        labelled = sorted(name for name in views if under_maintenance(views[name].node.labels))
        return [
            Empty(strategy=self.name, node=name, words=f"{name} is under maintenance")
            for name in labelled
        ]

    def notes(self, look: Look, parts: Participation) -> Sequence[str]:
        """Name the nodes whose label does not say what it was probably meant to say."""
        labels = {name: view.node.labels for name, view in sorted(look.snapshot.nodes.items())}
        return [
            f"{name} is not emptied: its label {MAINTENANCE_LABEL} is "
            f"{found[MAINTENANCE_LABEL] or 'empty'}, and only true counts."
            for name, found in labels.items()
            if found.get(MAINTENANCE_LABEL, "false") not in ("true", "false")
        ]
