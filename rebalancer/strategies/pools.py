# SPDX-License-Identifier: Apache-2.0
"""Pools: which nodes are compared with each other, and what their ends are.

Nodes with the same value of the pool label are a pool. With a label configured, the nodes
that lack it are a pool of their own, named "". The low end of a pool counts only where it
is filled; elsewhere a node is compared with the mean of the others, so that a node which an
autoscaler wants to empty is no reason to fill it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from math import fsum, nan
from typing import Final, NamedTuple

from common.api.contract import DO_NOT_DISRUPT, SCALE_DOWN_DISABLED
from common.api.objects import Taint, Toleration
from common.cache.snapshot import NodeView
from common.cluster.records import NodeName, NodeRecord
from common.cluster.tolerations import untolerated
from common.config import FillLowNodes
from common.load import FurtherLoad, NodeLoad
from rebalancer.goals import BALANCED, Dimension

Levels = Mapping[NodeName, float]
"""Percent of allocatable that nodes use, in one resource."""

REMOVAL_TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "karpenter.sh/disrupted",
    }
)
"""An autoscaler is removing the node, or about to (utils/taints of cluster-autoscaler, and
pkg/apis/v1 of karpenter)."""

_FOR_A_WHILE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")

AUTOSCALER_LABELS: Final = frozenset(
    {
        "karpenter.sh/nodepool",
        "karpenter.sh/provisioner-name",
        "eks.amazonaws.com/nodegroup",
        "alpha.eksctl.io/nodegroup-name",
        "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool",
    }
)
"""Karpenter's own, and those of node groups that a cloud may scale."""


class Outliers(NamedTuple):
    """The nodes that are too far from the others."""

    high: tuple[NodeName, ...]
    low: tuple[NodeName, ...]


def pool_of(node: NodeRecord, label: str, rule: str) -> str:
    """Return the pool within which a node is compared: that of the rules, split by the label.

    Neither a name of a pool nor a label value has a slash, so no two pools share a name.
    """
    if not label:
        return rule
    value = node.labels.get(label, "")
    return f"{rule}/{value}" if rule else value


def pools_of(
    views: Iterable[NodeView], label: str, rule_of: Callable[[NodeName], str] = lambda _: ""
) -> dict[str, tuple[NodeName, ...]]:
    """Return all nodes by pool, both sorted; without rules and a label there is one pool."""
    found: dict[str, list[NodeName]] = {}
    for view in views:
        pool = pool_of(view.node, label, rule_of(view.node.name))
        found.setdefault(pool, []).append(view.node.name)
    return {pool: tuple(sorted(found[pool])) for pool in sorted(found)}


def removal_taint(node: NodeRecord) -> str:
    """Return the taint with which an autoscaler removes this node; else nothing."""
    if not node.taints:
        return ""
    return min((t.key for t in node.taints if t.key in REMOVAL_TAINTS), default="")


def lasting(taints: Iterable[Taint]) -> Iterator[Taint]:
    """Yield the taints that are not set by Kubernetes or an autoscaler for a while."""
    for taint in taints:
        if not taint.key.startswith(_FOR_A_WHILE) and taint.key not in REMOVAL_TAINTS:
            yield taint


def not_tolerated(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Container[str]
) -> str:
    """Return which of these taints a pod does not tolerate, in words; empty if none."""
    taint = untolerated(taints, tolerations, effects)
    if taint is None:
        return ""
    value = f"={taint.value}" if taint.value else ""
    return f"it does not tolerate the taint {taint.key}{value}:{taint.effect}"


def autoscaler_sign(node: NodeRecord) -> str:
    """Return what shows that an autoscaler may remove nodes like this one; else nothing."""
    if not AUTOSCALER_LABELS.isdisjoint(node.labels):
        return f"label {min(AUTOSCALER_LABELS.intersection(node.labels))}"
    if SCALE_DOWN_DISABLED in node.annotations:
        return f"annotation {SCALE_DOWN_DISABLED}"
    taint = removal_taint(node)
    return f"taint {taint}" if taint else ""


def kept_by_autoscalers(node: NodeRecord) -> bool:
    """Tell whether annotations keep autoscalers from removing this node."""
    values = (node.annotations.get(key) for key in (SCALE_DOWN_DISABLED, DO_NOT_DISRUPT))
    return "true" in values


def autoscaler_of(nodes: Collection[NodeRecord]) -> str:
    """Return what shows that an autoscaler may remove nodes of a pool, on the first that does."""
    if all(kept_by_autoscalers(node) for node in nodes):
        return ""
    signs = ((node.name, sign) for node in nodes if (sign := autoscaler_sign(node)))
    return next((f"{name} has the {sign}" for name, sign in signs), "")


def fills_low(choice: FillLowNodes, autoscaler: str) -> bool:
    """Tell whether the low end of a pool is filled."""
    return choice is FillLowNodes.ALWAYS or (choice is FillLowNodes.AUTO and not autoscaler)


def percent(load: NodeLoad, dimension: Dimension) -> float:
    """Return the level that goals are judged by: terminating pods have left."""
    axis = dimension.axis
    if axis > 1:
        found = further_load(load, axis)
        return nan if found is None else found.settled_percent
    return load.settled_mem_percent if axis else load.settled_cpu_percent


def percent_now(load: NodeLoad, dimension: Dimension) -> float:
    """Return the level that decides about room: terminating pods still use theirs."""
    axis = dimension.axis
    if axis > 1:
        found = further_load(load, axis)
        return nan if found is None else found.percent
    return load.room_mem_percent if axis else load.room_cpu_percent


def further_load(load: NodeLoad, axis: int) -> FurtherLoad | None:
    """Return what a node uses of a resource besides CPU and memory; None if it was not read."""
    place = axis - len(BALANCED)
    return load.further[place] if place < len(load.further) else None


def gap(levels: Levels, *, fill_low: bool) -> float:
    """Return by how much the highest node is above the lowest, or above the others' mean."""
    if len(levels) < 2:
        return 0.0
    highest = max(levels.values())
    if fill_low:
        return highest - min(levels.values())
    return highest - _others_mean(levels)(highest)


def outliers(levels: Levels, points: float, *, fill_low: bool) -> Outliers:
    """Return the nodes that keep a pool from being within so many points.

    A node that is too far from both ends counts for the end that it is nearer to.
    """
    if gap(levels, fill_low=fill_low) <= points:
        return Outliers((), ())
    if not fill_low:
        mean = _others_mean(levels)
        return Outliers(tuple(n for n, level in levels.items() if level - mean(level) > points), ())
    highest, lowest = max(levels.values()), min(levels.values())
    middle = (highest + lowest) / 2
    high = (n for n, level in levels.items() if level - lowest > points and level > middle)
    low = (n for n, level in levels.items() if highest - level > points and level <= middle)
    return Outliers(tuple(high), tuple(low))


def most_loaded_first(levels: Levels) -> list[NodeName]:
    """Return the nodes, the most loaded first; equal ones by name."""
    return sorted(levels, key=lambda name: (-levels[name], name))


def _others_mean(levels: Levels) -> Callable[[float], float]:
    total, others = fsum(levels.values()), len(levels) - 1
    return lambda level: (total - level) / others
