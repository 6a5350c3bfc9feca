# SPDX-License-Identifier: Apache-2.0
"""A pod of the real API server, run on this machine without containers.

The flags, users, environment, mounts and probes are those of the Pod object. Its programs
run in mount, network and process namespaces of their own (`unshare`), each in a root that
holds what its image would: the layout, environment and working folder of the Dockerfile, with
this repository's sources and virtual environment in place of the copied ones, or the
scheduler's binary. So ports and paths are the manifest's own, and nothing can be written.
The API server is at the address that every cluster gives its pods, with the account's token
and the cluster's CA where the kubelet would mount them.

As root the programs run as the user that the pod names; anybody else runs them as himself,
in a user namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from bench.stands.cluster import Cluster
from bench.stands.extender_process import Metrics, last_output
from controlplane.components import FIRST_SERVICE_ADDRESS
from tests.support.deploy import inside as deploy_inside
from tests.support.deploy.containers import lasting
from tests.support.deploy.image import Image
from tests.support.deploy.volumes import TOKEN_FOLDER, Volume, filled

POD_ADDRESS: Final = "10.244.0.2"
LOOPBACK: Final = "127.0.0.1"
START_S: Final = 60.0
READY_S: Final = 60.0
END_S: Final = 40.0

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


class RunningPods:
    """Pods whose programs run; a test can ask their probes and look at what they count."""

    def __init__(
        self,
        containers: Mapping[str, Json],
        folder: Path,
        sockets: Path,
        process: asyncio.subprocess.Process,
    ) -> None:
        self._containers = containers
        self._folder = folder
        self._sockets = sockets
        self._process = process

    async def ready(self, cluster: Cluster) -> None:
        """Wait until the readiness probe of each container is content."""
        try:
            await cluster.wait(self.is_ready, READY_S, "the probes are content")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.words()}") from None

    async def is_ready(self) -> bool:
        """Tell whether the readiness probe of each container is content."""
        assert self._process.returncode is None, f"the pod has ended\n{self.words()}"
        answers = [await self._answers(each) for each in self._containers.values()]
        return all(answers)

    async def get(self, container: str, path: str, **headers: str) -> httpx.Response:
        """Ask the health port of a container, where its probe would."""
        found = self._containers[container]
        probe = found["readinessProbe"]["httpGet"]
        return await self._ask(found, {**probe, "path": path}, headers)

    async def forwarded(self, container: str, path: str, **headers: str) -> httpx.Response:
        """Ask the health port of a container on loopback, as `kubectl port-forward` does."""
        found = self._containers[container]
        probe = found["readinessProbe"]["httpGet"]
        return await self._ask(found, {**probe, "host": LOOPBACK, "path": path}, headers)

    async def post(self, port: int, path: str, body: Json) -> httpx.Response:
        """Ask a port that is on the loopback of the pod."""
        transport = httpx.AsyncHTTPTransport(uds=str(_socket(self._sockets, LOOPBACK, port)))
        async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
            return await http.post(f"http://pod{path}", json=body)

    def volume(self, name: str) -> Volume:
        """Return a mounted ConfigMap by the name of the volume."""
        return Volume(self._folder / "volumes" / name)

    async def metrics(self, container: str) -> Metrics:
        return Metrics((await self.get(container, "/metrics")).text)

    def words(self) -> str:
        """Return the last words of each container."""
        return "\n".join(f"{log.name}: {last_output(log)}" for log in self._folder.glob("*.log"))

    async def stop(self) -> int:
        """Ask all containers to end; return the worst exit code."""
        if self._process.returncode is None and self._process.stdin is not None:
            self._process.stdin.close()
        try:
            return await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def _answers(self, container: Json) -> bool:
        with contextlib.suppress(httpx.TransportError):
            probe = container["readinessProbe"]["httpGet"]
            return (await self._ask(container, probe, {})).is_success
        return False

    async def _ask(
        self, container: Json, probe: Json, headers: Mapping[str, str]
    ) -> httpx.Response:
        transport = httpx.AsyncHTTPTransport(
            uds=str(_socket(self._sockets, *_address(container, probe))),
            verify=False,  # the scheduler makes its certificate itself
        )
        scheme = probe.get("scheme", "HTTP").lower()
        async with httpx.AsyncClient(transport=transport, trust_env=False) as http:
            return await http.get(f"{scheme}://pod{probe['path']}", headers=dict(headers))


@asynccontextmanager
async def pods_running(
    cluster: Cluster,
    folder: Path,
    pods: Sequence[Json],
    images: Mapping[str, Image],
    *,
    host_paths: Mapping[str, Path] | None = None,
) -> AsyncIterator[RunningPods]:
    """Run pods that share a network: one pod, or those of a host, each container by its image."""
    await asyncio.to_thread(folder.mkdir, mode=0o755)
    containers = {each["name"]: each for pod in pods for each in lasting(pod["spec"])}
    # Not in `folder`: the path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="pod-") as made:
        sockets = Path(made)
        api = sockets / "api.sock"
        told = {
            "hostname": pods[0]["metadata"]["name"],
            "addresses": [FIRST_SERVICE_ADDRESS, POD_ADDRESS],
            "relays": [
                {"listen": [FIRST_SERVICE_ADDRESS, 443], "to": [str(api)]},
                *_ways_in(sockets, containers.values()),
            ],
            "containers": [
                each
                for pod in pods
                for each in await _containers(cluster, folder, pod, images, host_paths or {})
            ],
        }
        async with _api_socket(cluster.control_plane.server, api):
            running = RunningPods(containers, folder, sockets, await _unshared(folder, told))
            try:
                yield running
            finally:
                await running.stop()


@asynccontextmanager
async def image_running(
    folder: Path,
    image: Image,
    pod: Json,
    volumes: Mapping[str, Path],
    *,
    server: str,
    ports: Iterable[int],
) -> AsyncIterator[RunningPods]:
    """Run a pod that no API server knows, of one image.

    It finds a server of this machine's loopback on its own loopback; a test may ask these
    ports of it there.
    """
    await asyncio.to_thread(folder.mkdir, mode=0o755)
    containers = {each["name"]: each for each in lasting(pod["spec"])}
    with tempfile.TemporaryDirectory(prefix="pod-") as made:
        sockets = Path(made)
        api = sockets / "api.sock"
        told = {
            "hostname": pod["metadata"]["name"],
            "addresses": [POD_ADDRESS],
            "relays": [
                {"listen": [LOOPBACK, httpx.URL(server).port], "to": [str(api)]},
                *(_way_in(sockets, LOOPBACK, port) for port in ports),
                *_ways_in(sockets, containers.values()),
            ],
            "containers": [
                _container(pod, each, image, volumes, folder) for each in containers.values()
            ],
        }
        async with _api_socket(server, api):
            running = RunningPods(containers, folder, sockets, await _unshared(folder, told))
            try:
                yield running
            finally:
                await running.stop()


async def run_once(folder: Path, image: Image, argv: Sequence[str], *, user: int = 65532) -> str:
    """Run a command in a container of an image to its end, and return what it printed."""
    await asyncio.to_thread(folder.mkdir, mode=0o755)
    container = {
        "name": "once",
        "command": list(argv),
        "securityContext": {"readOnlyRootFilesystem": True, "runAsUser": user},
    }
    pod: Json = {"metadata": {"name": "once"}, "spec": {"containers": [container]}}
    made = {**_container(pod, container, image, {}, folder), "env": dict(image.environment)}
    told = {"hostname": "once", "addresses": [], "relays": [], "containers": [made], "once": True}
    process = await _unshared(folder, told)
    code = await asyncio.wait_for(process.wait(), START_S)
    output = (folder / "once.log").read_text()
    assert code == 0, output
    return output


async def _containers(
    cluster: Cluster,
    folder: Path,
    pod: Json,
    images: Mapping[str, Image],
    host_paths: Mapping[str, Path],
) -> list[Json]:
    volumes = await filled(cluster, folder / "volumes", pod, host_paths)
    return [
        _container(pod, each, images[each["name"]], volumes, folder)
        for each in lasting(pod["spec"])
    ]


async def _unshared(folder: Path, told: Json) -> asyncio.subprocess.Process:
    """Start the inside of a pod; return when it has started the containers."""
    (folder / "pod.json").write_text(json.dumps(told))
    namespaces = ["--mount", "--net", "--pid", "--uts", "--fork", "--kill-child"]
    me = [] if os.geteuid() == 0 else ["--map-root-user"]
    process = await asyncio.create_subprocess_exec(
        *("unshare", *me, *namespaces, sys.executable, deploy_inside.__file__),
        str(folder / "pod.json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", "")},
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        assert line == b"started\n", "the namespaces of a pod cannot be made: run as root"
    except (AssertionError, TimeoutError):
        process.kill()
        await process.wait()
        raise
    return process


def _container(
    pod: Json, container: Json, image: Image, volumes: Mapping[str, Path], folder: Path
) -> Json:
    root = folder / f"{container['name']}.root"
    root.mkdir()
    mounts = {m["mountPath"]: str(volumes[m["name"]]) for m in _mounts(container)}
    token = volumes.get(TOKEN_FOLDER)
    user = _user(pod["spec"], container)
    return {
        "root": str(root),
        "mounts": {**image.mounts, **mounts, **({TOKEN_FOLDER: str(token)} if token else {})},
        "links": dict(image.links),
        "readOnly": bool(container.get("securityContext", {}).get("readOnlyRootFilesystem")),
        "argv": [*container["command"], *container.get("args", ())],
        "env": {**image.environment, **_environment(container)},
        "workdir": image.workdir,
        "user": user if os.geteuid() == 0 else None,
        "group": user,
        "log": str(folder / f"{container['name']}.log"),
    }


def _user(spec: Json, container: Json) -> int | None:
    contexts = (container.get("securityContext", {}), spec.get("securityContext", {}))
    return next((int(c["runAsUser"]) for c in contexts if "runAsUser" in c), None)


def _environment(container: Json) -> dict[str, str]:
    assert "env" not in container, "the shipped pods need no variables"
    return {
        "KUBERNETES_SERVICE_HOST": FIRST_SERVICE_ADDRESS,
        "KUBERNETES_SERVICE_PORT": "443",
    }


def _mounts(container: Json) -> list[Json]:
    found: list[Json] = container.get("volumeMounts", [])
    return found


def _ways_in(folder: Path, containers: Iterable[Json]) -> list[Json]:
    """Return relays to the ports that the kubelet probes, where it does and on loopback."""
    probes = [(container, container["readinessProbe"]["httpGet"]) for container in containers]
    probed = {_address(container, probe) for container, probe in probes}
    probed |= {_address(container, {**probe, "host": LOOPBACK}) for container, probe in probes}
    return [_way_in(folder, host, port) for host, port in sorted(probed)]


def _way_in(folder: Path, host: str, port: int) -> Json:
    return {"listen": [str(_socket(folder, host, port))], "to": [host, port]}


def _address(container: Json, probe: Json) -> tuple[str, int]:
    """Return where the kubelet asks: at the pod's address, unless the probe names another."""
    named = {each["name"]: each["containerPort"] for each in container.get("ports", ())}
    port: str | int = probe["port"]
    return probe.get("host", POD_ADDRESS), int(named.get(port) or port)


def _socket(folder: Path, host: str, port: int) -> Path:
    return folder / f"{host}-{port}.sock"


@asynccontextmanager
async def _api_socket(server: str, path: Path) -> AsyncIterator[None]:
    """Lead from a socket in the file system, which pods can reach, to the API server."""
    url = httpx.URL(server)
    way: dict[str, list[Any]] = {"listen": [str(path)], "to": [url.host, url.port]}
    listening = await deploy_inside.relay(way)
    try:
        yield
    finally:
        listening.close()
