# SPDX-License-Identifier: Apache-2.0
"""Cases of pacing as tables in YAML: how the moment differs from one where all is well.

The plain moment: the cluster of `evict_tables` (a healthy Deployment `web`), a Pending
Migration that moves its first pod from `n1` to `n2` for load, nothing else under way, and
one living extender that the scheduler asks. `migrations` lists other Migrations.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from common.api.contract import (
    EXTENDER_LEASE_PREFIX,
    FILTER_CALLS,
    LOAD_SETTINGS,
    MAINTENANCE_LABEL,
    SEEN_MIGRATIONS,
)
from common.api.migrations import (
    Amounts,
    ControllerRef,
    Migration,
    MigrationSpec,
    MigrationStatus,
    PodRef,
    ReplacementRef,
)
from common.api.objects import Lease, ObjectMeta
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import NodeName, PodRecord
from common.cluster.storage import LeaseRecord, lease_record
from common.config import RebalancerConfiguration, load_settings_hash
from common.kube.timestamps import micro_time
from common.load import Belief, LoadTracker
from common.usage.source import Sample, Usage
from rebalancer.pacing.checks import Moment, Start, ahead_of, has_begun
from rebalancer.projection import target_with
from simulator import build
from tests.support.repository import UNIT_TESTS
from tests.support.tables import read_table
from tests.support.worlds.evictability import NOW, EvictWorld, ReasonCase
from tests.support.worlds.wire import stamped, wire, wire_node

TABLES = UNIT_TESTS / "rebalancer" / "pacing"
SCHEDULER = "default-scheduler"
MAINTENANCE = {"strategy": "NodeMaintenance", "reason": "Maintenance"}
CONFIG = {
    "mode": "act",
    "enabledStrategies": ["LoadBalancing", "ResourceOptimization", "NodeMaintenance"],
}
_NOT_READY = {"type": "Ready", "status": "False", "lastTransitionTime": NOW.isoformat()}

Row = dict[str, Any]


class PacingCase(ReasonCase):
    """A row about a Migration."""


def load_cases(name: str) -> list[PacingCase]:
    rows = read_table(TABLES / f"{name}.yaml")
    return [PacingCase(name, row) for row in rows]


class PacingWorld:
    """The cluster of a row, the Migration to judge, and the others."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._evict = EvictWorld({**row, "config": {}})
        self.state = self._evict.state
        self.config = config_of(row)
        for name, given in row.get("nodes", {}).items():
            self.set_node(name, **(given or {}))
        self.pod: PodRecord = self._evict.pod
        own = {"pod": self.pod.name, "uid": self.pod.uid, **self._owner()}
        own |= MAINTENANCE if row.get("maintenance") else {}
        self.migration = self.add({**own, **self._told(row.get("migration", {}))})
        self.others = [
            self.add({"pod": f"other-{number}", **self._told(given)})
            for number, given in enumerate(row.get("migrations", []))
        ]

    def set_node(
        self, name: str, *, maintenance: bool = False, ready: bool = True, **arguments: Any
    ) -> None:
        labels = {MAINTENANCE_LABEL: "true"} if maintenance else {}
        given = {**labels, **arguments.pop("labels", {})}
        manifest = build.node(name, labels=given, **arguments)
        if not ready:
            manifest["status"]["conditions"] = [_NOT_READY]
        self.state.nodes.upsert(wire_node(manifest))

    def add(self, given: Row) -> MigrationRecord:
        """Add a Migration to the cluster and return its record."""
        made = migration_of(given)
        self.state.migrations.upsert(made)
        return migration_record(made, Interner())

    def start(self) -> Start:
        """Return the question that limits answer."""
        row = self.row
        begun = [self.others[number].uid for number in row.get("begun", ())]
        ahead = ahead_of(self.migration, self.others, begun)
        belief = self._belief(row["use"]) if "use" in row else None
        return Start(
            migration=self.migration,
            pod=self.pod,
            others=self.others,
            ahead=ahead,
            moment=Moment(self.state.snapshot(), self.config, NOW.timestamp()),
            begun=has_begun(self.migration, ()),
            guided=row.get("guided", True),
            filled=belief and target_with(self.migration, self.pod, ahead, belief),
        )

    def _belief(self, percent: Row) -> Belief:
        """Return what is believed if nodes use so much CPU, and every pod a tenth of one."""
        now_s, snapshot = NOW.timestamp(), self.state.snapshot()
        used = {
            NodeName(name): Usage(level / 100 * view.node.allocatable.cpu_milli, 0.0, now_s, 60.0)
            for name, view in snapshot.nodes.items()
            if (level := percent.get(name)) is not None
        }
        tenth = snapshot.nodes[NodeName("n1")].node.allocatable.cpu_milli / 10
        pods = {pod.key: Usage(tenth, 0.0, now_s, 60.0) for pod in snapshot.pods.values()}
        tracker = LoadTracker()
        tracker.observe(Sample(nodes=used, pods=pods), snapshot, now_s)
        return Belief(snapshot, tracker.view(snapshot, now_s))

    def _owner(self) -> Row:
        top, owner = self.state.snapshot().top_workload(self.pod), self.pod.owner
        if owner is None:
            return {"kind": "", "replacement_name": "copy"}
        return {
            "kind": owner.kind,
            "controller": owner.uid,
            "workload": top.uid if top is not None else owner.uid,
        }

    def _told(self, given: Row) -> Row:
        """Let `same: true` stand for the workload of the Migration to judge, names for pods."""
        kept, pods = dict(given), self.state.snapshot().pods_by_name
        owner = self._owner() if kept.pop("same", False) else {}
        for key, field in (("moves", "uid"), ("replaced_by", "replacement")):
            if key in kept:
                kept[field] = pods[f"default/{kept.pop(key)}"].uid
        if "waits_for" in kept:
            known = pods.get(f"default/{kept['waits_for']}")
            kept["needs"] = [known.uid if known is not None else f"uid-{kept['waits_for']}"]
        return {**owner, **kept}


