"""The load of nodes as if the moves that are under way were done.

A source is relieved and a target filled as soon as a Migration is open, otherwise the next
look would call for the same relief again. What has happened already is in the belief itself:
a pod that is gone no longer counts there, and a replacement that has a node does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord
from common.cluster.resources import Resources
from common.cluster.snapshot import Snapshot
from common.load import Load, LoadView, NodeLoad
from common.observer import Belief


def as_if_done(belief: Belief, migrations: Iterable[MigrationRecord] | None = None) -> LoadView:
    """Return the load with open Migrations carried out, all unless told which."""
    some = belief.snapshot.migrations.values() if migrations is None else migrations
    changes = list(_changes(belief, [migration for migration in some if migration.open]))
    if not changes:
        return belief.load
    nodes = dict(belief.load.nodes)
    for name, sign, load in changes:
        if name in nodes and nodes[name].known:
            offered = belief.snapshot.nodes[name].node.allocatable
            nodes[name] = _changed(nodes[name], sign, load, offered)
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
    found = belief.load.load_of(pod)
    offered = belief.snapshot.nodes[migration.target].node.allocatable
    return _changed(node, +1, Load(found.cpu_milli, found.mem_bytes), offered)


def _changes(
    belief: Belief, migrations: Sequence[MigrationRecord]
) -> Iterator[tuple[NodeName, int, Load]]:
    snapshot, load = belief.snapshot, belief.load
    for migration in migrations:
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is not None and pod.node and not pod.finished:
            found = load.load_of(pod)
            yield pod.node, -1, Load(found.cpu_milli, found.mem_bytes)
        if not _has_arrived(migration, snapshot):
            wanted = Load(migration.load_cpu_milli, migration.load_mem_bytes)
            yield migration.target, +1, wanted


def _has_arrived(migration: MigrationRecord, snapshot: Snapshot) -> bool:
    """Tell whether the replacement is on a node, and so in the load."""
    found = snapshot.pods.get(migration.replacement_uid)
    return found is not None and bool(found.node)


def _changed(node: NodeLoad, sign: int, load: Load, offered: Resources) -> NodeLoad:
    cpu_milli = max(0.0, node.cpu_milli + sign * load.cpu_milli)
    mem_bytes = max(0.0, node.mem_bytes + sign * load.mem_bytes)
    return msgspec.structs.replace(
        node,
        cpu_milli=cpu_milli,
        mem_bytes=mem_bytes,
        cpu_percent=100.0 * cpu_milli / offered.cpu_milli,
        mem_percent=100.0 * mem_bytes / offered.mem_bytes,
    )
