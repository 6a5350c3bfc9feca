# SPDX-License-Identifier: Apache-2.0
"""The status of pods, as kubelets write it.

The order of conditions and the messages are those of pkg/kubelet/status (v1.36).
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from simulator.api import Json, condition
from simulator.nodes.admission import Rejection

_TYPES: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


def preparing(pod: Json, now: str, host_ip: str) -> Json:
    """Return the status of a pod whose containers are being created."""
    names = _names(pod, "containers")
    unready = f"containers with unready status: [{' '.join(names)}]"
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    statuses = [_container(each, waiting, ready=False) for each in pod["spec"]["containers"]]
    return {
        **pod.get("status", {}),
        "phase": "Pending",
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "startTime": now,
        "containerStatuses": statuses,
        "conditions": _conditions(
            pod,
            now,
            {
                "PodReadyToStartContainers": ("False", "", ""),
                "Initialized": ("True", "", ""),
                "Ready": ("False", "ContainersNotReady", unready),
                "ContainersReady": ("False", "ContainersNotReady", unready),
            },
        ),
    }


def unpulled(pod: Json, images: Container[str]) -> Json:
    """Return the status of a pod some of whose images cannot be pulled."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    specs = {each["name"]: each for each in pod["spec"]["containers"]}
    statuses = [
        _container(specs[old["name"]], waiting)
        if specs[old["name"]].get("image") in images
        else old
        for old in pod["status"]["containerStatuses"]
    ]
    return {**pod["status"], "containerStatuses": statuses}


def running(pod: Json, now: str, pod_ip: str) -> Json:
    """Return the status of a pod that runs and is ready."""
    state = {"running": {"startedAt": now}}
    statuses = [_container(each, state, ready=True) for each in pod["spec"]["containers"]]
    return {
        **pod.get("status", {}),
        "phase": "Running",
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "containerStatuses": statuses,
        "conditions": _conditions(pod, now, dict.fromkeys(_TYPES, ("True", "", ""))),
    }


def ended(pod: Json, now: str, *, killed: bool) -> Json:
    """Return the last status of a terminating pod."""
    status = pod.get("status", {})
    code, reason = (137, "Error") if killed else (0, "Completed")
    began = {
        each["name"]: (each.get("state") or {}).get("running", {}).get("startedAt", now)
        for each in status.get("containerStatuses") or ()
    }
    statuses = [
        _container(each, {"terminated": _terminated(code, reason, began.get(each["name"]), now)})
        for each in pod["spec"]["containers"]
    ]
    over = ("False", "PodFailed" if killed else "PodCompleted", "")
    return {
        **status,
        "phase": "Failed" if killed else "Succeeded",
        "containerStatuses": statuses,
        "conditions": _conditions(
            pod,
            now,
            {
                "PodReadyToStartContainers": ("False", "", ""),
                "Ready": over,
                "ContainersReady": over,
            },
        ),
    }


def rejected(pod: Json, why: Rejection, now: str) -> Json:
    """Return the status of a pod that the kubelet does not admit."""
    return {
        **pod.get("status", {}),
        "phase": "Failed",
        "reason": why.reason,
        "message": why.message,
        "startTime": now,
    }


def not_ready(pod: Json, now: str) -> Json:
    """Return the status that the node controller gives a pod whose node is lost."""
    return {
        **pod.get("status", {}),
        "conditions": _conditions(pod, now, {"Ready": ("False", "NodeNotReady", "")}),
    }


def ready_again(pod: Json, now: str) -> Json:
    """Return the status of a running pod whose kubelet is back."""
    return {
        **pod.get("status", {}),
        "conditions": _conditions(pod, now, {"Ready": ("True", "", "")}),
    }


def _terminated(code: int, reason: str, began: str | None, now: str) -> Json:
    return {"exitCode": code, "reason": reason, "startedAt": began or now, "finishedAt": now}


def _names(pod: Json, key: str) -> list[str]:
    return [each["name"] for each in pod["spec"].get(key) or ()]


def _container(spec: Json, state: Json, *, ready: bool = False) -> Json:
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "",
        "lastState": {},
        "ready": ready,
        "restartCount": 0,
        "started": ready,
        "state": state,
    }


def _conditions(pod: Json, now: str, wanted: dict[str, tuple[str, str, str]]) -> list[Json]:
    """Return the conditions of a pod with new ones; times change only with the status."""
    before = {c["type"]: c for c in pod.get("status", {}).get("conditions") or ()}
    made = dict(before)
    for type_, (status, reason, message) in wanted.items():
        since = now
        if type_ in before and before[type_].get("status") == status:
            since = before[type_].get("lastTransitionTime") or now
        made[type_] = condition(type_, status, since, reason=reason, message=message)
    return list(_ordered(made.values()))


def _ordered(conditions: Iterable[Json]) -> list[Json]:
    rank = {type_: index for index, type_ in enumerate(_TYPES)}
    return sorted(conditions, key=lambda c: rank.get(c["type"], len(rank)))
