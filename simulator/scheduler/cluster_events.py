# SPDX-License-Identifier: Apache-2.0
"""Which events may make a pod schedulable: those that the plugins of kube-scheduler register for.

A shortened EventsToRegister of pkg/scheduler/framework/plugins (v1.36), without queueing hints:
a pod is retried on every event of the type. Extenders are registered for all events.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from common.kube.resources import CSINODES, PVCS, PVS, STORAGECLASSES, Resource
from simulator.api import Change, EventType, Json
from simulator.scheduler.diagnosis import EXTENDER


class ClusterEvent(Enum):
    """A type of change in the cluster."""

    NODE_ADDED = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_ROOM = auto()
    NODE_OTHER = auto()
    """An annotation or a condition."""
    POD_PLACED = auto()
    POD_GONE = auto()
    POD_LABELS = auto()
    STORAGE = auto()


_E = ClusterEvent
_NODE_CAME: Final = frozenset({_E.NODE_ADDED})
_VOLUMES: Final = frozenset({_E.NODE_ADDED, _E.NODE_LABELS, _E.POD_GONE, _E.STORAGE})
_CROWD: Final = frozenset(
    {_E.NODE_ADDED, _E.NODE_LABELS, _E.NODE_TAINTS, _E.POD_PLACED, _E.POD_GONE, _E.POD_LABELS}
)
_HELPS: Final[Mapping[str, frozenset[ClusterEvent]]] = {
    "NodeName": _NODE_CAME,
    "NodeUnschedulable": _NODE_CAME | {_E.NODE_TAINTS},
    "TaintToleration": _NODE_CAME | {_E.NODE_TAINTS},
    "NodeAffinity": _NODE_CAME | {_E.NODE_LABELS},
    "NodePorts": _NODE_CAME | {_E.POD_GONE},
    "NodeResourcesFit": _NODE_CAME | {_E.NODE_ROOM, _E.POD_GONE},
    "PodTopologySpread": _CROWD,
    "InterPodAffinity": _CROWD,
    "VolumeBinding": _VOLUMES,
    "VolumeZone": _VOLUMES,
    "VolumeRestrictions": _VOLUMES,
    "NodeVolumeLimits": _VOLUMES,
}
_STORAGE_KINDS: Final = frozenset({PVS, PVCS, STORAGECLASSES, CSINODES})


def may_help(event: ClusterEvent, plugins: frozenset[str]) -> bool:
    """Return whether an event may help a pod that these plugins rejected; none means any event."""
    if not plugins or EXTENDER in plugins:
        return True
    return any(event in _HELPS.get(plugin, frozenset(ClusterEvent)) for plugin in plugins)


def node_event(change: Change) -> ClusterEvent | None:
    """Return the event of a change of a node; heartbeats are none."""
    old, new = change.old_obj, change.obj
    if change.type is EventType.DELETED:
        return None
    if old is None:
        return ClusterEvent.NODE_ADDED
    if _spec(old, "taints") != _spec(new, "taints") or _spec(old, "unschedulable") != _spec(
        new, "unschedulable"
    ):
        return ClusterEvent.NODE_TAINTS
    if _meta(old, "labels") != _meta(new, "labels"):
        return ClusterEvent.NODE_LABELS
    if _status(old, "allocatable") != _status(new, "allocatable"):
        return ClusterEvent.NODE_ROOM
    turned = _meta(old, "annotations") != _meta(new, "annotations") or _turned(old) != _turned(new)
    return ClusterEvent.NODE_OTHER if turned else None


def pod_event(change: Change) -> ClusterEvent | None:
    """Return the event of a change of an assigned pod."""
    old, new = change.old_obj, change.obj
    if change.type is EventType.DELETED:
        return ClusterEvent.POD_GONE
    if old is None or not old["spec"].get("nodeName"):
        return ClusterEvent.POD_PLACED
    if _over(new) and not _over(old):
        return ClusterEvent.POD_GONE
    return ClusterEvent.POD_LABELS if _meta(old, "labels") != _meta(new, "labels") else None


def storage_kinds() -> frozenset[Resource]:
    """Return the kinds of which any change is an event."""
    return _STORAGE_KINDS


def _spec(obj: Json, key: str) -> object:
    return obj["spec"].get(key)


def _meta(obj: Json, key: str) -> object:
    return obj["metadata"].get(key)


def _status(obj: Json, key: str) -> object:
    return (obj.get("status") or {}).get(key)


def _turned(node: Json) -> object:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {each["type"]: each["status"] for each in conditions}


def _over(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
