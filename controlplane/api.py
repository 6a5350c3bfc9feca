# SPDX-License-Identifier: Apache-2.0
"""The administrator's access to the API server of this control plane.

Synchronous and small: it creates the objects of the control plane and of tests. Any kind can
be sent as a plain dict; its path comes from discovery. Bulk calls share a few connections.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from controlplane.errors import ConfigError, Refused

Json = dict[str, Any]  # API objects as they are on the wire

APPLY = "application/apply-patch+yaml"  # JSON is YAML
FIELD_MANAGER = "evenkeel-controlplane"
WORKERS = 16
TIMEOUT_S = 30.0


class Api:
    """One pool of connections with a client certificate; usable from several threads."""

    def __init__(self, server: str, *, ca: Path, certificate: Path, key: Path) -> None:
        tls = ssl.create_default_context(cafile=str(ca))
        tls.load_cert_chain(certificate, key)
        self._http = httpx.Client(
            base_url=server,
            verify=tls,
            timeout=TIMEOUT_S,
            # On loopback compression costs more than it saves.
            headers={"Accept-Encoding": "identity"},
            # Loopback never goes through a proxy, even if the environment sets one.
            trust_env=False,
        )
        self._served: dict[str, dict[str, Json]] = {}

    def close(self) -> None:
        self._http.close()

    def answers(self, url: str) -> bool:
        """Return whether a URL, absolute or a path, answers 200 now."""
        try:
            return self._http.get(url, timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request; raise `Refused` with the server's message on an error status."""
        headers = {"Content-Type": content_type}
        try:
            answer = self._http.request(method, path, json=body, params=params, headers=headers)
        except httpx.TransportError as error:
            raise Refused(0, f"{method} {path}: {str(error) or type(error).__name__}") from error
        if answer.is_error:
            raise Refused(answer.status_code, f"{method} {path}: {_message(answer)}")
        content: Json = answer.json()
        return content

    def get(self, path: str, **params: str) -> Json:
        return self.request("GET", path, params=params)

    def delete(self, path: str, body: Json | None = None) -> None:
        """Delete an object or a collection; it need not exist."""
        try:
            self.request("DELETE", path, body)
        except Refused as refusal:
            if refusal.status != 404:
                raise

    def create(self, objects: Iterable[Json], *, namespace: str = "default") -> list[Json]:
        """Create objects; those without a namespace that need one get `namespace`."""
        return _all(functools.partial(self._create, namespace), objects)

    def apply(self, objects: Iterable[Json], *, namespace: str = "default") -> list[Json]:
        """Apply objects with server-side apply: created or updated."""
        return _all(functools.partial(self._apply, namespace), objects)

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete many objects."""
        _all(self.delete, paths)

    def path_of(self, obj: Json, *, namespace: str = "default") -> str:
        """Return the path of an object's collection."""
        version, kind = obj["apiVersion"], obj["kind"]
        resource = self._resources(version).get(kind) or self._learn(version, kind)
        base = _base(version)
        if resource["namespaced"]:
            base += "/namespaces/" + obj["metadata"].get("namespace", namespace)
        return f"{base}/{resource['name']}"

    def _create(self, namespace: str, obj: Json) -> Json:
        return self.request("POST", self.path_of(obj, namespace=namespace), obj)

    def _apply(self, namespace: str, obj: Json) -> Json:
        path = f"{self.path_of(obj, namespace=namespace)}/{obj['metadata']['name']}"
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self.request("PATCH", path, obj, params=params, content_type=APPLY)

    def _resources(self, version: str) -> dict[str, Json]:
        """Return what a group version serves, by kind; subresources are left out."""
        if version not in self._served:
            found = self.get(_base(version))["resources"]
            kinds = {entry["kind"]: entry for entry in found if "/" not in entry["name"]}
            self._served[version] = kinds
        return self._served[version]

    def _learn(self, version: str, kind: str) -> Json:
        """Discover a kind again, because its CRD may be newer than the last discovery."""
        self._served.pop(version, None)
        try:
            return self._resources(version)[kind]
        except KeyError:
            raise ConfigError(f"the API server does not serve {kind} in {version}") from None


def _all(call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(call, items))


def _base(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}"
