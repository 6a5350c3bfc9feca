# SPDX-License-Identifier: Apache-2.0
"""How well a node suits what a pod prefers: its preferred node affinity, and soft taints.

Taints with `PreferNoSchedule` that a pod does not tolerate come first, then the weight of the
terms that select the node. kube-scheduler's default weights say the same for a single taint:
3 for TaintToleration, 2 for NodeAffinity (pkg/scheduler/apis/config/v1/default_plugins.go).
"""

from __future__ import annotations

from typing import NamedTuple

from common.api.objects import Effect, Toleration
from common.cluster.records import NodeRecord
from common.cluster.shapes import PodShape
from common.cluster.tolerations import tolerated


class Preference(NamedTuple):
    """How well a node suits a pod; larger is better."""

    untainted: int
    """Minus the soft taints that it does not tolerate."""
    weight: int
    """Of the preferred terms that select the node."""


def preference(shape: PodShape, node: NodeRecord) -> Preference:
    """Return how well a node suits what a pod prefers."""
    terms = (each for each in shape.preferred_nodes if each.term.matches(node.labels, node.name))
    return Preference(-_unwelcome(node, shape.tolerations), sum(each.weight for each in terms))


def _unwelcome(node: NodeRecord, tolerations: tuple[Toleration, ...]) -> int:
    # An empty effect of a toleration matches every effect, as for the scheduler.
    soft = (taint for taint in node.taints if taint.effect == Effect.PREFER_NO_SCHEDULE)
    return sum(not tolerated(taint, tolerations) for taint in soft)
