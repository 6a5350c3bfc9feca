# SPDX-License-Identifier: Apache-2.0
"""Requests to extenders and their responses, decoded as Go does.

The structs have no JSON tags in Go (kube-scheduler/extender/v1/types.go), so keys are sent in
PascalCase and read in any case; of two that differ only in case the last wins. Only the first
JSON value of a body counts. Numbers must be whole and fit 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec

from simulator.api import Json

_encode: Final = msgspec.json.Encoder().encode
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


class WireError(ValueError):
    """A response that Go could not decode."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The response to a filter call; None means that a list was omitted."""

    node_names: tuple[str, ...] | None = None
    nodes: tuple[Json, ...] | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class HostScore:
    host: str
    score: int


@dataclass(frozen=True, slots=True)
class Victims:
    """The victims on a node, by uid."""

    uids: tuple[str, ...]
    violations: int = 0


def arguments(pod: Json, names: Sequence[str] | None, nodes: Sequence[Json] | None) -> bytes:
    """Return the body of a filter or prioritize call."""
    listed = None
    if nodes is not None:
        listed = {"metadata": {}, "items": [untyped(node) for node in nodes]}
    return _encode({"Pod": untyped(pod), "Nodes": listed, "NodeNames": names})


def preemption_arguments(
    pod: Json, meta: Mapping[str, Victims], full: Mapping[str, Sequence[Json]] | None
) -> bytes:
    """Return the body of a preempt call; with `full` the victims themselves are sent."""
    by_uid = {
        name: {
            "Pods": [{"UID": uid} for uid in victims.uids],
            "NumPDBViolations": victims.violations,
        }
        for name, victims in meta.items()
    }
    if full is None:
        return _encode(
            {"Pod": untyped(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": by_uid}
        )
    whole = {
        name: {
            "Pods": [untyped(each) for each in pods],
            "NumPDBViolations": meta[name].violations,
        }
        for name, pods in full.items()
    }
    return _encode({"Pod": untyped(pod), "NodeNameToVictims": whole, "NodeNameToMetaVictims": None})


def binding_arguments(pod: Json, node: str) -> bytes:
    """Return the body of a bind call."""
    metadata = pod["metadata"]
    return _encode(
        {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
    )


def untyped(obj: Json) -> Json:
    """Return an object as informers keep it: without type and managed fields."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    kept = {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")}
    return {**kept, "metadata": metadata}


def filter_answer(body: bytes) -> FilterAnswer:
    """Decode the response to a filter call."""
    values = _object(_first(body))
    return FilterAnswer(
        node_names=_texts(values.get("nodenames"), "NodeNames"),
        nodes=_nodes(values.get("nodes")),
        failed=_reasons(values.get("failednodes"), "FailedNodes"),
        unresolvable=_reasons(
            values.get("failedandunresolvablenodes"), "FailedAndUnresolvableNodes"
        ),
        error=_text(values.get("error"), "Error"),
    )


def scores_answer(body: bytes) -> tuple[HostScore, ...]:
    """Decode the response to a prioritize call."""
    found = []
    for item in _list(_first(body), "HostPriorityList"):
        values = _object(item)
        host = _text(values.get("host"), "Host")
        found.append(HostScore(host, _whole(values.get("score"), "Score")))
    return tuple(found)


def victims_answer(body: bytes) -> dict[str, Victims]:
    """Decode the response to a preempt call."""
    values = _object(_first(body))
    by_node = _mapping(values.get("nodenametometavictims"), "NodeNameToMetaVictims")
    found = {}
    for name, given in by_node.items():
        if given is None:
            # The real kube-scheduler panics here.
            raise WireError(f"no victims for node {name}: kube-scheduler would crash")
        victims = _object(given)
        pods = [_object(pod) for pod in _list(victims.get("pods"), "Pods")]
        uids = tuple(_text(pod.get("uid"), "UID") for pod in pods)
        violations = _whole(victims.get("numpdbviolations"), "NumPDBViolations")
        found[name] = Victims(uids, violations)
    return found


def binding_answer(body: bytes) -> str:
    """Return the error of the response to a bind call, if any."""
    return _text(_object(_first(body)).get("error"), "Error")


def _first(body: bytes) -> Any:  # Any: whatever an extender sends
    try:
        text = body.decode()
        if not text.strip():
            raise WireError("EOF")
        value, _ = _DECODER.raw_decode(text.lstrip())
    except UnicodeDecodeError as error:
        raise WireError(f"not UTF-8: {error}") from None
    except RecursionError:
        raise WireError("exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise WireError(f"invalid JSON: {error}") from None
    return value


def _not_json(name: str) -> NoReturn:
    raise WireError(f"invalid character {name[0]!r} looking for beginning of value")


_DECODER: Final = json.JSONDecoder(parse_constant=_not_json)


def _object(value: Any) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"cannot unmarshal {_kind(value)} into an object")
    return {key.lower(): each for key, each in value.items()}


def _mapping(value: Any, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(f"cannot unmarshal {_kind(value)} into field {name}")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise WireError(f"cannot unmarshal {_kind(value)} into {name}")
    return value


def _text(value: Any, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"cannot unmarshal {_kind(value)} into field {name} of type string")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    return tuple(_text(each, name) for each in _list(value, name))


def _reasons(value: Any, name: str) -> dict[str, str]:
    return {node: _text(reason, name) for node, reason in _mapping(value, name).items()}


def _nodes(value: Any) -> tuple[Json, ...] | None:
    if value is None:
        return None
    items = _list(_object(value).get("items"), "items")
    return tuple(_mapping(each, "items") for each in items)


def _whole(value: Any, name: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not _SMALLEST <= value <= _LARGEST:
        raise WireError(f"cannot unmarshal {_kind(value)} into field {name} of type int64")
    return value


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "bool"}
    return names.get(type(value), "number")
