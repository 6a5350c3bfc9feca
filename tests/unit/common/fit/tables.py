# SPDX-License-Identifier: Apache-2.0
"""Cases of fit as tables in YAML: a few nodes, a few pods, one pod to judge, the verdict.

Nodes, pods and namespaces are given by name with the builder's arguments; volumes, claims,
classes and CSINodes by name with the body of the object. `feasible` lists the nodes that
can take the pod, `refused` says of the others why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from common.fit import FitIndex, Question, World
from common.fit.cases import Case, candidate_of, snapshot_of
from simulator import build
from simulator.build import Manifest
from tests.support.repository import UNIT_TESTS
from tests.support.tables import read_table

TABLES = UNIT_TESTS / "common" / "fit"
STAMP = "2026-11-16T09:00:00Z"
KINDS = {
    "pvs": "PersistentVolume",
    "pvcs": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
}


@dataclass(frozen=True)
class FitCase:
    """One line of a table."""

    family: str
    name: str
    objects: Manifest
    feasible: list[str]
    refused: dict[str, list[str]]

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"

    def question(self) -> Question:
        """Return the pod to judge, in its cluster."""
        case = msgspec.convert(self.objects, Case)
        return World(snapshot_of(case), FitIndex()).ask(candidate_of(case.pod))


def load_cases(*names: str) -> list[FitCase]:
    """Return the cases of some tables, or of all."""
    files = [TABLES / name for name in names] or sorted(TABLES.glob("*.yaml"))
    return [case for file in files for case in _table(file)]


def _table(file: Path) -> Iterator[FitCase]:
    for row in read_table(file):
        yield FitCase(
            family=file.stem.replace("_", " "),
            name=row["name"],
            objects=_objects(row),
            feasible=sorted(row.get("feasible", [])),
            refused=row.get("refused", {}),
        )


def _objects(row: dict[str, Any]) -> Manifest:
    found: Manifest = {
        "nodes": [_node(name, given or {}) for name, given in row["nodes"].items()],
        "pods": [_pod(name, given or {}) for name, given in row.get("pods", {}).items()],
        "namespaces": [
            build.namespace(name, labels=labels)
            for name, labels in row.get("namespaces", {}).items()
        ],
        "pod": _pod("new", row.get("pod") or {}),
    }
    for plural, kind in KINDS.items():
        found[plural] = [_raw(kind, name, body) for name, body in row.get(plural, {}).items()]
    return found


def _node(name: str, given: Manifest) -> Manifest:
    arguments = dict(given)
    features = arguments.pop("features", [])
    unlabelled = arguments.pop("no_hostname", False)
    node = build.node(name, **arguments)
    node["status"]["declaredFeatures"] = features
    if unlabelled:
        del node["metadata"]["labels"]["kubernetes.io/hostname"]
    return node


def _pod(name: str, given: Manifest) -> Manifest:
    arguments = dict(given)
    terminating = arguments.pop("terminating", False)
    status = {"phase": arguments.pop("phase", "Running")}
    nominated = arguments.pop("nominated", None)
    where = arguments.pop("at", None)
    container = arguments.pop("container", {})
    pod = build.pod(name, **{"node": where, **arguments})
    pod["spec"]["containers"][0].update(container)
    pod["metadata"]["uid"] = f"uid-{name}"
    if terminating:
        pod["metadata"]["deletionTimestamp"] = STAMP
    if nominated:
        status["nominatedNodeName"] = nominated
    return {**pod, "status": status}


def _raw(kind: str, name: str, body: Manifest) -> Manifest:
    metadata = {"name": name, "uid": f"uid-{name}", **body.get("metadata", {})}
    if kind == "PersistentVolumeClaim":
        metadata.setdefault("namespace", "default")
    return {**body, "kind": kind, "metadata": metadata}
