# SPDX-License-Identifier: Apache-2.0
"""The real cluster that tests are given: usage, rights, faults, and a clean end."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import httpx
import pytest

from bench.stands.cluster import Cluster
from common.cluster.quantities import milli, whole
from common.kube.client import KubeClient
from common.kube.errors import Forbidden, NotFound, Unreachable
from common.kube.resources import NAMESPACES, NODES, PODS
from controlplane.certificates import Authority
from controlplane.cluster import ControlPlane
from controlplane.components import CA
from simulator import build

READER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-node-reader}
rules:
  - {apiGroups: [""], resources: [nodes], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: test-pod-reader}
rules:
  - {apiGroups: [""], resources: [pods], verbs: [list]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: not-a-role}
"""


async def test_metrics_server_measures_the_annotated_usage(cluster: Cluster) -> None:
    await cluster.add_nodes(2)
    busy = build.deployment(
        "busy", 4, namespace=cluster.namespace, usage_cpu="500m", usage_memory="256Mi"
    )
    await cluster.create([busy])
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{cluster.namespace}/pods"

    async with cluster.client() as client:

        async def measured() -> list[dict[str, str]]:
            items = json.loads(await client.get(path))["items"]
            return [container["usage"] for item in items for container in item["containers"]]

        async def as_annotated() -> bool:
            # The first measurements are of pods that start, and may be anything.
            used = [milli(usage["cpu"]) for usage in await measured()]
            return used == [pytest.approx(500, rel=0.02)] * 4

        await cluster.wait(as_annotated, timeout_s=120, what="four pods measured")
        assert {whole(usage["memory"]) for usage in await measured()} == {256 << 20}


async def test_a_user_may_do_nothing_until_bound(cluster: Cluster) -> None:
    async with cluster.client(user="nobody") as client:
        with pytest.raises(Forbidden, match='User "nobody" cannot list resource "nodes"'):
            await client.get(NODES.path())


async def test_a_bound_user_may_do_what_the_roles_say_and_nothing_else(
    cluster: Cluster, tmp_path: Path
) -> None:
    roles = tmp_path / "reader.yaml"
    roles.write_text(READER)
    await cluster.bind("reader", roles)
    async with cluster.client(user="reader") as client:
        await client.get(NODES.path())
        await client.get(PODS.path(namespace=cluster.namespace))
        with pytest.raises(Forbidden):
            await client.get(PODS.path(namespace="kube-system"))
        with pytest.raises(Forbidden):
            await client.delete(NODES, name="any")


async def test_a_service_account_logs_in_with_a_token(cluster: Cluster) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await cluster.create([account])
    robot = f"system:serviceaccount:{cluster.namespace}:robot"
    async with cluster.client(service_account="robot") as client:
        with pytest.raises(Forbidden, match=f'User "{robot}" cannot list'):
            await client.get(NODES.path())


async def test_groups_come_from_the_certificate(cluster: Cluster) -> None:
    async with cluster.client(user="anyone", groups=("staff", "system:masters")) as client:
        await client.get(NODES.path())


def test_a_certificate_of_another_authority_is_not_accepted(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    stranger = Authority.create("stranger").client("admin", ("system:masters",))
    stranger.write(tmp_path / "crt", tmp_path / "key")
    trusting = ssl.create_default_context(cafile=control_plane.folder.certificate(CA))
    trusting.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    answer = httpx.get(f"{control_plane.server}/api/v1/nodes", verify=trusting, trust_env=False)
    assert answer.status_code == 401


def test_the_servers_are_known_only_to_who_trusts_their_authority(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    Authority.create("stranger").pair.write(tmp_path / "crt", tmp_path / "key")
    doubting = ssl.create_default_context(cafile=tmp_path / "crt")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(control_plane.server, verify=doubting, trust_env=False)


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
async def test_a_killed_component_comes_back_with_its_data(
    cluster: Cluster, component: str
) -> None:
    [node] = await cluster.add_nodes(1)
    await cluster.kill(component)
    async with cluster.client() as client:
        if component == "kube-apiserver":
            with pytest.raises(Unreachable):
                await client.get(NODES.path(name=node))
        await cluster.start(component)

        async def found() -> bool:
            return bool(await client.get(NODES.path(name=node)))

        assert await cluster.wait(found)


async def test_nothing_of_a_test_remains(control_plane: ControlPlane, tmp_path: Path) -> None:
    cluster = Cluster(control_plane, tmp_path)
    await cluster.open()
    await cluster.add_nodes(2, cpu="4", labels={"pool": "a"})
    stuck = build.pod("stuck", namespace=cluster.namespace)
    stuck["metadata"]["finalizers"] = ["evenkeel.io/never"]
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": cluster.namespace},
        "value": 7,
    }
    work = build.deployment("work", 3, namespace=cluster.namespace)
    elsewhere = build.deployment("work", 1, namespace="default")
    await cluster.create([stuck, priority, work, elsewhere])
    await cluster.wait(lambda: _running(cluster, 5), what="five running pods")
    await cluster.stop("kube-scheduler")

    await cluster.clear()

    api = control_plane.api
    assert control_plane.ended() == []
    assert api.get("/api/v1/nodes")["items"] == []
    assert api.get("/api/v1/pods")["items"] == []
    assert api.get("/apis/apps/v1/namespaces/default/deployments")["items"] == []
    async with cluster.client() as client:
        with pytest.raises(NotFound):
            await client.get(f"/apis/scheduling.k8s.io/v1/priorityclasses/{cluster.namespace}")
        await cluster.wait(lambda: _absent(client, cluster.namespace), what="namespace gone")


async def test_kubectl_works_in_the_namespace_of_the_test(cluster: Cluster) -> None:
    await cluster.create([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here"}}])
    assert "configmap/here" in await cluster.kubectl("get", "configmaps", "-o", "name")


async def _running(cluster: Cluster, count: int) -> bool:
    pods = cluster.control_plane.api.get("/api/v1/pods")["items"]
    return [pod["status"]["phase"] for pod in pods] == ["Running"] * count


async def _absent(client: KubeClient, namespace: str) -> bool:
    try:
        await client.get(NAMESPACES.path(name=namespace))
    except NotFound:
        return True
    return False
