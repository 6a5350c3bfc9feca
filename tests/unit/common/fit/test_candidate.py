# SPDX-License-Identifier: Apache-2.0
"""The pod that is judged is the one that will come, not the one that goes."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.contract import GUIDED_BY
from common.api.objects import PriorityClass, ReplicaSet, StatefulSet
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodRecord
from common.fit import Candidate, FitIndex, World, replacement
from simulator import build
from tests.support.worlds.wire import stamped, wire, wire_node, wire_pod


def cluster(workload: build.Manifest, pod: build.Manifest, **status: Any) -> Snapshot:
    """Return a cluster of one pod with its controller."""
    state = ClusterState()
    made = stamped(workload)
    if workload["kind"] == "ReplicaSet":
        state.replica_sets.upsert(wire(ReplicaSet, made))
    else:
        state.stateful_sets.upsert(wire(StatefulSet, {**made, "status": status}))
    state.pods.upsert(wire_pod(pod, owner=workload))
    return state.snapshot()


def only_pod(snapshot: Snapshot) -> PodRecord:
    (pod,) = snapshot.pods.values()
    return pod


def test_a_replica_keeps_what_admission_made_of_it() -> None:
    workload = build.replica_set("web", 2, cpu="500m")
    grace = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    labels = {"app": "web", "injected": "yes"}
    pod = build.pod("web-1", node="a", labels=labels, cpu="500m", spec={"tolerations": [grace]})
    snapshot = cluster(workload, pod)
    old = only_pod(snapshot)
    new = replacement(old, snapshot)
    assert (new.labels, new.shape.tolerations) == (old.labels, old.shape.tolerations)
    assert new.uid != old.uid
    assert new.name != old.name
    assert new.owner == old.owner


@pytest.mark.parametrize(
    ("template", "resized", "judged"),
    [("500m", "200m", 500), ("500m", "900m", 900), ("500m", "500m", 500)],
    ids=["resized down", "resized up or injected", "as written"],
)
def test_a_replacement_is_judged_by_the_larger_requests(
    template: str, resized: str, judged: int
) -> None:
    workload = build.replica_set("web", 2, cpu=template)
    snapshot = cluster(workload, build.pod("web-1", node="a", cpu=resized))
    assert replacement(only_pod(snapshot), snapshot).shape.requests.cpu_milli == judged


@pytest.mark.parametrize("guided", [True, False])
def test_the_next_pod_is_not_bound_to_where_a_move_has_sent_this_one(guided: bool) -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    sent = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    said = {GUIDED_BY: "m"} if guided else {}
    pod = build.pod("web-1", node="a", spec={"affinity": sent}, annotations=said)
    snapshot = cluster(build.replica_set("web", 2), pod)
    bound = replacement(only_pod(snapshot), snapshot).shape.required_nodes is not None
    assert bound is not guided


def test_a_stateful_pod_comes_back_under_its_name_with_its_claims() -> None:
    workload = build.stateful_set("db", 2)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    revision = {"app": "db", "controller-revision-hash": "db-1"}
    pod = build.pod("db-0", node="a", labels=revision, spec={"volumes": volumes})
    snapshot = cluster(workload, pod, currentRevision="db-1", updateRevision="db-2")
    new = replacement(only_pod(snapshot), snapshot)
    assert (new.name, new.shape.claims) == ("db-0", ("data-db-0",))


@pytest.mark.parametrize(
    ("partition", "wanted"),
    [(0, (("disk", "ssd"),)), (1, ())],
    ids=["updated", "held back by the partition"],
)
def test_a_stateful_pod_comes_back_in_the_revision_that_is_due(
    partition: int, wanted: tuple[tuple[str, str], ...]
) -> None:
    workload = build.stateful_set("db", 2, spec={"nodeSelector": {"disk": "ssd"}})
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    workload["spec"]["updateStrategy"] = rolling
    revision = {"app": "db", "controller-revision-hash": "db-1"}
    pod = build.pod("db-0", node="a", labels=revision)
    snapshot = cluster(workload, pod, currentRevision="db-1", updateRevision="db-2")
    assert replacement(only_pod(snapshot), snapshot).shape.node_selector == wanted


def test_a_pod_without_a_controller_is_replaced_by_its_like() -> None:
    state = ClusterState()
    state.pods.upsert(wire_pod(build.pod("alone", node="a", cpu="300m")))
    snapshot = state.snapshot()
    old = only_pod(snapshot)
    new = replacement(old, snapshot)
    assert (new.shape, new.labels) == (old.shape, old.labels)
    assert new.uid != old.uid


def test_a_template_gets_the_priority_of_its_class() -> None:
    state = ClusterState()
    spec = {"priorityClassName": "vital"}
    workload = stamped(build.replica_set("web", 1, spec=spec))
    state.replica_sets.upsert(wire(ReplicaSet, workload))
    plain = stamped(build.replica_set("plain", 1))
    state.replica_sets.upsert(wire(ReplicaSet, plain))
    for name, value, default in (("vital", 900, False), ("usual", 5, True)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": default}
        state.priority_classes.upsert(wire(PriorityClass, body))
    snapshot = state.snapshot()
    priorities = {
        workload.name: Candidate.next_of(workload, snapshot).shape.priority
        for workload in snapshot.workloads.values()
    }
    assert priorities == {"web": 900, "plain": 5}


def test_a_template_gets_the_grace_that_every_pod_gets_on_failing_nodes() -> None:
    state = ClusterState()
    failing = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
    state.nodes.upsert(wire_node(build.node("a", taints=[failing])))
    state.replica_sets.upsert(wire(ReplicaSet, stamped(build.replica_set("web", 1))))
    snapshot = state.snapshot()
    (workload,) = snapshot.workloads.values()
    world = World(snapshot, FitIndex())
    assert world.fits(Candidate.next_of(workload, snapshot), NodeName("a"))


def test_label_keys_of_a_template_become_part_of_its_selectors() -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash", "missing"],
    }
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    labels = {"app": "web", "pod-template-hash": "new"}
    spec = {"affinity": {"podAntiAffinity": rule}}
    state = ClusterState()
    state.nodes.upsert(wire_node(build.node("a")))
    state.nodes.upsert(wire_node(build.node("b")))
    for node, revision in (("a", "old"), ("b", "new")):
        pod = build.pod(f"web-{node}", node=node, labels={**labels, "pod-template-hash": revision})
        state.pods.upsert(wire_pod(pod))
    made = stamped(build.replica_set("web", 1, labels=labels, spec=spec))
    state.replica_sets.upsert(wire(ReplicaSet, made))
    snapshot = state.snapshot()
    (workload,) = snapshot.workloads.values()
    assert World(snapshot, FitIndex()).feasible(Candidate.next_of(workload, snapshot)) == ("a",)
