# SPDX-License-Identifier: Apache-2.0
"""Migrations for tests: a good one, every way to spoil it, and the definition."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec
import pytest

from common.api.contract import (
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_REASON_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATION_TIME,
    ORIGINAL_POD,
    ORIGINAL_POD_NAME,
)
from common.api.migrations import (
    Amounts,
    ControllerRef,
    Migration,
    MigrationSpec,
    PodRef,
    new_migration,
)
from common.api.objects import ObjectMeta
from tests.support.repository import DEPLOY
from tests.support.tables import read_table

MARK_LABELS = (
    MIGRATION_ID_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATED_FROM_LABEL,
    MIGRATION_REASON_LABEL,
)
"""The labels that say on pods what is done with them."""
MARK_ANNOTATIONS = (MIGRATION_TIME, ORIGINAL_POD, ORIGINAL_POD_NAME)

Json = dict[str, Any]

DEFINITION_FILE = DEPLOY / "crds" / "migrations.yaml"
START = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


def definition() -> Json:
    """Return the shipped CustomResourceDefinition, which callers may change."""
    return copy.deepcopy(_shipped_definition())


@cache
def _shipped_definition() -> Json:
    # Parsing it takes longer than starting a simulated cluster.
    found: Json = read_table(DEFINITION_FILE)
    return found


def controller(kind: str = "ReplicaSet", uid: str = "rs-1", name: str = "web") -> ControllerRef:
    return ControllerRef(api_version="apps/v1", kind=kind, name=name, uid=uid)


def spec_of(**other: Any) -> MigrationSpec:
    """Return a spec that says all that a ReplicaSet's pod can say, by default."""
    said: Json = {
        "pod": PodRef(namespace="shop", name="web-1", uid=str(uuid.uuid4())),
        "controller": controller(),
        "workload": controller("Deployment", "d-1"),
        "source": "node-1",
        "target": "node-2",
        "alternatives": ("node-3", "node-4.example.com"),
        "strategy": "LoadBalancing",
        "reason": "NodeOverloaded",
        "message": "node-1 uses 93 % of its CPU",
        "plan_id": "plan-7",
        "deadline": START + timedelta(minutes=5),
        "load": Amounts(cpu_milli=812.5, memory_bytes=3.0e8),
        "requests": Amounts(cpu_milli=500.0, memory_bytes=2.0**28),
        "priority": -5,
        "needs": (),
    }
    return MigrationSpec(**{**said, **other})


def manifest_of(spec: MigrationSpec | None = None) -> Json:
    """Return a Migration as it is sent to the API server."""
    found: Json = msgspec.json.decode(msgspec.json.encode(new_migration(spec or spec_of())))
    return found


def migration(
    spec: MigrationSpec, *, created: datetime = START, uid: str = "", **other: Any
) -> Migration:
    """Return a Migration as a watch sends it."""
    meta = ObjectMeta(name=spec.pod.uid, uid=uid or f"m-{spec.pod.uid}", creation_timestamp=created)
    return Migration(metadata=meta, spec=spec, **other)


Spoil = Callable[[Json], None]


def _set(path: str, value: Any) -> Spoil:
    *above, last = path.split(".")

    def spoil(manifest: Json) -> None:
        place = manifest
        for step in above:
            place = place[step]
        place[last] = value

    return spoil


def _without(path: str) -> Spoil:
    *above, last = path.split(".")

    def spoil(manifest: Json) -> None:
        place = manifest
        for step in above:
            place = place[step]
        del place[last]

    return spoil


def _row(name: str, spoil: Spoil, field: str, words: str) -> Any:
    return pytest.param(spoil, field, words, id=name)


