# SPDX-License-Identifier: Apache-2.0
"""VPAs: what the next pod of a workload will request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.api.objects import Deployment, ReplicaSet, VerticalPodAutoscaler
from common.cache.state import ClusterState
from common.cluster.records import PodUid
from common.fit import replacement
from simulator import build
from tests.support.worlds.wire import stamped, uid_of, wire, wire_pod

MIB = 1024 * 1024


def vpa(mode: str | None = None, **spec: Any) -> VerticalPodAutoscaler:
    target = {"cpu": "700m", "memory": "256Mi"}
    made = {
        "metadata": {"name": "web", "namespace": "default", "uid": "v"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            **({} if mode is None else {"updatePolicy": {"updateMode": mode}}),
            **spec,
        },
        "status": {
            "recommendation": {
                "containerRecommendations": [{"containerName": "app", "target": target}]
            }
        },
    }
    return msgspec.convert(made, VerticalPodAutoscaler)


def asked(*vpas: VerticalPodAutoscaler) -> tuple[int, int]:
    """Return what the replacement of a Deployment's pod will request."""
    state = ClusterState()
    deployment = stamped(build.deployment("web", 2, cpu="100m", memory="64Mi"))
    replica_set = stamped(build.replica_set("web-1", 2, cpu="100m", memory="64Mi"))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    replica_set["metadata"]["ownerReferences"] = [{**owner, "uid": deployment["metadata"]["uid"]}]
    state.deployments.upsert(wire(Deployment, deployment))
    state.replica_sets.upsert(wire(ReplicaSet, replica_set))
    pod = build.pod("web-1-a", node="n1", cpu="400m", memory="64Mi")
    state.pods.upsert(wire_pod(pod, owner=replica_set))
    for each in vpas:
        state.vpas.upsert(each)
    snapshot = state.snapshot()
    found = replacement(snapshot.pods[PodUid(uid_of("Pod/default/web-1-a"))], snapshot)
    return found.shape.requests.cpu_milli, found.shape.requests.mem_bytes // MIB


def policy(**said: Any) -> dict[str, Any]:
    return {"resourcePolicy": {"containerPolicies": [{"containerName": "*", **said}]}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), (400, 64)),
        ((vpa(),), (700, 256)),
        ((vpa("Initial"),), (700, 256)),
        ((vpa("InPlaceOrRecreate"),), (700, 256)),
        ((vpa("Off"),), (400, 64)),
        ((vpa(**policy(mode="Off")),), (400, 64)),
        ((vpa(**policy(controlledResources=["memory"])),), (100, 256)),
        ((vpa(targetRef={"kind": "Deployment", "name": "other"}),), (400, 64)),
        ((vpa(targetRef=None),), (400, 64)),
    ],
    ids=["none", "default", "initial", "in place", "off", "policy", "memory", "other", "no target"],
)
def test_the_recommendation_decides_where_it_is_applied(
    found: tuple[VerticalPodAutoscaler, ...], expected: tuple[int, int]
) -> None:
    assert asked(*found) == expected


def test_a_vpa_that_is_gone_decides_nothing() -> None:
    state = ClusterState()
    state.vpas.upsert(vpa())
    assert state.snapshot().vpas
    state.vpas.delete(vpa())
    assert not state.snapshot().vpas


def test_a_recommendation_for_another_container_decides_nothing() -> None:
    other = vpa()
    recommended = other.status.recommendation
    assert recommended is not None
    assert recommended.container_recommendations is not None
    recommended.container_recommendations[0].container_name = "sidecar"
    assert asked(other) == (100, 64)
