# SPDX-License-Identifier: Apache-2.0
"""Discovery: which groups, versions and kinds are served, and the OpenAPI documents.

Discovery has only the unaggregated form, to which all clients fall back. The OpenAPI documents
are valid and describe nothing: kubectl skips validation of a kind that is not described
(cli-runtime/pkg/resource/query_param_verifier_v3.go and kubectl/pkg/validation/validation.go,
v0.36), but fails if there is no document. Fields that are therefore checked by neither side
are named in a warning on the response to the write.
"""

from __future__ import annotations

from typing import Final

import msgspec

from common.kube.resources import NODE_METRICS, POD_METRICS, Resource
from simulator.api.kind import Kind, Kinds
from simulator.api.storage import Json

VERSION: Final[Json] = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.4+evenkeel-simulator",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}
_SCHEMA_VERSION: Final = "v1.36.4"
_TITLE: Final = "Evenkeel's simulator: schemas are not described"
_JSON: Final = "application/json"
# Requested with an at sign, which is no media type; sent without (pkg/handler of kube-openapi).
_ASKED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO: Final = {"title": _TITLE, "version": _SCHEMA_VERSION}
OPENAPI_V3: Final[Json] = {"paths": {}}
METRICS_GROUP: Final = (NODE_METRICS.group, NODE_METRICS.version)
_CHANGE: Final = ("get", "patch", "update")
_BINDING: Final[Json] = {
    "name": "bindings",
    "singularName": "binding",
    "namespaced": True,
    "kind": "Binding",
    "verbs": ["create"],
}


class Discovery:
    """Describes what the server serves now."""

    def __init__(self, kinds: Kinds, address: str, *, metrics: bool) -> None:
        self._kinds = kinds
        self._address = address
        self._metrics = metrics

    def core_versions(self) -> Json:
        """Answer `/api`."""
        here = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [here]}

    def groups(self) -> Json:
        """Answer `/apis`."""
        groups = [self._group(name) for name in dict.fromkeys(g for g, _ in self._served() if g)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Json | None:
        """Answer `/apis/<group>`, if there is such a group."""
        if not any(group == name for group, _ in self._served()):
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name)}

    def resources(self, group: str, version: str) -> Json | None:
        """Answer `/apis/<group>/<version>`, if there is such a version."""
        if (group, version) not in self._served():
            return None
        listed: list[Json] = []
        for _, kind in sorted((self._kinds.group_version(group, version) or {}).items()):
            listed += _entries(kind)
        if (group, version) == ("", "v1"):
            listed.insert(0, _BINDING)
        if (group, version) == METRICS_GROUP:
            listed = [_metrics_entry(NODE_METRICS), _metrics_entry(POD_METRICS)]
        name = f"{group}/{version}" if group else version
        head = {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {})}
        return {**head, "groupVersion": name, "resources": listed}

    def paths(self) -> Json:
        """Answer `/`."""
        groups = [f"/apis/{g}/{v}" for g, v in self._served() if g]
        others = ["/healthz", "/openapi/v2", "/openapi/v3", "/version"]
        return {"paths": ["/api", "/api/v1", "/apis", *sorted(groups), *others]}

    def _served(self) -> list[tuple[str, str]]:
        return [*self._kinds.group_versions(), *([METRICS_GROUP] if self._metrics else [])]

    def _group(self, name: str) -> Json:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for group, version in self._served()
            if group == name
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _entries(kind: Kind) -> list[Json]:
    resource = kind.resource
    scope = {"namespaced": resource.namespaced}
    entry: Json = {
        "name": resource.plural,
        "singularName": kind.names.singular,
        **scope,
        "kind": resource.kind,
        "verbs": list(kind.verbs),
    }
    if kind.names.short:
        entry["shortNames"] = list(kind.names.short)
    if kind.names.categories:
        entry["categories"] = list(kind.names.categories)
    listed = [entry]
    for sub in kind.subresources.others:
        named = {"name": f"{resource.plural}/{sub.name}", "singularName": "", **scope}
        origin = {"group": sub.group, "version": sub.version} if sub.group else {}
        listed.append({**named, **origin, "kind": sub.kind, "verbs": list(sub.verbs)})
    if kind.subresources.status:
        named = {"name": f"{resource.plural}/status", "singularName": "", **scope}
        listed.append({**named, "kind": resource.kind, "verbs": list(_CHANGE)})
    return listed


def _metrics_entry(resource: Resource) -> Json:
    return {
        "name": resource.plural,
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": ["get", "list"],
    }


def openapi_v2(accept: str) -> tuple[bytes, str]:
    """Return the document and its media type: protobuf if requested, as kubectl does."""
    if _ASKED in accept or _PROTOBUF in accept:
        return _IN_PROTOBUF, _PROTOBUF
    return msgspec.json.encode({"swagger": "2.0", "info": _INFO, "paths": {}}), _JSON


def _text(number: int, value: bytes) -> bytes:
    """Return a field in protobuf's wire format; all of ours are shorter than 128 bytes."""
    return bytes((number << 3 | 2, len(value))) + value


# gnostic-models/openapiv2/OpenAPIv2.proto: a Document has swagger (1) and info (2).
_IN_PROTOBUF: Final = _text(1, b"2.0") + _text(
    2, _text(1, _TITLE.encode()) + _text(2, _SCHEMA_VERSION.encode())
)
