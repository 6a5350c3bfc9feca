# SPDX-License-Identifier: Apache-2.0
"""Register metrics-server behind the API server's aggregation layer.

There is no cluster network: a Service of type ExternalName points the aggregator to
`localhost`, at the port of the APIService.
"""

from __future__ import annotations

import base64

from controlplane.api import Api, Json

NAMESPACE = "kube-system"
SERVICE = "metrics-server"
GROUP, VERSION = "metrics.k8s.io", "v1beta1"
API_SERVICE = f"{VERSION}.{GROUP}"
_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"


def manifests(port: int, ca: bytes) -> list[Json]:
    """Return the Service and the APIService of metrics-server on a loopback port."""
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    api_service: Json = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": SERVICE, "namespace": NAMESPACE, "port": port},
            "caBundle": base64.b64encode(ca).decode(),
        },
    }
    return [service, api_service]


def available(api: Api) -> bool:
    """Return whether the API server reaches metrics-server."""
    conditions = api.get(_PATH).get("status", {}).get("conditions", [])
    return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)
