# SPDX-License-Identifier: Apache-2.0
"""The status of a Deployment.

Follows calculateStatus (sync.go) and syncRolloutStatus (progress.go) in
pkg/controller/deployment of v1.36, without the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simulator.api import Json

_PROGRESSING: Final = "Progressing"
_AVAILABLE: Final = "Available"
_DONE: Final = "NewReplicaSetAvailable"


def deployment_status(
    deployment: Json, sets: Sequence[Json], new: Json | None, max_unavailable: int, now: str
) -> Json:
    """Return the status of a Deployment that has these sets."""
    wanted = deployment["spec"]["replicas"]
    before = deployment.get("status") or {}
    replicas, ready = _sum(sets, "replicas"), _sum(sets, "readyReplicas")
    available = _sum(sets, "availableReplicas")
    unavailable = max(0, sum(each["spec"]["replicas"] for each in sets) - available)
    counts = {
        "replicas": replicas,
        "updatedReplicas": _sum([new], "replicas") if new is not None else 0,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": unavailable,
        "terminatingReplicas": _sum(sets, "terminatingReplicas"),
    }
    status: Json = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        **{key: count for key, count in counts.items() if count},
    }
    enough = available >= wanted - max_unavailable
    conditions = _with(before.get("conditions") or [], _availability(enough), now)
    done = counts["updatedReplicas"] == wanted == replicas == available
    if deployment["spec"].get("paused"):
        paused = _condition(_PROGRESSING, "Unknown", "DeploymentPaused", "Deployment is paused")
        conditions = _with(conditions, paused, now)
    elif new is not None and not (_is_done(conditions) and replicas == counts["updatedReplicas"]):
        conditions = _with(conditions, _progress(new, done=done), now)
    return {**status, "conditions": conditions}


def _sum(sets: Sequence[Json], key: str) -> int:
    return sum((each.get("status") or {}).get(key, 0) for each in sets)


def _availability(enough: bool) -> Json:
    if enough:
        message = "Deployment has minimum availability."
        return _condition(_AVAILABLE, "True", "MinimumReplicasAvailable", message)
    message = "Deployment does not have minimum availability."
    return _condition(_AVAILABLE, "False", "MinimumReplicasUnavailable", message)


def _progress(new: Json, *, done: bool) -> Json:
    name = new["metadata"]["name"]
    if done:
        message = f'ReplicaSet "{name}" has successfully progressed.'
        return _condition(_PROGRESSING, "True", _DONE, message)
    message = f'ReplicaSet "{name}" is progressing.'
    return _condition(_PROGRESSING, "True", "ReplicaSetUpdated", message)


def _is_done(conditions: Sequence[Json]) -> bool:
    return any(c["type"] == _PROGRESSING and c.get("reason") == _DONE for c in conditions)


def _condition(type_: str, status: str, reason: str, message: str) -> Json:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _with(conditions: Sequence[Json], new: Json, now: str) -> list[Json]:
    """Return the conditions with a new one; its times change only if it differs."""
    kept = [each for each in conditions if each["type"] != new["type"]]
    old = next((each for each in conditions if each["type"] == new["type"]), None)
    if old is not None and all(old.get(key) == value for key, value in new.items()):
        return list(conditions)
    turned = old is None or old["status"] != new["status"]
    since = now if turned or old is None else old["lastTransitionTime"]
    return [*kept, {**new, "lastUpdateTime": now, "lastTransitionTime": since}]
