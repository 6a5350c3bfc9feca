# SPDX-License-Identifier: Apache-2.0
"""A controller is known by namespace, kind and uid, and it has to exist.

Anyone who may create a pod can write any uid into its ownerReferences, also one of another
namespace: the API server does not check it (`ValidateOwnerReferences` in
apimachinery/pkg/api/validation/objectmeta.go looks at the fields alone).
"""

from __future__ import annotations

from typing import Any

import pytest

from common.api.objects import Deployment, Job, Pod, ReplicaSet
from common.cache.state import ClusterState
from common.cluster.records import ControllerId, Owner, OwnerUid, PodRecord, PodUid, kind_name
from common.config import RebalancerConfiguration
from rebalancer.evictability import Context, judge
from simulator import build
from simulator.build import Manifest
from tests.support.worlds.wire import owner_reference, stamped, wire, wire_pod

REPLICA_SET = build.replica_set("web", 3, namespace="victim")


def said(owner: Manifest, **other: Any) -> Manifest:
    return {**owner_reference(owner), **other}


class Tenants:
    """Two namespaces: `victim` has the controllers, `thief` says that it has them too."""

    def __init__(self, *controllers: Manifest) -> None:
        self.state = ClusterState()
        tables: dict[str, tuple[Any, Any]] = {
            "ReplicaSet": (self.state.replica_sets, ReplicaSet),
            "Deployment": (self.state.deployments, Deployment),
            "Job": (self.state.jobs, Job),
        }
        for made in controllers:
            table, kind = tables[made["kind"]]
            table.upsert(wire(kind, stamped(made, **made.get("more", {}))))

    def pod(self, name: str, namespace: str, reference: Manifest) -> PodRecord:
        manifest = build.pod(name, namespace=namespace, node="n1")
        made: Pod = wire_pod(manifest, ownerReferences=[reference])
        self.state.pods.upsert(made)
        return self.state.snapshot().pods[PodUid(made.metadata.uid)]

    def reasons(self, *pods: PodRecord) -> list[set[str]]:
        """Return what is said against each, judged in this order in one look."""
        config = RebalancerConfiguration()
        context = Context.of(self.state.snapshot(), config, now_s=2e9)
        return [{found.name for found in judge(pod, context)} for pod in pods]


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("apps/v1", "ReplicaSet", "ReplicaSet"),
        ("apps/v1beta2", "ReplicaSet", "ReplicaSet"),
        ("v1", "ReplicaSet", "ReplicaSet."),
        ("example.com/v1", "ReplicaSet", "ReplicaSet.example.com"),
        ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
        ("v1", "ReplicationController", "ReplicationController"),
        ("v1", "Node", "Node"),
        ("argoproj.io/v1alpha1", "Rollout", "Rollout.argoproj.io"),
        ("", "ReplicaSet", "ReplicaSet"),
    ],
)
def test_a_kind_is_told_apart_from_one_of_another_group(
    api_version: str, kind: str, name: str
) -> None:
    owner = Owner(api_version, kind, "web", OwnerUid("u"))
    assert kind_name(api_version, kind) == name
    assert owner.within("shop") == ControllerId("shop", name, OwnerUid("u"))


def test_a_forged_reference_makes_no_sibling_and_finds_no_controller() -> None:
    world = Tenants(REPLICA_SET)
    own = world.pod("web-1", "victim", said(REPLICA_SET))
    forged = world.pod("web-2", "thief", said(REPLICA_SET))
    snapshot = world.state.snapshot()
    assert snapshot.controller(own) is not None
    assert snapshot.controller(forged) is None
    assert set(snapshot.siblings(own)) == {own.uid}
    assert set(snapshot.siblings(forged)) == {forged.uid}
    assert snapshot.top_workload(forged) is None


def test_a_replica_set_does_not_lead_to_a_deployment_of_another_namespace() -> None:
    deployment = build.deployment("web", 9, namespace="victim")
    replica_set = build.replica_set("mine", 1, namespace="thief")
    world = Tenants(deployment, {**replica_set, "more": {"ownerReferences": [said(deployment)]}})
    pod = world.pod("mine-1", "thief", said(replica_set))
    top = world.state.snapshot().top_workload(pod)
    assert top is not None
    assert (top.kind, top.namespace) == ("ReplicaSet", "thief")
    assert world.state.snapshot().top_owner(pod) == pod.owner
    [reasons] = world.reasons(pod)
    assert "SingleReplica" in reasons


@pytest.mark.parametrize("first", ["own", "forged"])
def test_a_forged_pod_does_not_decide_how_others_are_judged(first: str) -> None:
    """The pods of one controller are judged together, from whichever is asked about first."""
    job = _job()
    world = Tenants(job)
    own = world.pod("work-1", "victim", said(job))
    forged = world.pod("work-2", "thief", said(job, apiVersion="apps/v1", kind="ReplicaSet"))
    near = world.pod("work-3", "victim", said(job, apiVersion="apps/v1", kind="ReplicaSet"))
    pods = [own, forged, near] if first == "own" else [near, forged, own]
    found = dict(zip([p.name for p in pods], world.reasons(*pods), strict=True))
    assert "JobPod" in found["work-1"]
    assert "OwnerMismatch" in found["work-2"]
    assert "OwnerMismatch" in found["work-3"]


def test_pods_of_a_forged_custom_owner_are_no_replicas() -> None:
    """Custom owners cannot be seen to exist; their pods count by namespace all the same."""
    reference = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "name": "web",
        "uid": "u-rollout",
        "controller": True,
    }
    world = Tenants()
    own = world.pod("web-1", "victim", reference)
    for number in range(3):
        world.pod(f"web-{number}", "thief", reference)
    config = RebalancerConfiguration.model_validate({"replacingOwners": ["Rollout.argoproj.io"]})
    context = Context.of(world.state.snapshot(), config, now_s=2e9)
    assert "SingleReplica" in {found.name for found in judge(own, context)}


def _job() -> Manifest:
    template = build.pod_template(labels={"app": "work"})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work", "namespace": "victim"},
        "spec": {"template": template},
    }
