# SPDX-License-Identifier: Apache-2.0
"""Moves that are under way: which change their nodes, and the load as if they were done.

A source is relieved and a target filled as soon as a Migration is open, otherwise the next plan
would call for the same relief again. What has happened already is in the belief itself: a pod
that terminates or is gone no longer counts for goals there, and a replacement that has a node
does. The pod still uses its node until it is gone, so it makes no room before.

A move may wait for hours for a pod to drain. Such a move holds up as little as possible:
neither its pool, nor what waits to see how a move ends. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Final

from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.load import Belief, Load, LoadView, NodeLoad

LINGERS_S: Final = 120.0
"""This long after an eviction, samples of two windows have been taken."""


def as_if_done(belief: Belief, migrations: Iterable[MigrationRecord] | None = None) -> LoadView:
    """Return the load with open Migrations carried out: these, or all of them."""
    chosen = belief.snapshot.migrations.values() if migrations is None else migrations
    open_ones = [migration for migration in chosen if migration.open]
    if not open_ones:
        return belief.load
    nodes = dict(belief.load.nodes)
    for migration in open_ones:
        _carry_out(migration, belief, nodes)
    view = copy.copy(belief.load)
    view.nodes = nodes
    return view


def on_their_way(snapshot: Snapshot) -> Iterator[MigrationRecord]:
    """Yield the open Migrations whose replacement is on no node yet."""
    for migration in snapshot.migrations.values():
        if migration.open and not _has_arrived(migration, snapshot):
            yield migration


def target_with(
    migration: MigrationRecord, pod: PodRecord, ahead: Iterable[MigrationRecord], belief: Belief
) -> NodeLoad | None:
    """Return the load of a target after other moves and this one; None where it is unknown."""
    node = as_if_done(belief, ahead).nodes.get(migration.target)
    if node is None or not node.known:
        return None
    if _has_arrived(migration, belief.snapshot):
        return node
    return node.with_pod(belief.load.load_of(pod), sign=+1)


def _carry_out(migration: MigrationRecord, belief: Belief, nodes: dict[NodeName, NodeLoad]) -> None:
    snapshot, load = belief.snapshot, belief.load
    pod = snapshot.pods.get(migration.pod_uid)
    # The belief counts a terminating pod as leaving already, for as long as it may take.
    if pod is not None and not pod.terminating and not pod.finished:
        source = nodes.get(pod.node)
        if source is not None and source.known:
            nodes[pod.node] = source.with_leaving(load.load_of(pod))
    target = nodes.get(migration.target)
    if target is not None and target.known and not _has_arrived(migration, snapshot):
        wanted = Load(migration.load_cpu_milli, migration.load_mem_bytes)
        nodes[migration.target] = target.with_pod(wanted, sign=+1)


def _has_arrived(migration: MigrationRecord, snapshot: Snapshot) -> bool:
    """Tell whether the replacement is on a node, and so in the load."""
    found = snapshot.pods.get(migration.replacement_uid)
    return found is not None and bool(found.node)


def lingers(migration: MigrationRecord, snapshot: Snapshot, now_s: float) -> bool:
    """Tell whether a move only waits for its pod to terminate, and has done so for a while.

    A pod may drain for hours, and a StatefulSet creates no other before it is gone
    (pkg/controller/statefulset/stateful_set_control.go). Meanwhile nothing changes that samples
    would not show, so the nodes are at rest.
    """
    if not migration.open or migration.evicted_s is None or migration.replacement_uid:
        return False
    pod = snapshot.pods.get(migration.pod_uid)
    return pod is not None and pod.terminating and now_s - migration.evicted_s >= LINGERS_S


def in_motion(snapshot: Snapshot, now_s: float) -> list[MigrationRecord]:
    """Return the open Migrations that change what their nodes use."""
    known = snapshot.migrations.values()
    return [m for m in known if m.open and not lingers(m, snapshot, now_s)]


def nodes_of(migrations: Iterable[MigrationRecord]) -> frozenset[NodeName]:
    """Return the nodes that pods are moved away from or onto."""
    names = (n for m in migrations for n in (m.source, m.target, m.replacement_node))
    return frozenset(name for name in names if name)
