# SPDX-License-Identifier: Apache-2.0
"""A real control plane for one test or benchmark.

A test gets its own namespaces and nodes; afterwards everything is cleaned up: stopped components
run again, the scheduler has the shipped configuration, and the objects of the test, all pods and
all nodes are gone. Tests run one after the other, so only the nodes of the running test exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import secrets
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import yaml

from common.api.contract import API_VERSION, CORDONED_BY, MAINTENANCE_LABEL
from common.clock import SYSTEM
from common.kube.client import KubeClient, connect
from controlplane import kubeconfig, nodes
from controlplane.api import Json
from controlplane.cluster import ControlPlane
from controlplane.errors import Refused
from controlplane.nodes import NodeSpec
from controlplane.scheduler_config import SHIPPED

T = TypeVar("T")

PAUSE_S = 0.1
ABSENT = "Absent"
MERGE = "application/merge-patch+json"
AT_ONCE: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
RBAC = "rbac.authorization.k8s.io"


class Cluster:
    """A real cluster for one test."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self.control_plane = control_plane
        self.kubeconfig: Path = control_plane.kubeconfig
        self.namespace = f"test-{secrets.token_hex(3)}"
        self._folder = folder
        self._namespaces: list[str] = []
        self._strays: list[str] = []
        self._node_count = 0
        self._reconfigured = False

    @contextlib.asynccontextmanager
    async def client(
        self,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        service_account: str | None = None,
        qps: float = 1000,
        burst: int = 1000,
    ) -> AsyncIterator[KubeClient]:
        """Connect as the administrator, as a user, or as a service account."""
        path = await self.kubeconfig_of(user=user, groups=groups, service_account=service_account)
        async with connect(kubeconfig=str(path), qps=qps, burst=burst, clock=SYSTEM) as client:
            yield client

    async def kubeconfig_of(
        self,
        *,
        user: str | None = None,
        groups: Sequence[str] = (),
        service_account: str | None = None,
    ) -> Path:
        """Write the kubeconfig of a user or of a service account (`name`, `namespace/name`)."""
        if user is None and service_account is None:
            return self.kubeconfig
        issue = self._issue_token if user is None else self._issue_certificate
        text = await asyncio.to_thread(issue, user or service_account or "", groups)
        path = self._folder / f"{secrets.token_hex(4)}.kubeconfig"
        kubeconfig.write(path, text)
        return path

    async def create(self, objects: Iterable[Json]) -> list[Json]:
        """Create objects of any kind; the default namespace is that of the test."""
        made = await asyncio.to_thread(
            self.control_plane.api.create, list(objects), namespace=self.namespace
        )
        self._remember(made)
        return made

    async def apply(self, objects: Iterable[Json]) -> list[Json]:
        """Create or update objects."""
        made = await asyncio.to_thread(
            self.control_plane.api.apply, list(objects), namespace=self.namespace
        )
        self._remember(made)
        return made

    async def add_nodes(
        self,
        count: int,
        *,
        cpu: str = nodes.CPU,
        memory: str = nodes.MEMORY,
        pods: int = nodes.PODS,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        zones: int = 0,
    ) -> list[str]:
        """Add nodes, wait until they are schedulable, and return their names."""
        spec = NodeSpec(cpu=cpu, memory=memory, pods=pods, labels=labels or {}, taints=taints)
        first = self._node_count + 1
        self._node_count += count
        manifests = nodes.manifests(
            count, spec, zones=zones, prefix=f"{self.namespace}-node-", first=first
        )
        await asyncio.to_thread(self.control_plane.add_nodes, manifests)
        return [manifest["metadata"]["name"] for manifest in manifests]

    async def patch_node(self, name: str, body: Json) -> None:
        """Change a node as the administrator."""
        request = self.control_plane.api.request
        path = f"/api/v1/nodes/{name}"
        await asyncio.to_thread(request, "PATCH", path, body, content_type=MERGE)

    async def maintain(self, node: str, *, on: bool) -> None:
        """Start or end the maintenance of a node."""
        labels = {MAINTENANCE_LABEL: "true" if on else None}
        await self.patch_node(node, {"metadata": {"labels": labels}})

    async def forget_migrations(self) -> None:
        """Delete all Migrations; no rebalancer is left that would take its finalizer off."""
        await asyncio.to_thread(self._delete_migrations)

    async def new_namespace(self) -> str:
        """Create another namespace that is deleted with the test."""
        return await self._make_namespace(f"{self.namespace}-{len(self._namespaces)}")

    async def bind(self, user: str, *role_files: Path) -> None:
        """Give a user exactly the roles in these files; other objects in them are left out."""
        roles = [role for file in role_files for role in _roles(file)]
        for name in sorted({role["metadata"].get("namespace", self.namespace) for role in roles}):
            await self._ensure_namespace(name)
        await self.apply(roles)
        await self.apply(_binding(role, user) for role in roles)

    async def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as the administrator in the test's namespace; return what it prints."""
        plane = self.control_plane
        command = [plane.kubectl, f"--kubeconfig={self.kubeconfig}", f"-n={self.namespace}"]
        done = await asyncio.to_thread(
            subprocess.run,
            [*map(str, command), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={"HOME": str(plane.folder.home)},
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    async def start(self, component: str) -> None:
        await asyncio.to_thread(self.control_plane.start, component)

    async def stop(self, component: str) -> None:
        await asyncio.to_thread(self.control_plane.stop, component)

    async def kill(self, component: str) -> None:
        """Kill a component, like a crash."""
        await asyncio.to_thread(self.control_plane.kill, component)

    async def restart(self, component: str) -> None:
        await asyncio.to_thread(self.control_plane.restart, component)

    async def configure_scheduler(self, source: Path, *, extender_url: str | None = None) -> None:
        """Restart kube-scheduler with another configuration until the test ends."""
        self._reconfigured = True
        await asyncio.to_thread(
            self.control_plane.configure_scheduler, source, extender_url=extender_url
        )

    @overload
    async def wait(
        self, predicate: Callable[[], Awaitable[T]], timeout_s: float = ..., what: str = ...
    ) -> T: ...

    @overload
    async def wait(
        self, predicate: Callable[[], T], timeout_s: float = ..., what: str = ...
    ) -> T: ...

    async def wait(
        self,
        predicate: Callable[[], Any],
        timeout_s: float = 60.0,
        what: str = "what the test waits for",
    ) -> Any:
        """Call the predicate until its result, awaited if necessary, is true; return it."""
        deadline = SYSTEM.monotonic() + timeout_s
        while True:
            answer = predicate()
            value = await answer if inspect.isawaitable(answer) else answer
            if value:
                return value
            assert SYSTEM.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
            await SYSTEM.sleep(PAUSE_S)

    async def open(self) -> None:
        """Create the namespace of the test."""
        await self._make_namespace(self.namespace)

    async def clear(self) -> None:
        """Remove everything that the test has left."""
        for component in self.control_plane.ended():
            await self.start(component)
        if self._reconfigured:
            await asyncio.to_thread(self.control_plane.configure_scheduler, SHIPPED)
        await asyncio.to_thread(self._delete_objects)
        await self.wait(
            lambda: asyncio.to_thread(self._no_pods), what="the pods of the test are gone"
        )
        await asyncio.to_thread(self._delete_nodes)
        # Applying a CRD that is being deleted would leave the next test without it.
        await self.wait(
            lambda: asyncio.to_thread(self._no_definitions), what="definitions of the test are gone"
        )

    async def _make_namespace(self, name: str) -> str:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await asyncio.to_thread(self.control_plane.api.create, [namespace])
        self._namespaces.append(name)
        return name

    async def _ensure_namespace(self, name: str) -> None:
        """Create a namespace if it does not exist; wait for one that is being deleted."""
        phase = await self.wait(lambda: self._phase_of(name), what=f"the end of {name}")
        if phase == ABSENT:
            await self._make_namespace(name)

    async def _phase_of(self, namespace: str) -> str:
        """Return the phase of a namespace; empty while it is terminating."""
        found = await asyncio.to_thread(self._found, f"/api/v1/namespaces/{namespace}")
        if found is None:
            return ABSENT
        phase = str(found["status"]["phase"])
        return "" if phase == "Terminating" else phase

    def _issue_certificate(self, user: str, groups: Sequence[str]) -> str:
        return self.control_plane.kubeconfigs.for_user(user, groups)

    def _issue_token(self, account: str, _: Sequence[str]) -> str:
        namespace, _, name = account.rpartition("/")
        plane = self.control_plane
        return plane.kubeconfigs.for_service_account(plane.api, namespace or self.namespace, name)

    def _remember(self, made: Iterable[Json]) -> None:
        """Remember objects that are not deleted with the namespaces of the test."""
        api = self.control_plane.api
        for obj in made:
            if obj["metadata"].get("namespace") not in self._namespaces:
                self._strays.append(f"{api.path_of(obj)}/{obj['metadata']['name']}")

    def _delete_migrations(self) -> None:
        api, path = self.control_plane.api, f"/apis/{API_VERSION}/migrations"
        held = (self._found(path) or {"items": []})["items"]
        for name in [m["metadata"]["name"] for m in held if "finalizers" in m["metadata"]]:
            body = {"metadata": {"finalizers": None}}
            api.request("PATCH", f"{path}/{name}", body, content_type=MERGE)
        if held:
            api.delete(path)

    def _delete_objects(self) -> None:
        api = self.control_plane.api
        self._delete_migrations()
        # Before the pods: nothing can be created in a terminating namespace.
        api.delete_all(f"/api/v1/namespaces/{name}" for name in self._namespaces)
        for path in reversed(self._strays):
            api.delete(path)

    def _no_definitions(self) -> bool:
        paths = (path for path in self._strays if "/customresourcedefinitions/" in path)
        return all(self._found(path) is None for path in paths)

    def _found(self, path: str) -> Json | None:
        """Return an object; None if it does not exist."""
        try:
            return self.control_plane.api.get(path)
        except Refused as refusal:
            if refusal.status != 404:
                raise
            return None

    def _no_pods(self) -> bool:
        api = self.control_plane.api
        pods = api.get("/api/v1/pods")["items"]
        for pod in pods:
            if pod["metadata"].get("finalizers"):
                self._free(pod)
        for namespace in {pod["metadata"]["namespace"] for pod in pods}:
            api.delete(f"/api/v1/namespaces/{namespace}/pods", AT_ONCE)
        return not pods

    def _free(self, pod: Json) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        body = {"metadata": {"finalizers": None}}
        with contextlib.suppress(Refused):
            self.control_plane.api.request("PATCH", path, body, content_type=MERGE)

    def _delete_nodes(self) -> None:
        api = self.control_plane.api
        found = api.get("/api/v1/nodes")["items"]
        if self.control_plane.cgroups:
            self._restore_nodes([node["metadata"]["name"] for node in found])
            return
        api.delete_all(f"/api/v1/nodes/{node['metadata']['name']}" for node in found)

    def _restore_nodes(self, names: Sequence[str]) -> None:
        """Make real nodes usable again: a kubelet does not register a second time."""
        body = {
            "metadata": {"labels": {MAINTENANCE_LABEL: None}, "annotations": {CORDONED_BY: None}},
            "spec": {"unschedulable": None},
        }
        for name in names:
            path = f"/api/v1/nodes/{name}"
            self.control_plane.api.request("PATCH", path, body, content_type=MERGE)


def _roles(file: Path) -> list[Json]:
    documents = yaml.safe_load_all(file.read_text())
    return [d for d in documents if d and d["kind"] in ("ClusterRole", "Role")]


def _binding(role: Json, user: str) -> Json:
    metadata = {"name": f"{role['metadata']['name']}-{user}".replace(":", "-")}
    if namespace := role["metadata"].get("namespace"):
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
