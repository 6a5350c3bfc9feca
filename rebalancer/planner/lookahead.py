# SPDX-License-Identifier: Apache-2.0
"""The cluster as a plan would leave it, assessed once more.

A plan that leaves goals unmet may have made room for more. What the next cycle would want is
planned at once and becomes part of the same plan: then a second plan on the result has
nothing to add, and no pod is moved there and back again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from common.api.migrations import Purpose
from common.cache.cow_map import FrozenCowGroups
from common.cache.snapshot import NodeView, Snapshot
from common.cache.tables import NodeTotals
from common.cluster.records import NodeName, PodRecord, PodUid
from common.fit import FitIndex, World
from common.load import LoadView
from rebalancer.goals import Distribute, Empty, Goal, Relocate, Spread, title
from rebalancer.planner.problem import Demand
from rebalancer.strategies import Assessment, Assessor

G = TypeVar("G")


def demand_after(demand: Demand, goes: Mapping[PodUid, NodeName], evaluations: int) -> Demand:
    """Return what would be wanted once these pods run elsewhere, of the goals that stand now."""
    cluster = demand.cluster
    snapshot, load = cluster_after(cluster.snapshot, cluster.load, goes)
    world, pending_times = World(snapshot, FitIndex()), cluster.pending_times.copy()
    after = replace(
        cluster,
        snapshot=snapshot,
        load=load,
        world=world,
        pending_times=pending_times,
        consolidated=frozenset(demand.assessment.kept_empty),
        consolidates=False,
    )
    found = Assessor(cluster.config).assess(
        after,
        lambda pod: not demand.judge(pod, Purpose.LOAD),
        at_once=True,
        refusals=lambda pod: demand.judge(pod, Purpose.LOAD),
    )
    effort = replace(demand.effort, evaluations=evaluations)
    assessment = _known_goals(found, demand.assessment)
    return replace(demand, cluster=after, assessment=assessment, effort=effort)


def cluster_after(
    snapshot: Snapshot, load: LoadView, goes: Mapping[PodUid, NodeName]
) -> tuple[Snapshot, LoadView]:
    """Return the cluster and its load once these pods run elsewhere."""
    moved = {
        uid: msgspec.structs.replace(snapshot.pods[uid], node=node) for uid, node in goes.items()
    }
    return _snapshot_after(snapshot, moved), _load_after(load, snapshot, moved)


def _known_goals(found: Assessment, before: Assessment) -> Assessment:
    """Return the goals that stood before; others may not have been observed often enough."""
    known = {_subject(goal) for goal in before.goals}
    goals = tuple(goal for goal in found.goals if _subject(goal) in known)
    return msgspec.structs.replace(found, goals=goals)


def _subject(goal: Goal) -> tuple[str, ...]:
    if isinstance(goal, Spread):
        return "spread", goal.pool, goal.dimension.label
    if isinstance(goal, Relocate):
        return "relocate", goal.pod
    if isinstance(goal, Distribute):
        return "distribute", goal.namespace, goal.name, title(goal)
    return "empty" if isinstance(goal, Empty) else "at most", goal.node


def _snapshot_after(snapshot: Snapshot, moved: Mapping[PodUid, PodRecord]) -> Snapshot:
    before = {uid: snapshot.pods[uid] for uid in moved}
    touched = {pod.node for pod in (*before.values(), *moved.values())}
    nodes = dict(snapshot.nodes)
    for name in touched:
        nodes[name] = _view_after(nodes[name], name, moved)
    owners = {uid: group for uid, pod in moved.items() if (group := pod.controller_id) is not None}
    return msgspec.structs.replace(
        snapshot,
        nodes=nodes,
        pods={**snapshot.pods, **moved},
        pods_by_name={**snapshot.pods_by_name, **{pod.key: pod for pod in moved.values()}},
        by_owner=_groups_after(snapshot.by_owner, owners, moved),
        by_namespace=_groups_after(
            snapshot.by_namespace, {uid: pod.namespace for uid, pod in moved.items()}, moved
        ),
    )


def _view_after(view: NodeView, name: NodeName, moved: Mapping[PodUid, PodRecord]) -> NodeView:
    pods = {uid: pod for uid, pod in view.pods.items() if uid not in moved}
    pods.update({uid: pod for uid, pod in moved.items() if pod.node == name})
    totals = NodeTotals()
    totals.record = view.node
    for uid, pod in pods.items():
        totals.pods[uid] = pod
        totals.charge(pod, +1)
    return totals.view() or view


def _groups_after(
    groups: FrozenCowGroups[G, PodUid, PodRecord],
    group_of: Mapping[PodUid, G],
    moved: Mapping[PodUid, PodRecord],
) -> FrozenCowGroups[G, PodUid, PodRecord]:
    found = {group: dict(groups[group]) for group in groups}
    for uid, group in group_of.items():
        found[group][uid] = moved[uid]
    return FrozenCowGroups(found)


def _load_after(load: LoadView, snapshot: Snapshot, moved: Mapping[PodUid, PodRecord]) -> LoadView:
    nodes = dict(load.nodes)
    for uid, pod in moved.items():
        used = load.load_of(snapshot.pods[uid])
        for name, sign in ((snapshot.pods[uid].node, -1), (pod.node, +1)):
            nodes[name] = nodes[name].with_pod(used, sign=sign)
    found = copy.copy(load)
    found.nodes = nodes
    return found
