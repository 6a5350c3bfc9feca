# SPDX-License-Identifier: Apache-2.0
"""The status of nodes, as kubelets and the node controller write it."""

from __future__ import annotations

from typing import Final

from simulator.api import Json

KUBELET_VERSION: Final = "v1.36.4"
_HEALTHY: Final = {
    "MemoryPressure": (
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
_READY: Final = ("True", "KubeletReady", "kubelet is posting ready status")
_LOST: Final = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")


def posted(node: Json, now: str, *, address: str, ready: bool = True, why: str = "") -> Json:
    """Return the status that a kubelet reports."""
    status = node.get("status") or {}
    capacity = status.get("capacity") or {"cpu": "8", "memory": "32Gi", "pods": "110"}
    verdict = _READY if ready else ("False", "KubeletNotReady", why)
    wanted = {**_HEALTHY, "Ready": verdict}
    name = node["metadata"]["name"]
    return {
        **status,
        "capacity": capacity,
        "allocatable": status.get("allocatable") or capacity,
        "addresses": status.get("addresses")
        or [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "nodeInfo": status.get("nodeInfo") or _info(name),
        "conditions": _conditions(status, wanted, now),
    }


def unknown(node: Json, now: str) -> Json:
    """Return the status of a node whose kubelet is silent."""
    status = node.get("status") or {}
    return {
        **status,
        "conditions": _conditions(status, dict.fromkeys((*_HEALTHY, "Ready"), _LOST), now),
    }


def ready_status(node: Json) -> str:
    """Return the status of the Ready condition: True, False or Unknown."""
    for each in (node.get("status") or {}).get("conditions") or ():
        if each["type"] == "Ready":
            return str(each["status"])
    return "Unknown"


def _info(name: str) -> Json:
    return {
        "machineID": name,
        "systemUUID": name,
        "bootID": name,
        "kernelVersion": "",
        "osImage": "",
        "containerRuntimeVersion": "simulator://",
        "kubeletVersion": KUBELET_VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def _conditions(status: Json, wanted: dict[str, tuple[str, str, str]], now: str) -> list[Json]:
    before = {each["type"]: each for each in status.get("conditions") or ()}
    made = dict(before)
    for type_, (value, reason, message) in wanted.items():
        old = before.get(type_) or {}
        since = old.get("lastTransitionTime", now) if old.get("status") == value else now
        made[type_] = {
            "type": type_,
            "status": value,
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
    return list(made.values())
