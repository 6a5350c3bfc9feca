# SPDX-License-Identifier: Apache-2.0
"""Manifests, validated as strictly as `kubectl apply --validate=strict` does it.

By the OpenAPI description of a release of Kubernetes: an object's group, version and kind must
exist there, and all of its fields, with values of their types. What an API server checks beyond
that, such as expressions and the values of enumerations, is not in the description.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

OTHERS: Final = ("monitoring.coreos.com/", "kyverno.io/")
"""Groups of other projects: no release of Kubernetes knows them."""


class Description:
    """What one release says of its API."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._validator = cache(self._made)

    def complaints(self, obj: Json) -> Iterator[str]:
        """Return what is wrong with an object, each with its path."""
        if obj["apiVersion"].startswith(OTHERS):
            return
        named = f"{obj['kind']} {obj['metadata']['name']}"
        validator = self._validator(obj["apiVersion"], obj["kind"])
        if validator is None:
            yield f"{named}: there is no {obj['apiVersion']} {obj['kind']}"
            return
        for error in validator.iter_errors(obj):
            yield f"{named}: {error.json_path}: {error.message}"

    def _made(self, api_version: str, kind: str) -> Draft202012Validator | None:
        group, _, version = api_version.rpartition("/")
        folders = ("apis", group, version) if group else ("api", version)
        path = self._folder / f"{'__'.join(folders)}_openapi.json"
        if not path.exists():
            return None
        schemas = json.loads(path.read_text())["components"]["schemas"]
        wanted = {"group": group, "version": version, "kind": kind}
        names = [
            name
            for name, schema in schemas.items()
            if wanted in schema.get("x-kubernetes-group-version-kind", ())
        ]
        if not names:
            return None
        strict = {name: _closed(schema) for name, schema in schemas.items()}
        return Draft202012Validator(
            {"$ref": f"#/components/schemas/{names[0]}", "components": {"schemas": strict}}
        )


def _closed(value: Any) -> Any:
    """Return a schema in which no object has fields that are not named."""
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _closed(each) for key, each in value.items()}
    if isinstance(made.get("properties"), dict) and isinstance(made.get("type"), str):
        made.setdefault("additionalProperties", False)
    return made
