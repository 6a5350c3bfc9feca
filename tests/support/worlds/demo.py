# SPDX-License-Identifier: Apache-2.0
"""Made-up moments of a demo, for what is shown and counted without a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from common.api.migrations import MigrationCondition, Phase, Step
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from simulator.demo.client import Observation, PlannedMove, ReportedPlan, Unmet
from simulator.demo.progress import Progress
from simulator.demo.screen import DemoState
from simulator.figures import Utilization
from tests.support.worlds.migrations import migration, spec_of

HOT = {"node-1": 94.0, "node-2": 52.0, "node-10": 55.0}
LEVEL = {"node-1": 72.0, "node-2": 64.0, "node-10": 58.0}
WHEN = datetime(2026, 11, 16, tzinfo=UTC)


def move(number: int = 1, **changes: Any) -> MigrationRecord:
    """Return a Migration that was just made; keywords change its record."""
    found = migration_record(migration(spec_of()), Interner())
    name = f"search-{number}-7f7fd599c8-49rgb"
    made: dict[str, Any] = {"name": f"m-{number}", "pod_name": name, "pod_uid": f"pod-{number}"}
    return replace(found, **{**made, "plan_id": "plan-1", "replacement_uid": "", **changes})


def landed(number: int = 1, outcome: str = "AsPlanned", **changes: Any) -> MigrationRecord:
    """Return a Migration that has ended well."""
    done = {"phase": Phase.COMPLETED.value, "outcome": outcome, "evicted_s": 1.0}
    return move(number, **{**done, "replacement_uid": f"new-{number}", **changes})


def waiting_at(step: Step, reason: str = "") -> MigrationRecord:
    """Return a Migration that has come as far as a step."""
    before = [each for each in Step if list(Step).index(each) < list(Step).index(step)]
    conditions = [_condition(each, "True", "Done") for each in before]
    if reason:
        conditions.append(_condition(step, "False", reason))
    return move(phase=Phase.IN_PROGRESS.value, conditions=tuple(conditions))


def _condition(step: Step, status: str, reason: str) -> MigrationCondition:
    return MigrationCondition(type=step, status=status, reason=reason, last_transition_time=WHEN)


def plan(moves: int = 2, bound: int = 2, plan_id: str = "plan-1", **other: Any) -> ReportedPlan:
    """Return a plan that relieves node-1."""
    words = "node-1 uses 94 % CPU (allowed 80 %, cpuThreshold)"
    planned = tuple(
        PlannedMove(
            pod=f"default/search-{number}-7f7fd599c8-49rgb",
            source="node-1",
            target="node-2",
            alternatives=("node-10", "node-11", "node-12"),
            words=words,
        )
        for number in range(1, moves + 1)
    )
    return ReportedPlan(plan_id=plan_id, lower_bound=bound, moves=planned, **other)


def unmet(goal: str = "node-1 at most 80 %", why: str = "no pod may move") -> Unmet:
    return Unmet(goal=goal, why=why)


def observation(
    percent: Mapping[str, float],
    moves: Sequence[MigrationRecord] = (),
    *,
    nodes: int | None = None,
    **other: Any,
) -> Observation:
    """Return a moment in which all pods run."""
    seen = Utilization(percent, len(percent) if nodes is None else nodes)
    return Observation(utilization=seen, migrations=moves, **{"pods": 9, "ready": 9, **other})


def state(progress: Progress, seen: Observation) -> DemoState:
    """Return what is shown of a moment."""
    progress.update(seen)
    return DemoState(
        title="hot-spots",
        description="Some nodes are hot. " * 12,
        waits="Shorter waits in this demo: " + "cycle every 3 s (default 30 s), " * 8,
        progress=progress,
        observation=seen,
        seconds=7.25,
    )