def config_of(row: Row) -> RebalancerConfiguration:
    return RebalancerConfiguration.model_validate({**CONFIG, **row.get("config", {})})


def migration_of(given: Row) -> Migration:
    """Return a Migration; times are seconds before NOW."""
    name, kind = given["pod"], given.get("kind", "ReplicaSet")
    uid = given.get("uid", f"uid-{name}")
    controller = given.get("controller", f"rs-{name}") if kind else None
    spec = MigrationSpec(
        pod=PodRef(namespace=given.get("namespace", "default"), name=name, uid=uid),
        controller=_ref(kind, controller),
        workload=_ref("Deployment", given.get("workload", controller)),
        replacement_name=given.get("replacement_name", ""),
        source=given.get("source", "n1"),
        target=given.get("target", "n2"),
        strategy=given.get("strategy", "ResourceOptimization"),
        reason=given.get("reason", "AboveCeiling"),
        plan_id=given.get("plan", "p1"),
        load=Amounts(cpu_milli=given.get("cpu", 0)),
        needs=given.get("needs", []),
        surge=given.get("surge", False),
        deadline=NOW + timedelta(minutes=5),
    )
    replacement = given.get("replacement", "")
    status = MigrationStatus(
        phase=given.get("phase", ""),
        outcome=given.get("outcome", ""),
        replacement=ReplacementRef(name=replacement, uid=replacement) if replacement else None,
        evicted_at=_ago(given.get("evicted")),
        finished_at=_ago(given.get("finished")),
    )
    meta = ObjectMeta(name=uid, uid=f"m-{uid}", creation_timestamp=_ago(given.get("created", 60.0)))
    return Migration(metadata=meta, spec=spec, status=status)


def record_of(given: Row) -> MigrationRecord:
    return migration_record(migration_of(given), Interner())


def lease_of(name: str, given: Row, *, now_s: float, settings: str = "") -> Lease:
    """Return an extender's Lease, written at `now_s`; times are seconds before that."""
    calls = given.get("calls", {SCHEDULER: {}})
    said = {
        SEEN_MIGRATIONS: str(given.get("seen", 100)),
        FILTER_CALLS: calls if isinstance(calls, str) else json.dumps(_calls(calls, now_s)),
        LOAD_SETTINGS: given.get("settings", settings or load_settings_hash(config_of({}))),
    }
    metadata = {
        "name": given.get("lease", f"{EXTENDER_LEASE_PREFIX}{name}"),
        "namespace": given.get("namespace", "evenkeel"),
        "annotations": said,
    }
    spec = {"renewTime": micro_time(now_s - given.get("written", 0.0))}
    return wire(Lease, stamped({"kind": "Lease", "metadata": metadata, "spec": spec}))


def lease_record_of(name: str, given: Row, *, now_s: float) -> LeaseRecord:
    return lease_record(lease_of(name, given, now_s=now_s), Interner())


def _calls(given: Row, now_s: float) -> Row:
    return {
        scheduler: {
            "last": micro_time(now_s - (call or {}).get("ago", 10.0)),
            "share": (call or {}).get("share", 1.0),
        }
        for scheduler, call in given.items()
    }


def _ref(kind: str, uid: str | None) -> ControllerRef | None:
    return ControllerRef(kind=kind, name=uid, uid=uid) if uid else None


def _ago(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(NOW.timestamp() - seconds, UTC)
