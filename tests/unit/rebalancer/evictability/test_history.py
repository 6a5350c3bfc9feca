# SPDX-License-Identifier: Apache-2.0
"""What finished Migrations say about who was moved, and when."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.migrations import Migration
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import ControllerId, OwnerUid, pod_record
from rebalancer.evictability import MoveHistory, lineage_of, move_history
from simulator import build
from tests.support.worlds.wire import stamped, wire, wire_pod

EIGHT = 1_794_816_000.0  # 2026-11-16T08:00:00Z
WEB = ControllerId("shop", "Deployment", OwnerUid("u-web"))


def migration(
    name: str = "m", *, kind: str | None = "ReplicaSet", status: dict[str, Any] | None = None
) -> MigrationRecord:
    controller = {"kind": kind, "name": "web-1", "uid": "u-web-1"}
    workload = {"kind": "Deployment", "name": "web", "uid": "u-web"}
    spec = {
        "pod": {"namespace": "shop", "name": "web-a", "uid": "u-a"},
        **({"controller": controller, "workload": workload} if kind else {}),
        "source": "n1",
        "target": "n2",
        "strategy": "LoadBalancing",
        "reason": "AboveCeiling",
        "deadline": "2026-11-16T08:05:00Z",
    }
    made = {"kind": "Migration", "metadata": {"name": name}, "spec": spec, "status": status or {}}
    return migration_record(wire(Migration, stamped(made)), Interner())


def done(minute: int, replacement: str = "u-b") -> dict[str, Any]:
    return {
        "phase": "Completed",
        "replacement": {"name": "web-b", "uid": replacement, "node": "n2"},
        "finishedAt": f"2026-11-16T08:{minute:02}:00Z",
    }


def test_a_finished_move_is_remembered_by_workload_and_by_replacement() -> None:
    assert move_history([migration(status=done(3))]) == MoveHistory(
        {WEB: EIGHT + 180}, {"u-b": EIGHT + 180}
    )


def test_the_latest_move_of_a_workload_counts() -> None:
    moves = [migration(status=done(minute, f"u-{minute}")) for minute in (3, 9, 5)]
    found = move_history(moves)
    assert found.workload_moved_s == {WEB: EIGHT + 540}
    assert len(found.lineage_moved_s) == 3


@pytest.mark.parametrize("order", [(3, 9), (9, 3)])
def test_the_latest_move_of_a_lineage_counts(order: tuple[int, int]) -> None:
    found = move_history(migration(kind="StatefulSet", status=done(minute)) for minute in order)
    assert found.lineage_moved_s == {"u-web-1/web-a": EIGHT + 540}


def test_a_stateful_sets_pod_is_known_by_set_and_name() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}}
    made = pod_record(wire_pod(build.pod("db-0", node="n1"), owner=owner), Interner())
    assert made.owner is not None
    assert lineage_of(made) == f"{made.owner.uid}/db-0"


def test_any_other_pod_is_known_by_its_uid() -> None:
    made = pod_record(wire_pod(build.pod("p", node="n1")), Interner())
    assert lineage_of(made) == made.uid


def test_a_bare_pods_copy_has_a_lineage_but_no_workload() -> None:
    found = move_history([migration(kind=None, status=done(3))])
    assert found == MoveHistory({}, {"u-b": EIGHT + 180})


def test_a_move_whose_replacement_is_there_counts_before_it_has_ended() -> None:
    status = {"phase": "InProgress", "replacement": {"uid": "u-b"}}
    assert move_history([migration(status=status)]).lineage_moved_s == {"u-b": EIGHT}


@pytest.mark.parametrize("phase", ["", "Pending", "InProgress", "Failed"])
def test_what_was_never_evicted_was_not_moved(phase: str) -> None:
    assert move_history([migration(status={"phase": phase})]) == MoveHistory()


def test_a_completed_move_without_replacement_still_moved_its_workload() -> None:
    status = {"phase": "Completed", "finishedAt": "2026-11-16T08:03:00Z"}
    found = move_history([migration(status=status)])
    assert found.workload_moved_s == {WEB: EIGHT + 180}


def test_a_move_that_was_not_needed_any_more_before_the_eviction_moved_nothing() -> None:
    status = {"phase": "Completed", "outcome": "NotReplaced", "finishedAt": "2026-11-16T08:03:00Z"}
    assert move_history([migration(status=status)]) == MoveHistory()
    evicted = {**status, "evictedAt": "2026-11-16T08:02:00Z"}
    assert move_history([migration(status=evicted)]).workload_moved_s == {WEB: EIGHT + 180}
