# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs: self-contained files with the credentials of a user.

Certificates, keys and tokens are embedded, so that a file can be copied anywhere. Users
need no registration: a certificate of our authority is enough.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from controlplane.api import Api
from controlplane.certificates import Authority
from controlplane.errors import ConfigError

CLUSTER = "evenkeel-controlplane"


class Kubeconfigs:
    """Issues kubeconfigs for one API server."""

    def __init__(self, server: str, authority: Authority) -> None:
        self._server = server
        self._authority = authority

    def for_user(self, user: str, groups: Sequence[str] = ()) -> str:
        """Return the kubeconfig of a user, with a new client certificate."""
        pair = self._authority.client(user, groups)
        identity = {
            "client-certificate-data": _base64(pair.certificate),
            "client-key-data": _base64(pair.key),
        }
        return self._text(user, identity)

    def for_service_account(self, api: Api, namespace: str, name: str) -> str:
        """Return the kubeconfig of a service account, with a token that `api` asks for."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = api.request("POST", path, request)["status"]["token"]
        return self._text(f"system:serviceaccount:{namespace}:{name}", {"token": token})

    def _text(self, user: str, identity: Mapping[str, str]) -> str:
        cluster = {
            "server": self._server,
            "certificate-authority-data": _base64(self._authority.pair.certificate),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": CLUSTER, "cluster": cluster}],
            "users": [{"name": user, "user": dict(identity)}],
            "contexts": [{"name": CLUSTER, "context": {"cluster": CLUSTER, "user": user}}],
            "current-context": CLUSTER,
        }
        return yaml.safe_dump(content, sort_keys=False)


def write(path: Path, text: str) -> None:
    """Write a kubeconfig that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def check_overwrite(path: Path) -> None:
    """Raise if the file exists and is not a kubeconfig of ours."""
    if not path.exists():
        return
    try:
        content = yaml.safe_load(path.read_text())
        names = [cluster["name"] for cluster in content["clusters"]]
    except (OSError, UnicodeError, yaml.YAMLError, KeyError, TypeError):
        names = []
    if names != [CLUSTER]:
        raise ConfigError(
            f"{path} exists and is not a kubeconfig of ours: choose another --kubeconfig-out"
        )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
