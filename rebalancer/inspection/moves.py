# SPDX-License-Identifier: Apache-2.0
"""Moves as people see them: each Migration with its times, outcome and figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from common.api.migrations import Outcome, Uses
from common.cluster.migrations import MigrationRecord
from console.data import MigrationRow, MigrationsDocument, StepTime, UseOfNodes

LISTED: Final = 500
"""Finished moves that are listed at most; open ones are all listed."""


def migrations_document(
    migrations: Iterable[MigrationRecord], *, most: int = LISTED, why_none: str = ""
) -> MigrationsDocument:
    """Return all moves, the open ones first, then the newest first."""
    known = sorted(migrations, key=lambda m: (not m.open, -m.created_s, m.name))
    open_ones = sum(m.open for m in known)
    shown = known[: open_ones + most]
    return MigrationsDocument(
        rows=tuple(map(migration_row, shown)),
        left_out=len(known) - len(shown),
        why_none=why_none,
    )


def rows_of(
    migrations: Iterable[MigrationRecord], wanted: Callable[[MigrationRecord], bool]
) -> tuple[MigrationRow, ...]:
    """Return some moves, in their order."""
    return tuple(migration_row(m) for m in migrations if wanted(m))


def migration_row(migration: MigrationRecord) -> MigrationRow:
    """Return one move."""
    replaced = migration.replacement_pod
    return MigrationRow(
        name=migration.name,
        pod=f"{migration.namespace}/{migration.pod_name}",
        source=migration.source,
        target=migration.target,
        strategy=migration.strategy,
        reason=migration.reason,
        phase=migration.phase,
        outcome=migration.outcome,
        words=migration.message,
        replacement=f"{migration.namespace}/{replaced}" if replaced else "",
        landed_on=migration.replacement_node,
        created_s=migration.created_s,
        started_s=migration.started_s,
        evicted_s=migration.evicted_s,
        finished_s=migration.finished_s,
        due_s=migration.due_s,
        attempts=migration.attempts,
        steps=_steps(migration),
        predicted=_uses(migration.predicted),
        actual=_uses(migration.actual),
    )


def hits(migrations: Iterable[MigrationRecord]) -> tuple[int, int]:
    """Return how many finished moves landed as planned, and how many have a replacement."""
    placed = [m for m in migrations if not m.open and m.replacement_node]
    return sum(m.outcome == Outcome.AS_PLANNED for m in placed), len(placed)


def since(migrations: Sequence[MigrationRecord], since_s: float) -> list[MigrationRecord]:
    """Return the moves that were under way at some time since then."""
    return [m for m in migrations if m.open or (m.finished_s or m.created_s) >= since_s]


def _steps(migration: MigrationRecord) -> tuple[StepTime, ...]:
    return tuple(
        StepTime(
            name=each.type,
            status=each.status,
            reason=each.reason,
            words=each.message,
            at_s=each.last_transition_time.timestamp(),
        )
        for each in migration.conditions
    )


def _uses(found: Uses | None) -> UseOfNodes | None:
    if found is None:
        return None
    source, target = found.source, found.target
    return UseOfNodes(
        source_cpu=source.cpu_percent if source is not None else None,
        source_memory=source.memory_percent if source is not None else None,
        target_cpu=target.cpu_percent if target is not None else None,
        target_memory=target.memory_percent if target is not None else None,
    )
