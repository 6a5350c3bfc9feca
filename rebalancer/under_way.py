"""The load of nodes as if the moves that are under way were done.

A source is relieved and a target filled as soon as a Migration is open, otherwise the next
look would call for the same relief again. What has happened already is in the belief itself:
a pod that terminates or is gone no longer counts for goals there, and a replacement that has
a node does. The pod still uses its node until it has gone, so it makes no room before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.cluster.snapshot import Snapshot
from common.load import Load, LoadView, NodeLoad
from common.observer import Belief


def as_if_done(belief: Belief, migrations: Iterable[MigrationRecord] | None = None) -> LoadView:
    """Return the load with open Migrations carried out, all unless told which."""
    some = belief.snapshot.migrations.values() if migrations is None else migrations
    open_ones = [migration for migration in some if migration.open]
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
    """Return the load of a target after other moves and this one; None where it is not known."""
    node = as_if_done(belief, ahead).nodes.get(migration.target)
    if node is None or not node.known:
        return None
    if _has_arrived(migration, belief.snapshot):
        return node
    return node.with_pod(belief.load.load_of(pod), sign=+1)


def _carry_out(migration: MigrationRecord, belief: Belief, nodes: dict[NodeName, NodeLoad]) -> None:
    snapshot, load = belief.snapshot, belief.load
    pod = snapshot.pods.get(migration.pod_uid)
    # A terminating pod is leaving in the belief already, for as long as it may.
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
