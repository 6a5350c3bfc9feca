# SPDX-License-Identifier: Apache-2.0
"""Where the API server serves what."""

from __future__ import annotations

import pytest

from common.kube.resources import LEASES, MIGRATIONS, NODES, POD_METRICS, PODS, Resource


@pytest.mark.parametrize(
    ("resource", "where", "path"),
    [
        (NODES, {}, "/api/v1/nodes"),
        (NODES, {"name": "n1"}, "/api/v1/nodes/n1"),
        (NODES, {"name": "n1", "subresource": "status"}, "/api/v1/nodes/n1/status"),
        (PODS, {}, "/api/v1/pods"),
        (PODS, {"namespace": "a"}, "/api/v1/namespaces/a/pods"),
        (
            PODS,
            {"namespace": "a", "name": "p", "subresource": "eviction"},
            "/api/v1/namespaces/a/pods/p/eviction",
        ),
        (
            LEASES,
            {"namespace": "kube-system", "name": "x"},
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x",
        ),
        (POD_METRICS, {}, "/apis/metrics.k8s.io/v1beta1/pods"),
        (MIGRATIONS, {"name": "m"}, "/apis/evenkeel.io/v1alpha1/migrations/m"),
        (NODES, {"name": "system:ä b"}, "/api/v1/nodes/system:%C3%A4%20b"),
        (NODES, {"name": "a?b#c"}, "/api/v1/nodes/a%3Fb%23c"),
    ],
)
def test_a_path_leads_to_the_object(resource: Resource, where: dict[str, str], path: str) -> None:
    assert resource.path(**where) == path


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        (PODS, {"name": "p"}),
        (PODS, {"namespace": "a", "name": ""}),
        (PODS, {"namespace": "a", "subresource": "status"}),
        (NODES, {"namespace": "a"}),
        (NODES, {"name": ".."}),
        (NODES, {"name": "."}),
        (NODES, {"name": "a/b"}),
        (NODES, {"name": "%2e%2e"}),
        (PODS, {"namespace": "..", "name": "p"}),
    ],
)
def test_a_path_that_would_lead_elsewhere_is_refused(
    resource: Resource, where: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"path|name|namespace"):
        resource.path(**where)


def test_the_core_group_is_left_out_of_the_api_version() -> None:
    assert (PODS.api_version, LEASES.api_version) == ("v1", "coordination.k8s.io/v1")
