"""The load of nodes as if the moves that are under way were done.

A source is relieved and a target filled as soon as a Migration is open, otherwise the next
look would call for the same relief again. What has happened already is in the belief itself:
a pod that is gone no longer counts there, and a replacement that has a node does.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import msgspec

from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.cluster.resources import Resources
from common.cluster.snapshot import Snapshot
from common.load import Load, LoadView, NodeLoad
from common.observer import Belief


def as_if_done(belief: Belief) -> LoadView:
    """Return the load with every open Migration carried out; the same view if there is none."""
    changes = list(_changes(belief))
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
    for migration in _open(snapshot.migrations.values()):
        found = snapshot.pods.get(migration.replacement_uid)
        if found is None or not found.node:
            yield migration


def _changes(belief: Belief) -> Iterator[tuple[NodeName, int, Load]]:
    snapshot, load = belief.snapshot, belief.load
    for migration in _open(snapshot.migrations.values()):
        pod = snapshot.pods.get(migration.pod_uid)
        if pod is not None and pod.node and not pod.finished:
            found = load.load_of(pod)
            yield pod.node, -1, Load(found.cpu_milli, found.mem_bytes)
    for migration in on_their_way(snapshot):
        yield migration.target, +1, Load(migration.load_cpu_milli, migration.load_mem_bytes)


def _open(migrations: Iterable[MigrationRecord]) -> Iterator[MigrationRecord]:
    return (migration for migration in migrations if migration.open)


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
