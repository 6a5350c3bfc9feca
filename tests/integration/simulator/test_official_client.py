# SPDX-License-Identifier: Apache-2.0
"""The official Python client works against the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import client, config, watch

from common.kube.resources import PODS
from simulator import build
from tests.support.stands.simulated import SimulatedApi, simulated_api


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(tmp_path) as running:
        yield running


@pytest.fixture
async def official(api: SimulatedApi) -> AsyncIterator[Any]:
    configuration = client.Configuration()
    await config.load_kube_config(str(api.kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as connection:
        yield connection


async def test_creates_reads_patches_and_deletes(official: Any) -> None:
    core = client.CoreV1Api(official)
    made = await core.create_namespaced_pod("default", build.pod("web"))
    assert made.metadata.uid
    assert made.spec.restart_policy == "Always"
    body = {"metadata": {"labels": {"x": "1"}}}
    patched = await core.patch_namespaced_pod("web", "default", body)
    assert patched.metadata.labels["x"] == "1"
    pods = await core.list_namespaced_pod("default", label_selector="x=1", limit=10)
    assert [pod.metadata.name for pod in pods.items] == ["web"]
    await core.delete_namespaced_pod("web", "default", grace_period_seconds=0)
    with pytest.raises(client.ApiException) as refused:
        await core.read_namespaced_pod("web", "default")
    assert refused.value.status == 404


async def test_watches(official: Any, api: SimulatedApi) -> None:
    core = client.CoreV1Api(official)
    api.store.create(PODS, build.pod("a"))
    seen = []
    async with watch.Watch() as stream:
        async for event in stream.stream(core.list_namespaced_pod, "default", timeout_seconds=10):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 1:
                api.store.create(PODS, build.pod("b"))
            if len(seen) == 2:
                break
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


async def test_evicts_and_is_told_why_not(official: Any, api: SimulatedApi) -> None:
    core, policy = client.CoreV1Api(official), client.PolicyV1Api(official)
    for name in ("a", "b"):
        api.store.create(PODS, build.pod(name, node="node-1", labels={"app": "web"}))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        api.store.patch(PODS, name, {"status": status}, namespace="default", status=True)
    budget = build.pdb("budget", match={"app": "web"}, min_available=1)
    await policy.create_namespaced_pod_disruption_budget("default", budget)
    allowed = 0
    while allowed != 1:
        found = await policy.read_namespaced_pod_disruption_budget("budget", "default")
        allowed = found.status.disruptions_allowed

    def eviction(name: str) -> Any:
        return client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace="default"))

    await core.create_namespaced_pod_eviction("a", "default", eviction("a"))
    with pytest.raises(client.ApiException) as refused:
        await core.create_namespaced_pod_eviction("b", "default", eviction("b"))
    assert refused.value.status == 429
    assert "DisruptionBudget" in refused.value.body
    assert "Retry-After" not in refused.value.headers


async def test_reads_custom_resources(official: Any) -> None:
    extensions = client.ApiextensionsV1Api(official)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }
    await extensions.create_custom_resource_definition(definition)
    custom = client.CustomObjectsApi(official)
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "x": 1}
    await custom.create_cluster_custom_object("example.com", "v1", "things", thing)
    listed = await custom.list_cluster_custom_object("example.com", "v1", "things")
    assert [item["x"] for item in listed["items"]] == [1]
