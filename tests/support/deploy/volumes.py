# SPDX-License-Identifier: Apache-2.0
"""The volumes of a played pod, filled as the kubelet would from the real API server.

ConfigMaps are files behind links that are turned when they change, paths of the host are what
a test puts in their place, and each pod gets the token of its account, the cluster's
certificate authority and its namespace.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.stands.cluster import Cluster

TOKEN_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


class Volume:
    """Mounted files, changed as the kubelet does it: by turning a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, data: Mapping[str, str]) -> None:
        """Show this content from now on."""
        version = self.folder / f"..{secrets.token_hex(4)}"
        version.mkdir(parents=True)
        for key, text in data.items():
            (version / key).write_text(text)
            if not (self.folder / key).is_symlink():
                (self.folder / key).symlink_to(f"..data/{key}")
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(version.name)
        fresh.rename(self.folder / "..data")


async def filled(
    cluster: Cluster, folder: Path, pod: Json, host_paths: Mapping[str, Path]
) -> dict[str, Path]:
    """Fill the volumes of a pod, and the one of its account that the kubelet adds."""
    made: dict[str, Path] = {}
    for volume in pod["spec"].get("volumes", ()):
        if "hostPath" in volume:
            made[volume["name"]] = host_paths[volume["hostPath"]["path"]]
        else:
            content = await _config_map(cluster, pod, volume["configMap"]["name"])
            made[volume["name"]] = folder / volume["name"]
            Volume(made[volume["name"]]).write(content)
    if account := pod["spec"].get("serviceAccountName"):
        made[TOKEN_FOLDER] = await _account(cluster, folder / "account", pod, account)
    return made


async def _config_map(cluster: Cluster, pod: Json, name: str) -> dict[str, str]:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{name}"
    found = await asyncio.to_thread(cluster.control_plane.api.get, path)
    data: dict[str, str] = found["data"]
    return data


async def _account(cluster: Cluster, folder: Path, pod: Json, account: str) -> Path:
    namespace = pod["metadata"]["namespace"]
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request: Json = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {},
    }
    api = cluster.control_plane.api
    token = (await asyncio.to_thread(api.request, "POST", path, request))["status"]["token"]
    authority = await _config_map(cluster, pod, "kube-root-ca.crt")
    Volume(folder).write({**authority, "token": token, "namespace": namespace})
    return folder
