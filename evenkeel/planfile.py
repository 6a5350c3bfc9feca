# SPDX-License-Identifier: Apache-2.0
"""A plan as a file that people review and `evenkeel apply` carries out.

The file is YAML with a version of its own. Every move is pinned: the uid of the pod, the node
that it is on, the target and the goal. Figures are there for the reader; whether the plan still
holds is decided by validating it again, so figures that changed a little are no drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
import yaml

from common.api.contract import API_VERSION
from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from evenkeel.errors import UsageError
from rebalancer.inspection import Inspection
from rebalancer.planner import Move, Plan
from rebalancer.report import MoveDocument, move_document

KIND: Final = "EvenkeelPlan"
SCHEMA: Final = 2
MAX_BYTES: Final = 16 << 20


class FileMove(MoveDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One move that was reviewed: as in the JSON of a plan, and what is needed to carry it out."""

    strategy: Strategy
    cpu_milli: float
    memory_bytes: float
    relieves: bool = False
    decided_by: str = ""
    """The rule by which it is carried out: a pool, a namespace, or the configuration."""


class FileNode(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A node that the plan touches, for the reader; null is not known."""

    name: str
    cpu_before: float | None
    cpu_after: float | None
    memory_before: float | None
    memory_after: float | None


class PlanFile(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The file."""

    api_version: Literal["evenkeel.io/v1alpha1"] = "evenkeel.io/v1alpha1"
    kind: Literal["EvenkeelPlan"] = "EvenkeelPlan"
    schema: Literal[2] = 2
    made_at: str
    cluster: str
    plan_id: str
    fingerprint: str
    goals: tuple[str, ...]
    evictions: int
    lower_bound: int
    moves: tuple[FileMove, ...]
    nodes: tuple[FileNode, ...] = ()
    unmet: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan_file(plan: Plan, asked: Inspection, cluster: str) -> PlanFile:
    """Return a plan as it is written down."""
    return PlanFile(
        made_at=datetime.fromtimestamp(asked.now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        cluster=cluster,
        plan_id=plan.plan_id,
        fingerprint=plan.fingerprint,
        goals=plan.goals,
        evictions=len(plan.moves),
        lower_bound=plan.lower_bound.evictions,
        moves=tuple(_file_move(move, asked) for move in plan.moves),
        nodes=tuple(
            FileNode(
                name=node.name,
                cpu_before=_rounded(node.before.cpu),
                cpu_after=_rounded(node.after.cpu),
                memory_before=_rounded(node.before.memory),
                memory_after=_rounded(node.after.memory),
            )
            for node in plan.nodes
            if node.role
        ),
        unmet=tuple(f"{each.goal}: {each.why.message}" for each in plan.unmet),
        notes=plan.notes,
    )


def _file_move(move: Move, asked: Inspection) -> FileMove:
    namespace = move.pod.partition("/")[0]
    shown = msgspec.structs.asdict(move_document(move)) | {"strategy": move.strategy}
    return FileMove(
        **shown,
        cpu_milli=round(move.cpu_milli, 1),
        memory_bytes=round(move.mem_bytes),
        relieves=move.relieves,
        decided_by=asked.rules.mode_of(move.strategy, move.source, namespace).by,
    )


def _rounded(value: float) -> float | None:
    return round(value, 1) if value == value else None


def written(file: PlanFile) -> str:
    """Return the text of a file; what is not ASCII is escaped."""
    return yaml.safe_dump(
        msgspec.to_builtins(file), sort_keys=False, allow_unicode=False, width=1_000_000
    )


def _from_schema_1(values: dict[str, Any]) -> dict[str, Any]:
    """Schema 2 added `decidedBy`, which may be missing."""
    return values | {"schema": 2}


UPGRADES: Final[Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]] = {1: _from_schema_1}
"""What turns a file of one schema into one of the next."""


def read_plan_file(path: str, warn: Callable[[str], None]) -> PlanFile:
    """Return the plan in a file; raise `UsageError` with the first problem.

    A plan of an older schema is converted, and `warn` is told.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None
    if len(text) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    return _decoded(path, text, warn)


def _decoded(path: str, text: str, warn: Callable[[str], None]) -> PlanFile:
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path}: is not YAML: {first}") from None
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise UsageError(f"{path}: is not a plan: write it with evenkeel plan --file")
    if (upgrade := _upgrade(values)) is not None:
        warn(f"{path}: is of schema {values['schema']}, and is read as schema {SCHEMA}")
    while upgrade is not None:
        values = upgrade(values)
        upgrade = _upgrade(values)
    if values.get("apiVersion") != API_VERSION or values.get("schema") != SCHEMA:
        found = f"{values.get('apiVersion')}, schema {values.get('schema')}"
        raise UsageError(f"{path}: is of another version ({found}): make the plan again")
    try:
        return msgspec.convert(values, PlanFile)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"{path}: {error}") from None


def _upgrade(values: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]] | None:
    schema = values.get("schema")
    return UPGRADES.get(schema) if isinstance(schema, int) else None


def moves_of(file: PlanFile) -> tuple[Move, ...]:
    """Return the moves of a file as the planner has them."""
    return tuple(
        Move(
            pod=move.pod,
            uid=PodUid(move.uid),
            owner=move.owner,
            source=NodeName(move.source),
            target=NodeName(move.target),
            alternatives=tuple(map(NodeName, move.alternatives)),
            strategy=move.strategy,
            reason=move.reason,
            message=move.words,
            chain=move.chain,
            needs=tuple(map(PodUid, move.needs)),
            cpu_milli=move.cpu_milli,
            mem_bytes=move.memory_bytes,
            this_cycle=move.this_cycle,
            deferred_by=move.deferred_by,
            relieves=move.relieves,
        )
        for move in file.moves
    )
