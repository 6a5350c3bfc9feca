# SPDX-License-Identifier: Apache-2.0
"""Cases of evictability as tables in YAML: how the cluster differs from a plain one, and why not.

The plain cluster is a healthy Deployment `web` of three pods on three nodes, an hour old;
every reason against moving its first pod comes from what a row states. `for_good` and
`for_now` hold the reasons against a load move with their words; `maintenance` names those
that also bind the emptying of a node, if they are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from common.api.migrations import Migration, Purpose
from common.api.objects import (
    DaemonSet,
    Deployment,
    HorizontalPodAutoscaler,
    Job,
    Namespace,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from common.api.storage import PersistentVolume, PersistentVolumeClaim
from common.cache.state import ClusterState
from common.cluster.records import PodRecord
from common.config import RebalancerConfiguration
from common.load import LoadTracker
from rebalancer.evictability import Context, MoveHistory, lineage_of
from simulator import build
from simulator.build import Manifest
from tests.support.repository import UNIT_TESTS
from tests.support.tables import read_table
from tests.support.worlds.wire import owner_reference, stamped, wire, wire_node, wire_pod

TABLES = UNIT_TESTS / "rebalancer" / "evictability"
NOW = datetime(2026, 11, 16, 9, tzinfo=UTC)
HOUR_S = 3600.0

Row = dict[str, Any]


@dataclass(frozen=True)
class ReasonCase:
    """One row of a table: what stands against a move, for good and for now."""

    table: str
    row: Row

    def __str__(self) -> str:
        return f"{self.table}: {self.row['name']}"

    @property
    def words(self) -> dict[str, str]:
        """Name → words of every reason."""
        return {**self.row.get("for_good", {}), **self.row.get("for_now", {})}

    @property
    def for_good(self) -> set[str]:
        return set(self.row.get("for_good", {}))


class EvictCase(ReasonCase):
    """A row about a pod; its reasons are those against a load move."""

    @property
    def maintenance(self) -> set[str]:
        """Names of the reasons against emptying the node of this pod."""
        return set(self.row.get("maintenance", self.words))

    def world(self) -> EvictWorld:
        return EvictWorld(self.row)


class EvictWorld:
    """The cluster of a row, and the pod to judge."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.state = ClusterState()
        for name in ("n1", "n2", "n3"):
            self.state.nodes.upsert(wire_node(build.node(name)))
        owner = self._workload(row.get("workload", {}))
        self.pod = self._pods(owner)
        self._small_kinds()
        if "surged" in row:
            self._surged(row["surged"])

    def context(self, purpose: Purpose = Purpose.LOAD) -> Context:
        snapshot, now_s = self.state.snapshot(), NOW.timestamp()
        return Context.of(
            snapshot,
            RebalancerConfiguration.model_validate(self.row.get("config", {})),
            now_s=now_s,
            history=self._history(),
            purpose=purpose,
            load=None if self.row.get("measured", True) else LoadTracker().view(snapshot, now_s),
            surge=self.row.get("surge"),
        )

    def _history(self) -> MoveHistory:
        """Return when the workload and the pod's lineage were moved, if the row says so."""
        moved, now_s = self.row.get("moved", {}), NOW.timestamp()
        top = self.state.snapshot().top_workload(self.pod)
        workload = top.controller_id if top is not None else self.pod.controller_id
        ago_s = moved.get("workload")
        return MoveHistory(
            {workload: now_s - ago_s} if workload is not None and ago_s is not None else {},
            {lineage_of(self.pod): now_s - ago for ago in (moved.get("lineage"),) if ago},
        )

    def _surged(self, given: Row) -> None:
        """Add an earlier surge of the workload that failed."""
        top = self.state.snapshot().top_workload(self.pod)
        assert top is not None
        whose = {"apiVersion": "apps/v1", "kind": top.kind, "name": top.name, "uid": top.uid}
        spec = {
            "pod": {"namespace": "default", "name": "web-0", "uid": "u-old"},
            "controller": {**whose, "kind": "ReplicaSet"},
            "workload": whose,
            "source": "n1",
            "target": "n2",
            "strategy": "LoadBalancing",
            "reason": "AboveCeiling",
            "deadline": _ago(given["ago"]),
            "surge": True,
        }
        step = {"type": "Lowered", "status": "False", "lastTransitionTime": _ago(given["ago"])}
        status = {
            "phase": "Failed",
            "finishedAt": _ago(given["ago"]),
            "conditions": [{**step, "reason": given["reason"]}],
        }
        made = stamped({"kind": "Migration", "metadata": {"name": "u-old"}, "spec": spec})
        self.state.migrations.upsert(wire(Migration, {**made, "status": status}))

    def _workload(self, given: Row) -> Manifest | None:
        """Add the workload with its status; return the owner of its pods."""
        kind = given.get("kind", "Deployment")
        if kind == "none":
            return None
        if kind != "Deployment":
            return self._owned(kind, given)
        above = self._owner("Deployment", "web", given)
        below = {key: given[key] for key in ("replicas", "template") if key in given}
        return self._owner("ReplicaSet", "web-1", below | given.get("replica_set", {}), above)

    def _owned(self, kind: str, given: Row) -> Manifest:
        """Add an owner whose own owners are `owned_by`, in that order; names may come again."""
        made = self._owner(kind, "web", given)
        chain = ["web", *given.get("owned_by", ())]
        for name, above in {pair[0]: pair for pair in reversed([*pairwise(chain)])}.values():
            own = given if name == "web" else {}
            self._owner(kind, name, own, _owner(kind, above, 3, {}))
        if chain[-1] not in chain[:-1]:
            self._owner(kind, chain[-1], given if chain[-1] == "web" else {})
        return made

    def _owner(self, kind: str, name: str, given: Row, above: Manifest | None = None) -> Manifest:
        count = given.get("replicas", 3)
        made = _owner(kind, name, count, given)
        controlled = {"ownerReferences": [owner_reference(above)]} if above is not None else {}
        deleted = {"deletionTimestamp": NOW.isoformat()} if given.get("deleting") else {}
        status = {**_healthy(kind, count), **given.get("status", {})}
        whole = stamped({**made, "status": status}, generation=1, **controlled, **deleted)
        if not given.get("missing") and kind in _TABLES:
            table, wanted = _TABLES[kind]
            getattr(self.state, table).upsert(wire(wanted, whole))
        return made

    def _pods(self, owner: Manifest | None) -> PodRecord:
        """Add the workload's pods; the first of them is the one to judge."""
        row = self.row
        siblings = row.get("siblings", {"web-b": {}, "web-c": {}} if owner is not None else {})
        given = {"at": "n1", "name": "web-a", **row.get("pod", {})}
        judged = self._pod(given.pop("name"), given, owner)
        for number, (name, each) in enumerate(siblings.items(), start=2):
            self._pod(name, {"at": f"n{number}", **(each or {})}, owner)
        for name, each in row.get("others", {}).items():
            self._pod(name, {"at": "n1", **(each or {})}, None)
        return self.state.snapshot().pods_by_name[judged]

    def _pod(self, name: str, given: Row, owner: Manifest | None) -> str:
        arguments = dict(given)
        where, phase = arguments.pop("at"), arguments.pop("phase", "Running")
        ready, waits = arguments.pop("ready", True), arguments.pop("waiting", None)
        stamp = _ago(arguments.pop("age", HOUR_S))
        metadata: Manifest = {"ownerReferences": arguments.pop("owners", None)}
        said = arguments.pop("says", None)
        if said is not None and owner is not None:
            metadata["ownerReferences"], owner = [{**owner_reference(owner), **said}], None
        if arguments.pop("terminating", False):
            metadata["deletionTimestamp"] = NOW.isoformat()
        container = arguments.pop("container", {})
        manifest = build.pod(name, node=where, **{"labels": {"app": "web"}, **arguments})
        manifest["spec"]["containers"][0].update(container)
        kept = {key: value for key, value in metadata.items() if value is not None}
        status: Manifest = {} if ready else {"conditions": [_scheduled(stamp)]}
        if waits is not None:
            name_of = manifest["spec"]["containers"][0]["name"]
            state = {"waiting": {"reason": waits}}
            status["containerStatuses"] = [{"name": name_of, "state": state}]
        wired = wire_pod(
            manifest, owner=owner, phase=phase, scheduled=stamp, status=status or None, **kept
        )
        self.state.pods.upsert(wired)
        return f"{wired.metadata.namespace}/{name}"

    def _small_kinds(self) -> None:
        row, state = self.row, self.state
        for name, labels in row.get("namespaces", {}).items():
            state.namespaces.upsert(wire(Namespace, stamped(build.namespace(name, labels=labels))))
        for name, body in row.get("budgets", {}).items():
            state.budgets.upsert(wire(PodDisruptionBudget, _budget(name, dict(body))))
        for name, value in row.get("priority_classes", {}).items():
            made = {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            state.priority_classes.upsert(wire(PriorityClass, stamped(made)))
        for name, target in row.get("autoscalers", {}).items():
            found = {"name": name, "namespace": "default"}
            scaled = {"scaleTargetRef": {"kind": "Deployment", "name": target}}
            made = {"kind": "HorizontalPodAutoscaler", "metadata": found, "spec": scaled}
            state.autoscalers.upsert(wire(HorizontalPodAutoscaler, stamped(made)))
        for name, spec in row.get("claims", {}).items():
            found = {"name": name, "namespace": "default"}
            made = {"kind": "PersistentVolumeClaim", "metadata": found, "spec": spec}
            state.claims.upsert(wire(PersistentVolumeClaim, stamped(made)))
        for name, given in row.get("pod_groups", {}).items():
            spec = dict(given)
            found = {"name": name, "namespace": spec.pop("namespace", "default")}
            made = {"kind": "PodGroup", "metadata": found, "spec": spec}
            state.pod_groups.upsert(wire(PodGroup, stamped(made)))
        for name, spec in row.get("volumes", {}).items():
            made = {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
            state.volumes.upsert(wire(PersistentVolume, stamped(made)))


def load_cases(*names: str) -> list[EvictCase]:
    """Return the cases of some tables, or of all."""
    files = [TABLES / name for name in names] or sorted(TABLES.glob("*.yaml"))
    return [case for file in files for case in _table(file)]


def _table(file: Path) -> Iterator[EvictCase]:
    for row in read_table(file):
        yield EvictCase(file.stem, row)


_TABLES: dict[str, tuple[str, type[Any]]] = {
    "Deployment": ("deployments", Deployment),
    "ReplicaSet": ("replica_sets", ReplicaSet),
    "StatefulSet": ("stateful_sets", StatefulSet),
    "DaemonSet": ("daemon_sets", DaemonSet),
    "Job": ("jobs", Job),
    "ReplicationController": ("replication_controllers", ReplicationController),
}
_GROUPS = {"Job": "batch/v1", "ReplicationController": "v1", "Node": "v1"}


def _owner(kind: str, name: str, count: int, given: Row) -> Manifest:
    spec = given.get("spec", {})
    made = build.replica_set(name, count, labels={"app": "web"}, spec=given.get("template", {}))
    version = given.get("api_version", _GROUPS.get(kind, "apps/v1"))
    count_key = {"parallelism": count} if kind == "Job" else {}
    selector = {"selector": {"app": "web"}} if kind == "ReplicationController" else {}
    whole = {**made["spec"], **count_key, **selector, **spec}
    if "annotations" in given:
        made["metadata"]["annotations"] = given["annotations"]
    return {**made, "kind": kind, "apiVersion": version, "spec": whole}


def _healthy(kind: str, count: int) -> Manifest:
    if kind == "Job":  # which tells neither replicas nor the generation that it has seen
        return {"active": count, "ready": count}
    return {
        "observedGeneration": 1,
        "replicas": count,
        "readyReplicas": count,
        "availableReplicas": count,
        "updatedReplicas": count,
    }


def _budget(name: str, body: Row) -> Manifest:
    status = {"observedGeneration": 1, **body.pop("status", {})}
    policy = body.pop("unhealthy", None)
    labels = body.pop("labels", None)
    made = build.pdb(name, **{"match": {"app": "web"}, **body})
    made["metadata"]["labels"] = labels
    if policy is not None:
        made["spec"]["unhealthyPodEvictionPolicy"] = policy
    return stamped({**made, "status": status}, generation=1)


def _scheduled(stamp: str) -> Manifest:
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp}


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW.timestamp() - seconds, UTC).isoformat()
