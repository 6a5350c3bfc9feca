# SPDX-License-Identifier: Apache-2.0
"""Scenes of one Migration as tables in YAML: how the cluster differs from a plain one.

The plain cluster: ReplicaSet `web` wants three pods, which are an hour old: `web-a` on n1,
`web-b` on n2 and `web-c` on n3. A minute ago a Migration was made that takes `web-a` to n4,
or to n5 as the alternative; nothing has been done about it. A pod's uid is its name unless
a row says otherwise. What a row expects is `Do Evicted`, `Wait Replaced NoReplacementYet`,
`Fail PlaceTaken`, `NotReplaced ScaledDown`, `Finish AsPlanned`, `Remove` or `Rest 60`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from common.api.contract import GUIDE_LABEL, SURGE_FINALIZER
from common.api.migrations import Migration
from common.api.objects import Deployment, Job, Pod, PodDisruptionBudget, ReplicaSet, StatefulSet
from common.cache.state import ClusterState
from common.config import RebalancerConfiguration
from rebalancer.migration.verdicts import (
    Do,
    Fail,
    Finish,
    Hold,
    Next,
    NotReplaced,
    Release,
    Rest,
    StartGuiding,
    StopGuiding,
    Wait,
)
from rebalancer.migration.view import MigrationView
from simulator import build
from tests.support.repository import UNIT_TESTS
from tests.support.tables import read_table
from tests.support.worlds.wire import wire, wire_node

_DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-deploy"}
_COUNTED = ["BudgetChecked", "Marked", "Acknowledged", "Counted"]
_SURGED = {
    "counted": _COUNTED,
    "raised": [*_COUNTED, "Raised"],
    "found": [*_COUNTED, "Raised", "Replaced"],
    "available": [*_COUNTED, "Raised", "Replaced", "Ready"],
    "ranked": [*_COUNTED, "Raised", "Replaced", "Ready", "Ranked"],
    "lowered": [*_COUNTED, "Raised", "Replaced", "Ready", "Ranked", "Lowered"],
}
TABLES = UNIT_TESTS / "rebalancer" / "migration"
NOW_S = datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()
AGE_S = 60.0
DEADLINE_S = 300.0
HOUR_S = 3600.0
PODS: dict[str, Any] = {"web-a": {"at": "n1"}, "web-b": {"at": "n2"}, "web-c": {"at": "n3"}}

Row = dict[str, Any]


@dataclass(frozen=True)
class MigrationCase:
    """One row of a table."""

    row: Row

    def __str__(self) -> str:
        return str(self.row["name"])

    @property
    def expected(self) -> str:
        return str(self.row["expect"])

    @property
    def config(self) -> RebalancerConfiguration:
        return RebalancerConfiguration.model_validate(self.row.get("config", {}))

    def view(self) -> MigrationView:
        return MigrationWorld(self.row).view()


class MigrationWorld:
    """The cluster of a row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.kind = row.get("kind", "ReplicaSet")
        self.state = ClusterState()
        for name, given in {**{f"n{i}": {} for i in range(1, 7)}, **row.get("nodes", {})}.items():
            if given is not None:
                self.state.nodes.upsert(wire_node(build.node(name, **given)))
        self._owner()
        for name, given in {**PODS, **row.get("pods", {})}.items():
            if given is not None:
                self._pod(name, given)
        for name, body in row.get("budgets", {}).items():
            self._budget(name, body)
        if "surge" in row:
            self._deployment({"desired": 4, "generation": 2, **row.get("deployment", {})})
        self._migration("web-a", row)
        for name, other in row.get("others", {}).items():
            self._migration(name, other)

    def view(self) -> MigrationView:
        snapshot = self.state.snapshot()
        claims = self.row.get("claims", {})
        return MigrationView(snapshot.migrations["web-a"], snapshot, NOW_S, claims)

    def _owner(self) -> None:
        given = self.row.get("owner", {})
        if given is None or self.kind == "none":
            return
        desired = given.get("desired", 3)
        meta = {"name": "web", "namespace": "default", "uid": "u-web"}
        if given.get("deleting"):
            meta["deletionTimestamp"] = _ago(1)
        made = build.replica_set("web", desired)
        status = {"replicas": given.get("current", 3)}
        whole = {**made, "kind": self.kind, "metadata": meta, "status": status}
        if self.kind == "StatefulSet":
            self.state.stateful_sets.upsert(wire(StatefulSet, whole))
        elif self.kind == "Job":
            whole["spec"] = {"parallelism": given.get("desired", 3), "completionMode": "Indexed"}
            whole["status"] = given.get("status", {})
            self.state.jobs.upsert(wire(Job, whole))
        else:
            self.state.replica_sets.upsert(wire(ReplicaSet, whole))

    def _deployment(self, given: Row) -> None:
        meta = {"name": "web", "namespace": "default", "uid": "u-deploy"}
        made = build.deployment("web", given["desired"])
        whole = {**made, "metadata": {**meta, "generation": given["generation"]}}
        self.state.deployments.upsert(wire(Deployment, whole))

    def _pod(self, name: str, given: Row) -> None:
        kind = given.get("kind", self.kind)
        owner = {"kind": kind, "name": "web", "uid": "u-web", "controller": True}
        bare = self.kind == "none" or given.get("owner") == "none"
        meta = {
            "name": given.get("name", name),
            "namespace": given.get("namespace", "default"),
            "uid": name,
            "labels": {"app": "web"},
            "creationTimestamp": _ago(given.get("age", HOUR_S)),
            "ownerReferences": [] if bare else [owner],
            "annotations": given.get("annotations", {}),
        }
        if given.get("terminating"):
            meta["deletionTimestamp"] = _ago(1)
        ready = given.get("ready", True) and "at" in given
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": _ago(1)}]
        status = {"phase": "Running", "conditions": conditions if ready else []}
        if given.get("unschedulable"):
            refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status["conditions"] = [refused]
        spec = {"nodeName": given.get("at", ""), "containers": [{"name": "app", "image": "web:1"}]}
        if "waits" in given:
            waiting = {"waiting": {"reason": given["waits"]}}
            status["containerStatuses"] = [{"name": "app", "state": waiting}]
        self.state.pods.upsert(wire(Pod, {"metadata": meta, "spec": spec, "status": status}))

    def _budget(self, name: str, status: Row) -> None:
        made = build.pdb(name, match={"app": "web"}, max_unavailable=1)
        labels, counted = {"labels": status.get("labels", {})}, status.get("status", status)
        meta = {**made["metadata"], **labels, "uid": name, "generation": 1}
        whole = {**made, "metadata": meta, "status": {"observedGeneration": 1, **counted}}
        self.state.budgets.upsert(wire(PodDisruptionBudget, whole))

    def _migration(self, name: str, row: Row) -> None:
        controller = {"kind": self.kind, "name": "web", "uid": "u-web"}
        bare = self.kind == "none"
        spec = {
            "pod": {"namespace": "default", "name": name, "uid": name},
            **({"replacementName": "copy"} if bare else {"controller": controller}),
            "source": PODS.get(name, {"at": "n1"})["at"],
            "target": "n4",
            "alternatives": ["n5"],
            "strategy": "LoadBalancing",
            "reason": "AboveCeiling",
            "deadline": _ago(AGE_S - DEADLINE_S),
            **({"surge": True, "workload": _DEPLOYMENT} if "surge" in row else {}),
            **row.get("spec", {}),
        }
        meta: Row = {
            "name": name,
            "uid": f"m-{name}",
            "resourceVersion": "7",
            "creationTimestamp": _ago(row.get("age", AGE_S)),
        }
        if row.get("guides"):
            meta["labels"] = {GUIDE_LABEL: "admission"}
        if row.get("held"):
            meta["finalizers"] = [SURGE_FINALIZER]
        if row.get("withdrawn"):
            meta["deletionTimestamp"] = _ago(1)
        self.state.migrations.upsert(
            wire(Migration, {"metadata": meta, "spec": spec, "status": _status(row)})
        )


