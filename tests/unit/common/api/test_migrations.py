# SPDX-License-Identifier: Apache-2.0
"""Migrations on the wire, in the cache, and in the schema: all three say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from common.api.contract import PREDICTED_USE
from common.api.migrations import (
    Migration,
    MigrationCondition,
    MigrationStatus,
    MoveReason,
    NodeUse,
    Outcome,
    Phase,
    PodRef,
    Purpose,
    ReplacementRef,
    Step,
    Uses,
)
from common.api.objects import ObjectMeta
from common.cluster.interning import Interner
from common.cluster.migrations import migration_record
from common.config import Strategy
from tests.support.worlds.migrations import (
    START,
    STATUS,
    Json,
    controller,
    definition,
    manifest_of,
    migration,
    spec_of,
)

SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fields(schema: Json, path: str = "") -> set[str]:
    """Return the paths of all fields of a schema."""
    found = {path} if path else set()
    for name, below in (schema.get("properties") or {}).items():
        found |= fields(below, f"{path}.{name}" if path else name)
    if "items" in schema:
        found |= fields(schema["items"], path)
    return found


def struct_fields(type_: Any, path: str) -> set[str]:
    """Return the paths of all fields of a struct, as they are on the wire."""
    found = {path}
    for field in msgspec.structs.fields(type_):
        below = f"{path}.{field.encode_name}"
        found.add(below)
        for part in (field.type, *getattr(field.type, "__args__", ())):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found |= struct_fields(part, below)
    return found


@pytest.mark.parametrize("part", ["spec", "status"])
def test_the_schema_knows_exactly_the_fields_of_the_structs(part: str) -> None:
    (type_,) = [f.type for f in msgspec.structs.fields(Migration) if f.name == part]
    assert fields(SCHEMA["properties"][part], part) == struct_fields(type_, part)


def test_the_schema_knows_exactly_the_words_of_the_enums() -> None:
    status = SCHEMA["properties"]["status"]["properties"]
    assert status["phase"]["enum"] == [phase.value for phase in Phase]
    assert status["outcome"]["enum"] == [outcome.value for outcome in Outcome]
    condition = status["conditions"]["items"]["properties"]
    assert condition["type"]["enum"] == [step.value for step in Step]


def test_what_is_required_is_what_the_structs_cannot_do_without() -> None:
    required = {
        f.encode_name
        for f in msgspec.structs.fields(type(spec_of()))
        if f.default is msgspec.NODEFAULT and f.default_factory is msgspec.NODEFAULT
    }
    assert set(SCHEMA["properties"]["spec"]["required"]) == required


def test_a_migration_is_named_after_its_pod() -> None:
    spec = spec_of()
    assert manifest_of(spec)["metadata"] == {"name": spec.pod.uid}


def test_a_manifest_comes_back_as_it_was_meant() -> None:
    spec = spec_of(completion_index=0, message="")
    sent = manifest_of(spec)
    assert "message" not in sent["spec"]
    assert sent["spec"]["completionIndex"] == 0
    assert msgspec.convert(sent, Migration, strict=False).spec == spec
    status = msgspec.convert({**sent, "status": STATUS}, Migration).status
    assert msgspec.to_builtins(status)["replacement"] == STATUS["replacement"]
    assert [condition.type for condition in status.conditions] == [step.value for step in Step]


def test_whole_numbers_are_amounts_too() -> None:
    """The API server drops the fraction of 250.0."""
    sent = manifest_of()
    sent["spec"]["load"] = {"cpuMilli": 250, "memoryBytes": 1}
    found = msgspec.json.decode(msgspec.json.encode(sent), type=Migration)
    assert found.spec.load.cpu_milli == 250.0


def test_the_record_holds_what_the_object_says() -> None:
    spec = spec_of(controller=controller(uid="c"), workload=controller("Deployment", "d"))
    status = MigrationStatus(
        phase="InProgress",
        replacement=ReplacementRef(name="n", uid="u", node="node-2"),
        finished_at=START,
    )
    found = migration_record(migration(spec, uid="m", status=status), Interner())
    assert (found.name, found.uid, found.pod_uid) == (spec.pod.uid, "m", spec.pod.uid)
    assert (found.controller_kind, found.controller_uid, found.workload_uid) == (
        *("ReplicaSet", "c"),
        "d",
    )
    assert (found.source, found.target, found.alternatives) == (
        *("node-1", "node-2"),
        ("node-3", "node-4.example.com"),
    )
    assert (found.load_cpu_milli, found.requests_mem_bytes, found.priority) == (
        *(812.5, 2.0**28),
        -5,
    )
    assert (found.replacement_uid, found.replacement_node) == ("u", "node-2")
    assert found.created_s == found.finished_s == START.timestamp()
    assert found.deadline_s == (START + timedelta(minutes=5)).timestamp()


def test_the_record_knows_how_far_it_is() -> None:
    marked = MigrationCondition(
        type="Marked", status="True", reason="Marked", last_transition_time=START
    )
    waits = MigrationCondition(
        type="Evicted", status="False", reason="PdbExhausted", last_transition_time=START
    )
    status = MigrationStatus(
        attempts=2,
        message="waits",
        evicted_at=START,
        conditions=(marked, waits),
    )
    found = migration_record(migration(spec_of(needs=("a", "b")), status=status), Interner())
    assert (found.needs, found.attempts, found.message) == (("a", "b"), 2, "waits")
    assert (found.evicted_s, found.started_s) == (START.timestamp(), None)
    assert [step for step in Step if found.done(step)] == [Step.MARKED]
    told = found.condition(Step.EVICTED)
    assert told is not None
    assert told.reason == "PdbExhausted"
    assert found.condition(Step.READY) is None


@pytest.mark.parametrize(
    ("strategy", "reason", "purpose"),
    [
        (Strategy.NODE_MAINTENANCE, MoveReason.MAINTENANCE, Purpose.MAINTENANCE),
        (Strategy.NODE_MAINTENANCE, "SomeoneElsesReason", Purpose.MAINTENANCE),
        (Strategy.NODE_MAINTENANCE, MoveReason.MAKES_ROOM, Purpose.LOAD),
        (Strategy.RESOURCE_OPTIMIZATION, MoveReason.MAINTENANCE, Purpose.LOAD),
        (Strategy.LOAD_BALANCING, MoveReason.SPREAD, Purpose.LOAD),
    ],
)
def test_only_moves_that_drain_their_own_node_are_for_maintenance(
    strategy: str, reason: str, purpose: Purpose
) -> None:
    found = migration(spec=spec_of(strategy=strategy, reason=reason))
    assert migration_record(found, Interner()).purpose is purpose


def test_without_a_workload_the_controller_is_at_the_top() -> None:
    found = migration_record(migration(spec_of(workload=None)), Interner())
    assert found.workload_uid == found.controller_uid == "rs-1"


def test_a_bare_pod_has_nobody() -> None:
    pod = PodRef(namespace="a", name="b", uid="c")
    spec = spec_of(pod=pod, controller=None, workload=None, replacement_name="b-2")
    found = migration_record(migration(spec), Interner())
    assert (found.controller_kind, found.controller_uid, found.workload_uid) == ("", "", "")
    assert found.replacement_name == "b-2"


@pytest.mark.parametrize(
    ("phase", "open_"),
    [("", True), ("Pending", True), ("InProgress", True), ("Completed", False), ("Failed", False)],
)
def test_a_migration_is_open_until_it_ends(phase: str, open_: bool) -> None:
    made = migration(spec_of(), status=MigrationStatus(phase=phase))
    assert migration_record(made, Interner()).open is open_


def test_a_migration_that_is_being_deleted_is_not_open() -> None:
    meta = ObjectMeta(name="m", deletion_timestamp=datetime(2026, 11, 16, tzinfo=UTC))
    assert not migration_record(Migration(metadata=meta, spec=spec_of()), Interner()).open


def test_the_record_keeps_what_was_predicted() -> None:
    made = migration(spec_of())
    assert migration_record(made, Interner()).predicted is None
    made.metadata.annotations = {PREDICTED_USE: '{"target": {"cpuPercent": 71.5}}'}
    predicted = migration_record(made, Interner()).predicted
    assert predicted == Uses(target=NodeUse(cpu_percent=71.5))
    made.metadata.annotations = {PREDICTED_USE: "much"}
    assert migration_record(made, Interner()).predicted is None
