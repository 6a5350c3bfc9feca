# SPDX-License-Identifier: Apache-2.0
"""What `deploy/` becomes when it is rendered, applied and removed with kubectl.

A test writes a kustomization as a user would, with an overlay and the components that it
wants. Everything goes through the kubectl of the control plane's binaries.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from bench.stands.cluster import Cluster
from controlplane.build import toolbox
from tests.support.repository import DEPLOY

OURS: Final = "evenkeel"
OUR_LABEL: Final = f"app.kubernetes.io/name:{OURS}"
REMOVAL: Final = ("--ignore-not-found", "--timeout=90s")
SECOND: Final = "overlays/second-scheduler"
CONTROL_PLANE: Final = "overlays/control-plane"
OPT_IN: Final = {"evenkeel.io/scheduler": "evenkeel-scheduler"}
NAMESPACES: Final = ("evenkeel", "evenkeel-control-plane")
PATIENCE_S: Final = 90.0
# What happened is told by Events, and they end by themselves.
NOT_LOOKED_AT: Final = frozenset({"events", "events.events.k8s.io"})

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


def kustomization(folder: Path, base: str, components: Iterable[str] = ()) -> Path:
    """Write a kustomization of one part of `deploy/` and some of its components."""
    folder.mkdir()
    content = {
        "resources": [_relative(folder, DEPLOY / base)],
        "components": [_relative(folder, DEPLOY / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return folder


def render(folder: Path) -> list[Json]:
    """Return the objects that a folder stands for."""
    text = _kubectl("kustomize", str(folder))
    return [document for document in yaml.safe_load_all(text) if document]


def named(objects: Iterable[Json], kind: str, name: str) -> Json:
    """Return the one object of a kind and name."""
    [found] = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return found


def patched(manifest: Json, patch: Path) -> Json:
    """Return a manifest after a JSON patch, as the documentation has people apply it."""
    command = ["patch", "--local", "-f", "-", "--type=json", f"--patch-file={patch}", "-o", "json"]
    found: Json = yaml.safe_load(_kubectl(*command, stdin=yaml.safe_dump(manifest)))
    return found


@asynccontextmanager
async def installed(cluster: Cluster, *folders: Path) -> AsyncIterator[None]:
    """Apply folders one over the other; remove the last and see that nothing stays.

    It is applied once more over itself, which must not change anything, and everything must be
    there as it was rendered: what an API server leaves out or writes in another way is drift
    for ever to those who compare (Argo CD, Flux).
    """
    await cluster.wait(lambda: _all_gone(cluster), PATIENCE_S, "what was there before is gone")
    before = await traces(cluster)
    try:
        for folder in folders:
            await _apply(cluster, folder)
        objects = render(folders[-1])
        first = await _live(cluster, objects)
        pairs = zip(objects, first, strict=True)
        assert [each for pair in pairs for each in drift(*pair, pair[0]["kind"])] == []
        await _apply(cluster, folders[-1])
        assert [*map(_mark, await _live(cluster, objects))] == [*map(_mark, first)]
        yield
    finally:
        await kubectl(cluster, "delete", "-k", str(folders[-1]), *REMOVAL)
    after = await traces(cluster)
    assert after == before, f"left or lost: {sorted(after ^ before)}"


def drift(wanted: Any, found: Any, path: str) -> Iterator[str]:
    """Return the fields that were asked for and are not there, or not as they were asked for."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from drift(value, found.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (value, other) in enumerate(zip(wanted, found, strict=True)):
            yield from drift(value, other, f"{path}[{number}]")
    elif wanted != found:
        yield f"{path}: {wanted!r} became {found!r}"


async def kubectl(cluster: Cluster, *arguments: str) -> str:
    """Run kubectl as the administrator, in no particular namespace."""
    return await asyncio.to_thread(_kubectl, f"--kubeconfig={cluster.kubeconfig}", *arguments)


async def traces(cluster: Cluster) -> set[str]:
    """Name every object of any kind that bears our name or our label."""
    kinds = (await kubectl(cluster, "api-resources", "--verbs=list", "-o", "name")).split()
    wanted = ",".join(kind for kind in kinds if kind not in NOT_LOOKED_AT)
    columns = "-o=custom-columns=A:.kind,B:.metadata.name,C:.metadata.labels"
    lines = (await kubectl(cluster, "get", wanted, "-A", "--no-headers", columns)).splitlines()
    rows = [line.split(maxsplit=2) for line in lines]
    return {f"{kind} {name}" for kind, name, labels in rows if OURS in name or OUR_LABEL in labels}


async def pods_of(
    cluster: Cluster, namespace: str, component: str, count: int, *, phase: str = "Running"
) -> list[Json]:
    """Return the pods of a component, once its controller has made so many of this phase."""
    selector = f"app.kubernetes.io/name={OURS},app.kubernetes.io/component={component}"
    path = f"/api/v1/namespaces/{namespace}/pods"

    async def ready() -> list[Json]:
        found = await asyncio.to_thread(cluster.control_plane.api.get, path, labelSelector=selector)
        pods: list[Json] = [p for p in found["items"] if p["status"]["phase"] == phase]
        return [_typed(pod) for pod in pods] if len(pods) == count else []

    what = f"{count} pods of the {component} are {phase}"
    made: list[Json] = await cluster.wait(ready, PATIENCE_S, what)
    return made


async def _apply(cluster: Cluster, folder: Path) -> None:
    """Apply a folder on the server's side; an unknown or doubled field is an error."""
    await kubectl(cluster, "apply", "--server-side", "--validate=strict", "-k", str(folder))


async def _live(cluster: Cluster, objects: Sequence[Json]) -> list[Json]:
    """Return objects as the API server has them."""
    api = cluster.control_plane.api
    paths = [f"{api.path_of(each)}/{each['metadata']['name']}" for each in objects]
    return await asyncio.gather(*(asyncio.to_thread(api.get, path) for path in paths))


def _mark(live: Json) -> str:
    """Return by what an object is known to have been changed by no one.

    That is its generation, which a changed status does not raise, or else its version.
    """
    metadata = live["metadata"]
    return str(metadata.get("generation") or metadata["resourceVersion"])


async def _all_gone(cluster: Cluster) -> bool:
    """Tell whether nothing of an installation is there, and nothing of another test is going."""
    found = await asyncio.to_thread(cluster.control_plane.api.get, "/api/v1/namespaces")
    those = [each["metadata"] for each in found["items"]]
    return not any("deletionTimestamp" in each or each["name"] in NAMESPACES for each in those)


def _typed(pod: Json) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _relative(folder: Path, part: Path) -> str:
    return os.path.relpath(part.resolve(), folder.resolve())


def _kubectl(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [str(toolbox().binary("kubectl")), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        # It would make a home, and keep what it has learnt there.
        env={"HOME": "/nonexistent", "KUBECACHEDIR": os.devnull},
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
    return done.stdout