def load_cases(name: str) -> list[MigrationCase]:
    """Return the cases of a table."""
    return [MigrationCase(row) for row in read_table(TABLES / name)]


def spoken(verdict: Next) -> str:
    """Return what the machine says, the way tables write it."""
    match verdict:
        case Do(step=step):
            return f"Do {step.value}"
        case Wait(step=step, reason=reason):
            return f"Wait {step} {reason.name}"
        case Fail(reason=reason):
            return f"Fail {reason.name}"
        case NotReplaced(reason=why):
            return f"NotReplaced {why}"
        case Finish(outcome=outcome):
            return f"Finish {outcome.value}"
        case Hold():
            return "Hold"
        case Release():
            return "Release"
        case StartGuiding():
            return "StartGuiding"
        case StopGuiding():
            return "StopGuiding"
        case Rest(seconds=seconds):
            return f"Rest {seconds:g}"
    return "Remove"


def _status(row: Row) -> Row:
    done = row.get("done", [])
    before = ["BudgetChecked", "Marked", "Acknowledged", "Protected"]
    known = {"all before": before, "evicted": [*before, "Evicted"], **_SURGED}
    steps: list[str] = known.get(str(done)) or list(done)
    said = {**{step: ["True", "Done"] for step in steps}, **row.get("said", {})}
    status = dict(row.get("status", {}))
    if row.get("surge"):
        status["surge"] = row["surge"]
    if "Raised" in steps:
        status.setdefault("raisedAt", _ago(30))
    if "Replaced" in steps and "surge" in row:
        status.setdefault("replacement", {"name": "web-d", "uid": "web-d", "node": "n4"})
    if "Evicted" in steps:
        status.setdefault("evictedAt", _ago(row.get("evicted", 30)))
    if steps:
        status.setdefault("phase", "InProgress")
    for key in ("evictedAt", "finishedAt"):
        if isinstance(status.get(key), int):
            status[key] = _ago(status[key])
    conditions = [
        {"type": step, "status": value, "reason": reason, "lastTransitionTime": _ago(30)}
        for step, (value, reason) in said.items()
    ]
    return {**status, "conditions": conditions}


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(NOW_S - seconds, UTC).isoformat()
