"""What may help which pod: the events for which the plugins of kube-scheduler registered.

A shortened EventsToRegister of pkg/scheduler/framework/plugins (v1.36), without hints: a pod
is tried again whenever something of the kind happens. Extenders registered for everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from common.kube.resources import CSINODES, PVCS, PVS, STORAGECLASSES, Resource
from simulator.api import Change, EventType, Json
from simulator.scheduler.verdicts import EXTENDER


class Happening(Enum):
    """Something that happened in the cluster."""

    NODE_ADDED = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_ROOM = auto()
    NODE_OTHER = auto()
    """An annotation, or a condition that turned."""
    POD_PLACED = auto()
    POD_GONE = auto()
    POD_LABELS = auto()
    STORAGE = auto()


_H = Happening
_NODE_CAME: Final = frozenset({_H.NODE_ADDED})
_VOLUMES: Final = frozenset({_H.NODE_ADDED, _H.NODE_LABELS, _H.POD_GONE, _H.STORAGE})
_CROWD: Final = frozenset(
    {_H.NODE_ADDED, _H.NODE_LABELS, _H.NODE_TAINTS, _H.POD_PLACED, _H.POD_GONE, _H.POD_LABELS}
)
_HELPS: Final[Mapping[str, frozenset[Happening]]] = {
    "NodeName": _NODE_CAME,
    "NodeUnschedulable": _NODE_CAME | {_H.NODE_TAINTS},
    "TaintToleration": _NODE_CAME | {_H.NODE_TAINTS},
    "NodeAffinity": _NODE_CAME | {_H.NODE_LABELS},
    "NodePorts": _NODE_CAME | {_H.POD_GONE},
    "NodeResourcesFit": _NODE_CAME | {_H.NODE_ROOM, _H.POD_GONE},
    "PodTopologySpread": _CROWD,
    "InterPodAffinity": _CROWD,
    "VolumeBinding": _VOLUMES,
    "VolumeZone": _VOLUMES,
    "VolumeRestrictions": _VOLUMES,
    "NodeVolumeLimits": _VOLUMES,
}
_STORAGE_KINDS: Final = frozenset({PVS, PVCS, STORAGECLASSES, CSINODES})


def may_help(happening: Happening, plugins: frozenset[str]) -> bool:
    """Tell whether something may help a pod that these refused; nobody means anything may."""
    if not plugins or EXTENDER in plugins:
        return True
    return any(happening in _HELPS.get(plugin, frozenset(Happening)) for plugin in plugins)


def node_happening(change: Change) -> Happening | None:
    """Return what a change of a node means; heartbeats mean nothing."""
    old, new = change.old_obj, change.obj
    if change.type is EventType.DELETED:
        return None
    if old is None:
        return Happening.NODE_ADDED
    if _spec(old, "taints") != _spec(new, "taints") or _spec(old, "unschedulable") != _spec(
        new, "unschedulable"
    ):
        return Happening.NODE_TAINTS
    if _meta(old, "labels") != _meta(new, "labels"):
        return Happening.NODE_LABELS
    if _status(old, "allocatable") != _status(new, "allocatable"):
        return Happening.NODE_ROOM
    turned = _meta(old, "annotations") != _meta(new, "annotations") or _turned(old) != _turned(new)
    return Happening.NODE_OTHER if turned else None


def pod_happening(change: Change) -> Happening | None:
    """Return what a change of a pod with a node means to others."""
    old, new = change.old_obj, change.obj
    if change.type is EventType.DELETED:
        return Happening.POD_GONE
    if old is None or not old["spec"].get("nodeName"):
        return Happening.POD_PLACED
    if _over(new) and not _over(old):
        return Happening.POD_GONE
    return Happening.POD_LABELS if _meta(old, "labels") != _meta(new, "labels") else None


def storage_kinds() -> frozenset[Resource]:
    """Return the kinds of which any change may help."""
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
