# SPDX-License-Identifier: Apache-2.0
"""The real kubectl binary works against the simulator, as far as a curious person goes.

What kubectl sends as protobuf (`kubectl create deployment`) is refused with 415, and that
unknown fields of manifests are not looked for is warned of; both are said plainly rather than
done wrongly.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.kube.resources import DEPLOYMENTS, NODES, PODS
from controlplane.build import build as build_binaries
from simulator import build
from tests.support.stands.conformance import Json
from tests.support.stands.simulated import SimulatedApi, simulated_api
from tests.support.worlds.migrations import definition, manifest_of


class _Metrics:
    """Every node uses half a core."""

    def is_registered(self) -> bool:
        return True

    def node_metrics(self) -> Iterable[Json]:
        usage = {"cpu": "500m", "memory": "1Gi"}
        times = {"timestamp": "2026-11-16T09:00:00Z", "window": "10s"}
        return [{"metadata": {"name": "node-1"}, **times, "usage": usage}]

    def pod_metrics(self) -> Iterable[Json]:
        return []


Kubectl = Callable[..., Coroutine[Any, Any, str]]


@pytest.fixture(scope="session")
def binary() -> Path:
    return build_binaries().binary("kubectl")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(tmp_path, metrics=_Metrics()) as running:
        running.store.create(NODES, build.node("node-1"))
        yield running


@pytest.fixture
def kubectl(api: SimulatedApi, binary: Path, tmp_path: Path) -> Kubectl:
    async def run(*arguments: str, stdin: Json | None = None, fails: bool = False) -> str:
        """Run kubectl; return what it prints, or what it complains about."""
        done = await asyncio.to_thread(
            subprocess.run,
            [str(binary), f"--kubeconfig={api.kubeconfig}", *arguments],
            input=None if stdin is None else yaml.safe_dump(stdin),
            capture_output=True,
            text=True,
            env={"HOME": str(tmp_path)},
            timeout=60,
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout + done.stderr

    return run


async def test_get_prints_tables(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(PODS, build.pod("web", node="node-1"))
    nodes = (await kubectl("get", "nodes")).splitlines()
    assert nodes[0].split() == ["NAME", "STATUS", "ROLES", "VERSION", "AGE"]
    assert nodes[1].split()[:2] == ["node-1", "Unknown"]
    pods = await kubectl("get", "pods", "--all-namespaces", "--output=wide")
    assert "NAMESPACE" in pods
    assert "node-1" in pods
    assert await kubectl("get", "po", "web", "--output=jsonpath={.spec.nodeName}") == "node-1"


async def test_get_finds_every_kind(kubectl: Kubectl) -> None:
    listed = await kubectl("api-resources", "--output=name")
    kinds = [line for line in listed.splitlines() if line and not line.startswith("bindings")]
    assert {"deployments.apps", "poddisruptionbudgets.policy", "leases.coordination.k8s.io"} <= set(
        kinds
    )
    served = [kind for kind in kinds if "metrics.k8s.io" not in kind]
    await kubectl("get", ",".join(served), "--all-namespaces")


async def test_label_and_annotate_change_metadata(kubectl: Kubectl, api: SimulatedApi) -> None:
    await kubectl("label", "node", "node-1", "color=red")
    await kubectl("annotate", "node", "node-1", "why=because")
    metadata = api.store.get(NODES, "node-1")["metadata"]
    assert metadata["labels"]["color"] == "red"
    assert metadata["annotations"]["why"] == "because"
    await kubectl("label", "node", "node-1", "color-")
    assert "color" not in api.store.get(NODES, "node-1")["metadata"]["labels"]


async def test_cordon_uncordon_and_taint_change_nodes(kubectl: Kubectl, api: SimulatedApi) -> None:
    await kubectl("cordon", "node-1")
    assert api.store.get(NODES, "node-1")["spec"]["unschedulable"] is True
    assert "SchedulingDisabled" in await kubectl("get", "nodes")
    await kubectl("uncordon", "node-1")
    assert "unschedulable" not in api.store.get(NODES, "node-1")["spec"]
    await kubectl("taint", "node", "node-1", "a=b:NoSchedule")
    taints = api.store.get(NODES, "node-1")["spec"]["taints"]
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in taints


async def test_scale_sets_replicas(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(DEPLOYMENTS, build.deployment("web", 1))
    await kubectl("scale", "deployment", "web", "--replicas=3", "--current-replicas=1")
    assert api.store.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 3
    assert (await kubectl("get", "deploy", "web")).splitlines()[1].split()[:2] == ["web", "0/3"]


async def test_manifests_are_created_applied_and_replaced(
    kubectl: Kubectl, api: SimulatedApi
) -> None:
    manifest = build.deployment("web", 1)
    await kubectl("create", "-f", "-", stdin=manifest)
    await kubectl("apply", "-f", "-", stdin=build.deployment("web", 2))
    assert api.store.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 2
    await kubectl("replace", "-f", "-", stdin=build.deployment("web", 4))
    assert api.store.get(DEPLOYMENTS, "web", "default")["spec"]["replicas"] == 4


async def test_unknown_fields_are_warned_of_or_refused_where_the_kind_is_described(
    kubectl: Kubectl, api: SimulatedApi
) -> None:
    assert "created" in await kubectl("apply", "-f", "-", stdin=definition())
    misspelt = {**build.deployment("web", 1), "spce": {}}
    for _ in "created", "patched":
        said = await kubectl("apply", "-f", "-", stdin=misspelt)
        assert "does not look for unknown fields" in said
    move = manifest_of()
    assert "created" in await kubectl("create", "-f", "-", stdin=move)
    wrong = {**manifest_of(), "spce": {}}
    assert 'unknown field "spce"' in await kubectl("create", "-f", "-", stdin=wrong, fails=True)


async def test_patch_takes_every_kind_of_patch(kubectl: Kubectl, api: SimulatedApi) -> None:
    for kind, patch in (
        ("strategic", '{"metadata": {"labels": {"a": "1"}}}'),
        ("merge", '{"metadata": {"labels": {"b": "2"}}}'),
        ("json", '[{"op": "add", "path": "/metadata/labels/c", "value": "3"}]'),
    ):
        await kubectl("patch", "node", "node-1", f"--type={kind}", f"--patch={patch}")
    labels = api.store.get(NODES, "node-1")["metadata"]["labels"]
    assert {labels[key] for key in "abc"} == {"1", "2", "3"}


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(DEPLOYMENTS, build.deployment("web", 0))
    api.store.create(PODS, build.pod("web", node="node-1"))
    assert "deleted" in await kubectl("delete", "deployment", "web")
    await kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert api.store.list(PODS) == []
    await kubectl("delete", "node", "node-1")
    assert "not found" in (await kubectl("get", "node", "node-1", fails=True))


async def test_describe_and_events_work(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(PODS, build.pod("web", node="node-1"))
    described = await kubectl("describe", "pod", "web")
    assert "Node:" in described
    assert "QoS Class:" in described
    await kubectl("describe", "node", "node-1")
    await kubectl("get", "events")


async def test_top_shows_what_was_measured(kubectl: Kubectl) -> None:
    (_, row) = (await kubectl("top", "nodes")).splitlines()
    assert row.split() == ["node-1", "500m", "6%", "1024Mi", "3%"]


async def test_watching_sees_changes(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(PODS, build.pod("web", node="node-1"))
    waiting = asyncio.create_task(kubectl("wait", "--for=condition=Ready", "pod/web"))
    while not api.faults.open_watches:
        await asyncio.wait([waiting], timeout=0.02)
        assert not waiting.done(), await waiting
    ready = {"type": "Ready", "status": "True"}
    api.store.patch(
        PODS, "web", {"status": {"conditions": [ready]}}, namespace="default", status=True
    )
    assert "condition met" in await waiting


async def test_what_cannot_be_done_is_said(kubectl: Kubectl, api: SimulatedApi) -> None:
    api.store.create(PODS, build.pod("web", node="node-1"))
    assert "does not support pods/log" in await kubectl("logs", "web", fails=True)
    create = ("create", "deployment", "web", "--image=x")
    assert "accepted media types include" in await kubectl(*create, fails=True)
