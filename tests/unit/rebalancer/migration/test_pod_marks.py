# SPDX-License-Identifier: Apache-2.0
"""The labels and annotations of a pod that is being moved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from rebalancer.migration import pod_marks as marks
from tests.support.worlds.migration_views import MigrationWorld
from tests.support.worlds.migrations import MARK_ANNOTATIONS, MARK_LABELS

PREFIX = "scheduler.alpha.kubernetes.io/"


def migration(**changes: Any) -> MigrationRecord:
    found = MigrationWorld({}).view().migration
    return msgspec.structs.replace(found, **changes)


def test_the_marks_are_exactly_the_promised_keys() -> None:
    """REQUIREMENTS R6.4."""
    labels = ("migration-id", "migration-status", "migrated-from", "migration-reason")
    annotations = ("migration-time", "original-pod", "original-pod-name")
    found = migration()
    wanted = {PREFIX + name for name in labels}
    assert set(marks.labels_of_replacement(found)) == set(MARK_LABELS) == wanted
    wanted = {PREFIX + name for name in annotations}
    assert set(marks.annotations_of_replacement(found)) == set(MARK_ANNOTATIONS) == wanted
    assert set(marks.labels_of_original(found)) == {PREFIX + name for name in labels[:2]}


@pytest.mark.parametrize(
    ("phase", "status"),
    [
        ("Pending", "in-progress"),
        ("InProgress", "in-progress"),
        ("Completed", "completed"),
        ("Failed", "failed"),
    ],
)
def test_the_status_follows_the_phase(phase: str, status: str) -> None:
    found = marks.labels_of_replacement(migration(phase=phase))
    assert found[f"{PREFIX}migration-status"] == status


def test_values_are_short_enough_and_times_are_rfc_3339() -> None:
    name = ".".join(["node-" + "x" * 50] * 4)
    found = migration(source=NodeName(name), strategy="S" * 90, started_s=1_800_000_000.4)
    labels = marks.labels_of_replacement(found)
    assert {len(value) <= 63 for value in labels.values()} == {True}
    assert labels[f"{PREFIX}migrated-from"].startswith("node-x")
    annotations = marks.annotations_of_replacement(found)
    assert annotations[f"{PREFIX}migration-time"] == "2027-01-15T08:00:00Z"


@pytest.mark.parametrize("original", ["", "not a label value", "ümlaut", "-x"])
def test_what_a_tenant_wrote_instead_of_a_uid_is_not_restored(original: str) -> None:
    pod = MigrationWorld({}).view().pod
    assert pod is not None
    odd = msgspec.structs.replace(
        pod,
        labels={f"{PREFIX}migrated-from": "n1"},
        annotations={f"{PREFIX}original-pod": original},
    )
    assert marks.marks_before(odd, {}) is None
