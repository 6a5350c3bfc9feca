# SPDX-License-Identifier: Apache-2.0
"""Strategic merge: lists of built-in kinds merge by key, as kubectl expects.

Follows apimachinery/pkg/util/strategicpatch/patch.go (v0.36), including where merged items
end up. Which lists merge is defined by field name, from the struct tags of k8s.io/api; all
other lists are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator.api.errors import BadRequest, InternalError
from simulator.api.storage import Json

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "drivers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_MERGED_SCALARS: Final = frozenset({"finalizers", "podCIDRs"})

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_ORDER: Final = "$setElementOrder/"
_REMOVE: Final = "$deleteFromPrimitiveList/"


def strategic_merge(original: Json, patch: Json) -> Json:
    """Return the object with a strategic merge patch applied."""
    return _merged_map(original, patch)


def _merged_map(original: Json, patch: Json) -> Json:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequest(f"unknown patch type: {directive}")
    made = _retained(original, patch)
    for key, value in patch.items():
        if key.startswith(_REMOVE):
            field = key[len(_REMOVE) :]
            gone = _list_of(key, value)
            made[field] = [each for each in made.get(field) or () if each not in gone]
        elif not key.startswith("$"):
            _merge_field(made, key, value, patch.get(_ORDER + key))
    for key in patch:
        field = key[len(_ORDER) :]
        if key.startswith(_ORDER) and field not in patch and isinstance(made.get(field), list):
            made[field] = _merged_list(field, made[field], [], patch[key])
    return made


def _list_of(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"the value of {key} must be a list")
    return value


def _retained(original: Json, patch: Json) -> Json:
    kept = patch.get(_RETAIN)
    return dict(original) if kept is None else {k: v for k, v in original.items() if k in kept}


def _merge_field(made: Json, key: str, value: Any, order: list[Any] | None) -> None:
    before = made.get(key)
    if value is None:
        made.pop(key, None)
    elif isinstance(value, dict):
        made[key] = _merged_map(before if isinstance(before, dict) else {}, value)
    elif isinstance(value, list) and _merges(key, value):
        made[key] = _merged_list(key, before if isinstance(before, list) else [], value, order)
    else:
        made[key] = value


def _merges(field: str, value: list[Any]) -> bool:
    return _key_of(field, value) is not None or field in _MERGED_SCALARS


def _key_of(field: str, items: list[Any]) -> str | None:
    if field != "ports":
        return _MERGE_KEYS.get(field)
    # The only field name with different merge keys, in containers and in services.
    container = any(isinstance(item, dict) and "containerPort" in item for item in items)
    return "containerPort" if container else "port"


def _merged_list(
    field: str, original: list[Any], patch: list[Any], order: list[Any] | None
) -> list[Any]:
    key = _key_of(field, [*original, *patch])
    if key is None:
        added = [item for item in patch if item not in original]
        return _ordered([*original, *added], patch, order, original, key)
    for item in patch:
        if not isinstance(item, dict):
            raise BadRequest(f"{field} must hold objects")
    if any(item.get(_DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if item.get(_DIRECTIVE) != "replace"]
    gone = [_value(item, key) for item in patch if item.get(_DIRECTIVE) == "delete"]
    changes = [item for item in patch if item.get(_DIRECTIVE) != "delete"]
    merged = {_value(item, key): item for item in original if _value(item, key) not in gone}
    for item in changes:
        value = _value(item, key)
        merged[value] = _merged_map(merged.get(value, {}), item)
    return _ordered(list(merged.values()), changes, order, original, key)


def _value(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:
        shown = " ".join(f"{k}:{v}" for k, v in item.items()) if isinstance(item, dict) else item
        message = f"map: map[{shown}] does not contain declared merge key: {key}"
        raise InternalError(message)
    return _scalar(item[key])


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise BadRequest("a plain value is wanted to tell list items apart")
    return value


def _ordered(
    merged: list[Any],
    patch: list[Any],
    order: list[Any] | None,
    original: list[Any],
    key: str | None,
) -> list[Any]:
    """Order items as in the patch, and keep the position of those only the server has."""

    def identity(item: Any) -> Any:
        return _scalar(item) if key is None else _value(item, key)

    wanted = [identity(item) for item in (patch if order is None else _list_of("order", order))]
    live = [identity(item) for item in original]
    by_id = {identity(item): item for item in merged}
    patched = [each for each in wanted if each in by_id]
    server_only = [identity(item) for item in merged if identity(item) not in patched]
    made: list[Any] = []
    while patched and server_only:
        left, right = server_only[0], patched[0]
        first = left in live and right in live and live.index(left) < live.index(right)
        made.append((server_only if first else patched).pop(0))
    return [by_id[each] for each in (*made, *server_only, *patched)]