SPOILT = (
    _row(
        "needs-itself",
        lambda made: made["spec"].update(needs=[made["spec"]["pod"]["uid"]]),
        "spec",
        "a pod cannot wait for itself",
    ),
    _row("same-need", _set("spec.needs", ["a", "a"]), "spec.needs[1]", "Duplicate value"),
    _row("odd-need", _set("spec.needs", ["A b"]), "spec.needs[0]", "should match"),
    _row(
        "seventeen-needs",
        _set("spec.needs", [f"p{i}" for i in range(17)]),
        "spec.needs",
        "must have at most 16 items",
    ),
    _row("no-pod", _without("spec.pod"), "spec.pod", "Required value"),
    _row("no-pod-uid", _without("spec.pod.uid"), "spec.pod.uid", "Required value"),
    _row("no-source", _without("spec.source"), "spec.source", "Required value"),
    _row("no-target", _without("spec.target"), "spec.target", "Required value"),
    _row("no-strategy", _without("spec.strategy"), "spec.strategy", "Required value"),
    _row("no-reason", _without("spec.reason"), "spec.reason", "Required value"),
    _row("no-deadline", _without("spec.deadline"), "spec.deadline", "Required value"),
    _row("no-spec", _without("spec"), "spec", "Required value"),
    _row("bad-namespace", _set("spec.pod.namespace", "Shop"), "spec.pod.namespace", "should match"),
    _row("bad-pod-name", _set("spec.pod.name", "-web"), "spec.pod.name", "should match"),
    _row("bad-node", _set("spec.target", "node_2"), "spec.target", "should match"),
    _row("no-node", _set("spec.source", ""), "spec.source", "should match"),
    _row("long-node", _set("spec.target", "n" * 254), "spec.target", "Too long"),
    _row("bad-kind", _set("spec.controller.kind", "replica set"), "spec.controller.kind", "match"),
    _row("bad-owner", _without("spec.workload.uid"), "spec.workload.uid", "Required value"),
    _row("bad-strategy", _set("spec.strategy", "load balancing"), "spec.strategy", "should match"),
    _row("bad-reason", _set("spec.reason", "x" * 64), "spec.reason", "Too long"),
    _row("wordy", _set("spec.message", "x" * 1025), "spec.message", "Too long"),
    _row("bad-deadline", _set("spec.deadline", "soon"), "spec.deadline", "date-time"),
    _row("bad-load", _set("spec.load.cpuMilli", -1), "spec.load.cpuMilli", "greater than"),
    _row("text-load", _set("spec.load.memoryBytes", "1Gi"), "spec.load.memoryBytes", "type number"),
    _row("bad-priority", _set("spec.priority", 1.5), "spec.priority", "type integer"),
    _row(
        "bad-index",
        _set("spec.completionIndex", -1),
        "spec.completionIndex",
        "greater than or equal",
    ),
    _row(
        "nine-alternatives",
        _set("spec.alternatives", [f"n{i}" for i in range(9)]),
        "spec.alternatives",
        "must have at most 8 items",
    ),
    _row(
        "same-alternative",
        _set("spec.alternatives", ["n1", "n1"]),
        "spec.alternatives[1]",
        "Duplicate value",
    ),
    _row("same-node", _set("spec.target", "node-1"), "spec", "must be different nodes"),
    _row(
        "back-to-source",
        _set("spec.alternatives", ["node-1"]),
        "spec",
        "the source cannot be an alternative",
    ),
    _row(
        "target-again",
        _set("spec.alternatives", ["node-2"]),
        "spec",
        "the target cannot be an alternative",
    ),
    _row(
        "no-one-replaces",
        _without("spec.controller"),
        "spec",
        "either a controller replaces the pod, or the replacement has a name",
    ),
    _row(
        "both-replace",
        _set("spec.replacementName", "web-2"),
        "spec",
        "either a controller replaces the pod, or the replacement has a name",
    ),
    _row(
        "index-of-no-job",
        _set("spec.completionIndex", 3),
        "spec",
        "only the pods of a Job have a completion index",
    ),
    _row(
        "other-name",
        _set("metadata.name", "other"),
        "<nil>",
        "the name of a Migration is the uid of its pod",
    ),
)
"""(how to spoil it, the field that is named, words of the refusal)"""


def spoilt(spoil: Spoil) -> Json:
    """Return a good Migration with one thing wrong."""
    manifest = copy.deepcopy(manifest_of())
    spoil(manifest)
    return manifest


STATUS: Json = {
    "phase": "InProgress",
    "outcome": "AsPlanned",
    "message": "on its way",
    "attempts": 1,
    "replacement": {"name": "web-2", "uid": "u-2", "node": "node-2"},
    "startedAt": "2026-11-16T09:00:01Z",
    "evictedAt": "2026-11-16T09:00:02.5Z",
    "finishedAt": "2026-11-16T09:00:03Z",
    "predicted": {
        "source": {"cpuPercent": 71.5, "memoryPercent": 40},
        "target": {"cpuPercent": 70, "memoryPercent": 41.25},
    },
    "actual": {"source": {"cpuPercent": 72}, "target": {"cpuPercent": 69}},
    "conditions": [
        {
            "type": type_,
            "status": "True",
            "reason": "Done",
            "message": "well",
            "lastTransitionTime": "2026-11-16T09:00:01Z",
        }
        for type_ in (
            "BudgetChecked",
            "Marked",
            "Acknowledged",
            "Protected",
            "Counted",
            "Raised",
            "Evicted",
            "Replaced",
            "Ready",
            "Ranked",
            "Lowered",
            "CleanedUp",
        )
    ],
}
"""A status that says everything."""

BAD_STATUSES = (
    pytest.param({"phase": "Done"}, "status.phase", "Unsupported value", id="phase"),
    pytest.param({"outcome": "Lost"}, "status.outcome", "Unsupported value", id="outcome"),
    pytest.param({"attempts": -1}, "status.attempts", "greater than", id="attempts"),
    pytest.param({"startedAt": "now"}, "status.startedAt", "date-time", id="time"),
    pytest.param(
        {"predicted": {"source": {"cpuPercent": "70 %"}}},
        "status.predicted.source.cpuPercent",
        "type number",
        id="percent",
    ),
    pytest.param(
        {"conditions": [{**STATUS["conditions"][0], "type": "Nearly"}]},
        "status.conditions[0].type",
        "Unsupported value",
        id="condition",
    ),
    pytest.param(
        {"conditions": [STATUS["conditions"][0], STATUS["conditions"][0]]},
        "status.conditions[1]",
        "Duplicate value",
        id="condition-twice",
    ),
)
"""(status, the field that is named, words of the refusal)"""
