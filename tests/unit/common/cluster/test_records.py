# SPDX-License-Identifier: Apache-2.0
"""What is kept of each kind: parsed, compact, and complete where it matters."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.objects import (
    DaemonSet,
    Deployment,
    Job,
    Lease,
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicationController,
    StatefulSet,
)
from common.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from common.cluster.interning import Interner
from common.cluster.quantities import QuantityError
from common.cluster.records import PodRecord, node_record, pod_record
from common.cluster.selectors import SelectorError
from common.cluster.storage import (
    claim_record,
    csi_node_record,
    lease_record,
    namespace_record,
    priority_class_record,
    storage_class_record,
    volume_record,
)
from common.cluster.workloads import (
    budget_record,
    daemon_set_record,
    deployment_record,
    job_record,
    replication_controller_record,
    stateful_set_record,
)
from simulator import build
from tests.support.worlds.wire import stamped, wire, wire_node, wire_pod

SHARED = Interner()
EIGHT = 1_794_816_000.0  # 2026-11-16T08:00:00Z


def record(**pod: Any) -> PodRecord:
    return pod_record(wire_pod(build.pod("p", **pod)), SHARED)


def test_a_node_is_parsed() -> None:
    taint = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
    found = node_record(
        wire_node(build.node("n", cpu="7910m", memory="30Gi", pods=58, zone="z1", taints=[taint])),
        SHARED,
    )
    assert (found.name, found.ready, found.unschedulable) == ("n", True, False)
    assert (found.allocatable.cpu_milli, found.allocatable.mem_bytes) == (7910, 30 * 2**30)
    assert (found.max_pods, found.created_s) == (58, EIGHT)
    assert found.labels["topology.kubernetes.io/zone"] == "z1"
    assert [(t.key, t.value, t.effect) for t in found.taints] == [("dedicated", "db", "NoSchedule")]


def test_annotations_that_nobody_reads_are_not_kept() -> None:
    kept = {"karpenter.sh/do-not-disrupt": "true", "evenkeel.io/anything": "x"}
    found = record(annotations={**kept, "kubectl.kubernetes.io/last-applied-configuration": "{…}"})
    assert found.annotations == kept


@pytest.mark.parametrize(
    ("manifest", "status", "expected"),
    [
        ({"node": "n1"}, {}, (EIGHT, True)),
        ({}, {}, (None, False)),
        ({"node": "n1"}, {"conditions": [], "startTime": "2026-11-16T08:00:00Z"}, (EIGHT, False)),
        ({"node": "n1"}, {"conditions": []}, (None, False)),
    ],
    ids=["bound by the scheduler", "pending", "static pod", "bound by hand, not started"],
)
def test_when_a_pod_was_scheduled(
    manifest: dict[str, Any], status: dict[str, Any], expected: tuple[float | None, bool]
) -> None:
    found = pod_record(wire_pod(build.pod("p", **manifest), status=status), SHARED)
    assert (found.scheduled_s, found.ready) == expected


def test_only_the_owner_that_controls_is_the_owner() -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}
    loose = pod_record(wire_pod(build.pod("p"), ownerReferences=[reference]), SHARED)
    assert (loose.owner, loose.owned) == (None, True)
    owned = pod_record(wire_pod(build.pod("p"), owner=build.replica_set("rs", 1)), SHARED)
    assert owned.owner is not None
    assert (owned.owner.kind, owned.owner.name) == ("ReplicaSet", "rs")


@pytest.mark.parametrize(
    ("volume", "local"),
    [
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"hostPath": {"path": "/var"}}, True),
        ({"configMap": {"name": "c"}}, False),
    ],
)
def test_which_volumes_are_local_storage(volume: dict[str, Any], local: bool) -> None:
    found = record(spec={"volumes": [{"name": "v", **volume}]})
    assert found.shape.local_storage is local


def test_the_parts_of_a_shape() -> None:
    spec = {
        "containers": [build.container(cpu="1", host_ports=[8080, 80])],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 600,
        "schedulerName": "other",
        "priority": 100,
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "b", "csi": {"driver": "secrets.csi"}},
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "p"}},
            }
        ],
        "schedulingGates": [{"name": "quota"}],
        "resourceClaims": [{"name": "gpu"}],
    }
    shape = record(spec=spec).shape
    assert [(p.port, p.protocol, p.ip) for p in shape.host_ports] == [
        (80, "TCP", "0.0.0.0"),
        (8080, "TCP", "0.0.0.0"),
    ]
    assert shape.node_selector == (("disk", "ssd"),)
    assert (shape.grace_s, shape.scheduler_name, shape.priority) == (600, "other", 100)
    assert (shape.claims, shape.inline_drivers) == (("data",), ("secrets.csi",))
    assert [(s.max_skew, s.hard, s.selector.matches({"app": "p"})) for s in shape.spread] == [
        (2, False, True)
    ]
    assert (shape.gates, shape.resource_claims) == (("quota",), 1)


def test_a_term_without_namespaces_means_the_pods_own() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "p"}}, "topologyKey": "host"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    spec = {"affinity": {"podAntiAffinity": required}}
    (found,) = record(namespace="shop", spec=spec).shape.anti_affinity
    assert (found.topology_key, found.namespaces) == ("host", frozenset({"shop"}))


@pytest.mark.parametrize(
    ("pod", "error"),
    [
        ({"cpu": "many"}, QuantityError),
        (
            {
                "spec": {
                    "topologySpreadConstraints": [
                        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}
                    ]
                }
            },
            SelectorError,
        ),
    ],
    ids=["quantity", "selector"],
)
def test_nonsense_is_an_error_that_a_reflector_skips(
    pod: dict[str, Any], error: type[ValueError]
) -> None:
    with pytest.raises(error):
        record(**pod)


def test_a_deployment_is_counted() -> None:
    status = {"observedGeneration": 3, "replicas": 4, "readyReplicas": 2, "availableReplicas": 1}
    manifest = {**stamped(build.deployment("web", 5), generation=4), "status": status}
    found = deployment_record(wire(Deployment, manifest), SHARED)
    assert (found.kind, found.key, found.desired, found.current) == (
        "Deployment",
        "default/web",
        5,
        4,
    )
    assert (found.ready, found.available, found.generation, found.observed_generation) == (
        *(2, 1),
        *(4, 3),
    )
    assert found.selector.matches({"app": "web"})
    assert found.template.requests.cpu_milli == 100


def test_a_stateful_set_knows_its_order_and_revisions() -> None:
    manifest = stamped(build.stateful_set("db", 3))
    manifest["spec"]["updateStrategy"] = {"type": "OnDelete", "rollingUpdate": {"partition": 2}}
    manifest["status"] = {"currentRevision": "a", "updateRevision": "b"}
    found = stateful_set_record(wire(StatefulSet, manifest), SHARED)
    assert (found.ordered, found.partition) == (True, 2)
    assert (found.current_revision, found.update_revision) == ("a", "b")
    parallel = wire(StatefulSet, stamped(build.stateful_set("db", 3, parallel=True)))
    assert not stateful_set_record(parallel, SHARED).ordered


def test_a_daemon_set_wants_a_pod_per_node() -> None:
    status = {"desiredNumberScheduled": 7, "numberReady": 6, "numberAvailable": 5}
    manifest = {"metadata": {"name": "d", "namespace": "x", "uid": "1"}, "status": status}
    found = daemon_set_record(wire(DaemonSet, manifest), SHARED)
    assert (found.desired, found.ready, found.available) == (7, 6, 5)


@pytest.mark.parametrize(
    ("rules", "ignored"),
    [
        ([{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}], True),
        ([{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}], False),
        ([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}], False),
        ([], False),
    ],
)
def test_whether_a_job_counts_disrupted_pods(rules: list[dict[str, Any]], ignored: bool) -> None:
    spec = {"parallelism": 2, "completionMode": "Indexed", "podFailurePolicy": {"rules": rules}}
    manifest = {"metadata": {"name": "j", "namespace": "x", "uid": "1"}, "spec": spec}
    found = job_record(wire(Job, manifest), SHARED)
    assert (found.desired, found.ignores_disruption) == (2, ignored)


def test_a_replication_controller_selects_by_plain_labels() -> None:
    spec = {"replicas": 2, "selector": {"app": "old"}, "template": build.pod_template(labels={})}
    manifest = {"metadata": {"name": "rc", "namespace": "x", "uid": "1"}, "spec": spec}
    found = replication_controller_record(wire(ReplicationController, manifest), SHARED)
    assert found.desired == 2
    assert found.selector.matches({"app": "old", "more": "x"})
    assert not found.selector.matches({"app": "new"})


def test_a_budget_carries_the_controllers_arithmetic() -> None:
    manifest = stamped(build.pdb("web", match={"app": "web"}, min_available="50%"), generation=2)
    manifest["status"] = {
        "observedGeneration": 2,
        "disruptionsAllowed": 1,
        "currentHealthy": 3,
        "desiredHealthy": 2,
        "expectedPods": 4,
        "disruptedPods": {"web-1": "2026-11-16T08:00:00Z"},
    }
    found = budget_record(wire(PodDisruptionBudget, manifest), SHARED)
    assert (found.min_available, found.max_unavailable) == ("50%", None)
    assert (found.disruptions_allowed, found.current_healthy, found.desired_healthy) == (1, 3, 2)
    assert (found.expected_pods, found.disrupted) == (4, frozenset({"web-1"}))
    assert found.selector.matches({"app": "web"})


def test_volumes_and_claims() -> None:
    claim = claim_record(
        wire(
            PersistentVolumeClaim,
            {
                "metadata": {"name": "c", "namespace": "x", "uid": "1"},
                "spec": {"volumeName": "v", "accessModes": ["ReadWriteOnce"]},
                "status": {"phase": "Bound"},
            },
        ),
        SHARED,
    )
    assert (claim.key, claim.volume, claim.phase) == ("x/c", "v", "Bound")
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
    volume = volume_record(
        wire(
            PersistentVolume,
            {
                "metadata": {"name": "v", "uid": "2"},
                "spec": {
                    "claimRef": {"namespace": "x", "name": "c", "uid": "1"},
                    "csi": {"driver": "disk", "volumeHandle": "h"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                },
            },
        ),
        SHARED,
    )
    assert (volume.claim, volume.driver, volume.handle, volume.local) == ("x/c", "disk", "h", False)
    assert volume.nodes is not None
    assert volume.nodes.matches({"zone": "z1"}, "n")
    assert not volume.nodes.matches({"zone": "z2"}, "n")


def test_the_small_kinds() -> None:
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]
    storage_class = storage_class_record(
        wire(
            StorageClass,
            {
                "metadata": {"name": "fast"},
                "provisioner": "disk",
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": topologies,
            },
        ),
        SHARED,
    )
    assert storage_class.waits_for_consumer
    assert storage_class.topologies == ((("zone", ("z1",)),),)
    driver = {"name": "disk", "nodeID": "n", "allocatable": {"count": 25}}
    csi = csi_node_record(
        wire(CSINode, {"metadata": {"name": "n"}, "spec": {"drivers": [driver]}}), SHARED
    )
    assert [(d.name, d.max_volumes) for d in csi.drivers] == [("disk", 25)]
    priority = {"metadata": {"name": "high"}, "value": 9, "globalDefault": True}
    found = priority_class_record(wire(PriorityClass, priority), SHARED)
    assert (found.value, found.is_default) == (9, True)
    namespace = namespace_record(
        wire(Namespace, stamped(build.namespace("shop", labels={"team": "a"}))), SHARED
    )
    assert (namespace.name, namespace.labels["team"]) == ("shop", "a")
    spec = {"holderIdentity": "me", "renewTime": "2026-11-16T08:00:00.000000Z"}
    lease = lease_record(
        wire(Lease, {"metadata": {"name": "l", "namespace": "x"}, "spec": spec}), SHARED
    )
    assert (lease.key, lease.holder, lease.renewed_s) == ("x/l", "me", EIGHT)


@pytest.mark.parametrize(
    ("spec", "group"),
    [
        ({}, ""),
        ({"schedulingGroup": {"podGroupName": "train"}}, "train"),
        ({"workloadRef": {"name": "w", "podGroup": "workers"}}, "workers"),
    ],
)
def test_the_pod_group_of_a_pod_is_kept(spec: dict[str, Any], group: str) -> None:
    assert record(spec=spec).shape.pod_group == group


def test_a_pod_group_in_an_annotation_is_kept() -> None:
    found = record(annotations={"scheduling.k8s.io/group-name": "g", "other": "x"})
    assert found.annotations == {"scheduling.k8s.io/group-name": "g"}
