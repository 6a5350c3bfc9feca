# SPDX-License-Identifier: Apache-2.0
"""What `kubectl get` shows of a kind: its columns, and the cells of an object.

A small part of pkg/printers/internalversion/printers.go of v1.36; kinds without own columns
show name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.kube import resources as kube
from common.kube.resources import Resource
from common.kube.timestamps import parse_time
from simulator.api.kind import Kind
from simulator.api.kinds.events import CORE_EVENTS
from simulator.api.kinds.pods import is_ready
from simulator.api.storage import Json

Cell = Callable[[Json, float], Any]
_UNKNOWN: Final = "<unknown>"
_NONE: Final = "<none>"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a kind; a priority above 0 shows only with `-o wide`."""

    headers: Sequence[tuple[str, str, int]]
    readers: Sequence[Cell]

    def definitions(self) -> list[Json]:
        """Return the columns as a table defines them."""
        return [
            {
                "name": name,
                "type": type_,
                "format": "name" if name == "Name" else "",
                "description": name,
                "priority": priority,
            }
            for name, type_, priority in self.headers
        ]

    def cells(self, obj: Json, now: float) -> list[Any]:
        """Return the row of an object."""
        return [read(obj, now) for read in self.readers]


def columns_of(kind: Kind) -> Columns:
    """Return the columns of a kind."""
    if kind.columns:
        rows: list[tuple[str, str, int, Cell]] = [("Name", "string", 0, _name)]
        rows += [_custom(column) for column in kind.columns]
    else:
        rows = [("Name", "string", 0, _name), *_COLUMNS.get(kind.storage, ())]
        rows.append(("Age", "string", 0, _age))
    if kind.storage == CORE_EVENTS:
        rows = [("Last Seen", "string", 0, _last_seen), *_EVENT_COLUMNS]
    return Columns([row[:3] for row in rows], [row[3] for row in rows])


def age(text: str | None, now: float) -> str:
    """Return the age of a time, as kubectl prints it."""
    if not text:
        return _UNKNOWN
    seconds = max(0, int(now - parse_time(text)))
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10 and seconds % 60:
        return f"{minutes}m{seconds % 60}s"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8 and minutes % 60:
        return f"{hours}h{minutes % 60}m"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _name(obj: Json, _: float) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Json, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _at(*path: str, missing: Any = "") -> Cell:
    """Return a reader of a field."""

    def read(obj: Json, _: float) -> Any:
        value: Any = obj
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return missing if value is None else value

    return read


def _custom(column: Json) -> tuple[str, str, int, Cell]:
    path = [part for part in column["jsonPath"].split(".") if part]
    read = _at(*path, missing=None)

    def cell(obj: Json, now: float) -> Any:
        value = read(obj, now)
        return age(value, now) if column["type"] == "date" else value

    return column["name"], column["type"], column.get("priority", 0), cell


def _node_status(node: Json, _: float) -> str:
    conditions = node.get("status", {}).get("conditions") or ()
    ready = [c.get("status") for c in conditions if c.get("type") == "Ready"]
    message = ["Ready" if ready[0] == "True" else "NotReady"] if ready else ["Unknown"]
    if node["spec"].get("unschedulable"):
        message.append("SchedulingDisabled")
    return ",".join(message)


def _node_roles(node: Json, _: float) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return ",".join(roles) or _NONE


def _pod_ready(pod: Json, _: float) -> str:
    statuses = pod.get("status", {}).get("containerStatuses")
    total = len(pod["spec"].get("containers") or ())
    ready = sum(bool(s.get("ready")) for s in statuses) if statuses else total * is_ready(pod)
    return f"{ready}/{total}"


def _pod_status(pod: Json, _: float) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    status = pod.get("status", {})
    if pod["spec"].get("schedulingGates"):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or _UNKNOWN)


def _pod_restarts(pod: Json, _: float) -> int:
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return sum(each.get("restartCount", 0) for each in statuses)


def _of_replicas(key: str) -> Cell:
    def read(obj: Json, _: float) -> str:
        return f"{obj.get('status', {}).get(key, 0)}/{obj['spec'].get('replicas', 0)}"

    return read


def _last_seen(event: Json, now: float) -> str:
    series = event.get("series") or {}
    seen = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return age(seen, now)


def _event_object(event: Json, _: float) -> str:
    involved = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_message(event: Json, _: float) -> str:
    return str(event.get("message") or event.get("note") or "")


_Row = tuple[str, str, int, Cell]
_EVENT_COLUMNS: Final[Sequence[_Row]] = (
    ("Type", "string", 0, _at("type")),
    ("Reason", "string", 0, _at("reason")),
    ("Object", "string", 0, _event_object),
    ("Message", "string", 0, _event_message),
)
_COLUMNS: Final[Mapping[Resource, Sequence[_Row]]] = {
    kube.NODES: (
        ("Status", "string", 0, _node_status),
        ("Roles", "string", 0, _node_roles),
        ("Version", "string", 0, _at("status", "nodeInfo", "kubeletVersion")),
    ),
    kube.PODS: (
        ("Ready", "string", 0, _pod_ready),
        ("Status", "string", 0, _pod_status),
        ("Restarts", "integer", 0, _pod_restarts),
        ("IP", "string", 1, _at("status", "podIP", missing=_NONE)),
        ("Node", "string", 1, _at("spec", "nodeName", missing=_NONE)),
    ),
    kube.NAMESPACES: (("Status", "string", 0, _at("status", "phase")),),
    kube.DEPLOYMENTS: (
        ("Ready", "string", 0, _of_replicas("readyReplicas")),
        ("Up-to-date", "integer", 0, _at("status", "updatedReplicas", missing=0)),
        ("Available", "integer", 0, _at("status", "availableReplicas", missing=0)),
    ),
    kube.REPLICASETS: (
        ("Desired", "integer", 0, _at("spec", "replicas", missing=0)),
        ("Current", "integer", 0, _at("status", "replicas", missing=0)),
        ("Ready", "integer", 0, _at("status", "readyReplicas", missing=0)),
    ),
    kube.STATEFULSETS: (("Ready", "string", 0, _of_replicas("readyReplicas")),),
    kube.PDBS: (
        ("Min Available", "string", 0, _at("spec", "minAvailable", missing="N/A")),
        ("Max Unavailable", "string", 0, _at("spec", "maxUnavailable", missing="N/A")),
        ("Allowed Disruptions", "integer", 0, _at("status", "disruptionsAllowed", missing=0)),
    ),
    kube.LEASES: (("Holder", "string", 0, _at("spec", "holderIdentity")),),
    kube.PRIORITYCLASSES: (
        ("Value", "integer", 0, _at("value", missing=0)),
        ("Global-default", "boolean", 0, _at("globalDefault", missing=False)),
    ),
}
