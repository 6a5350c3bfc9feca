# SPDX-License-Identifier: Apache-2.0
"""A cluster and a pod, as API objects in one JSON line, and the verdict on them.

For playing a disagreement with kube-scheduler again: what it saw goes in, what we think
comes out. Objects may lack what the API server adds; names stand in for uids.
"""

from __future__ import annotations

import msgspec

from common.api.objects import (
    Namespace,
    Node,
    Pod,
    PriorityClass,
    ReplicaSet,
    StatefulSet,
    Wire,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import PodRecord, pod_record
from common.cluster.shapes import shape_of
from common.fit.candidate import Candidate
from common.fit.index import FitIndex
from common.fit.world import World
from common.kube.envelopes import key_of


class Case(Wire):
    """What a scheduler would see, and the pod that looks for a node."""

    pod: Pod
    nodes: list[Node] = msgspec.field(default_factory=list)
    pods: list[Pod] = msgspec.field(default_factory=list)
    namespaces: list[Namespace] = msgspec.field(default_factory=list)
    pvs: list[PersistentVolume] = msgspec.field(default_factory=list)
    pvcs: list[PersistentVolumeClaim] = msgspec.field(default_factory=list)
    storageclasses: list[StorageClass] = msgspec.field(default_factory=list)
    csinodes: list[CSINode] = msgspec.field(default_factory=list)
    priorityclasses: list[PriorityClass] = msgspec.field(default_factory=list)
    replicasets: list[ReplicaSet] = msgspec.field(default_factory=list)
    statefulsets: list[StatefulSet] = msgspec.field(default_factory=list)


class Verdict(msgspec.Struct):
    """Where the pod may run, and for every other node why not."""

    feasible: list[str]
    refused: dict[str, list[str]]


def verdict(case: Case) -> Verdict:
    """Judge one case."""
    snapshot = snapshot_of(case)
    question = World(snapshot, FitIndex()).ask(candidate_of(case.pod))
    feasible = question.feasible()
    others = sorted(set(snapshot.nodes) - set(feasible))
    return Verdict(
        feasible=list(feasible),
        refused={name: [r.message for r in question.rejections(name)] for name in others},
    )


def snapshot_of(case: Case) -> Snapshot:
    """Return the cluster of a case, as the watches would have told it."""
    state = ClusterState()
    for node in case.nodes:
        state.nodes.upsert(node)
    for pod in case.pods:
        state.pods.upsert(_identified(pod))
    for namespace in case.namespaces:
        state.namespaces.upsert(namespace)
    _store(state, case)
    for replica_set in case.replicasets:
        state.replica_sets.upsert(replica_set)
    for stateful_set in case.statefulsets:
        state.stateful_sets.upsert(stateful_set)
    return state.snapshot()


def candidate_of(pod: Pod) -> Candidate:
    """Return the pod to judge; one that no API server has seen yet is taken as a template."""
    record: PodRecord = pod_record(pod, ClusterState().shared)
    found = msgspec.structs.replace(Candidate.of(record), node_name=record.node)
    if pod.metadata.uid:
        return found
    return msgspec.structs.replace(found, shape=shape_of(pod.metadata, pod.spec))


def _store(state: ClusterState, case: Case) -> None:
    for volume in case.pvs:
        state.volumes.upsert(volume)
    for claim in case.pvcs:
        state.claims.upsert(claim)
    for storage_class in case.storageclasses:
        state.storage_classes.upsert(storage_class)
    for csi_node in case.csinodes:
        state.csi_nodes.upsert(csi_node)
    for priority_class in case.priorityclasses:
        state.priority_classes.upsert(priority_class)


def _identified(pod: Pod) -> Pod:
    pod.metadata.uid = pod.metadata.uid or key_of(pod.metadata)
    return pod
