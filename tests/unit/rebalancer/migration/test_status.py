# SPDX-License-Identifier: Apache-2.0
"""What is written into the status of a Migration."""

from __future__ import annotations

from typing import Any

import msgspec

from common.api.migrations import Step
from common.cluster.migrations import MigrationRecord
from rebalancer.migration import status
from rebalancer.store import StatusChange
from tests.support.worlds.migration_views import NOW_S, MigrationWorld


def record(row: dict[str, Any] | None = None) -> MigrationRecord:
    return MigrationWorld(row or {}).view().migration


def said(change: StatusChange) -> Any:
    return msgspec.to_builtins(change)


def test_conditions_are_in_the_order_of_the_steps() -> None:
    before = record({"done": ["BudgetChecked", "Acknowledged"]})
    change = status.condition(
        before, Step.MARKED, status=True, reason="Marked", message="", now_s=NOW_S
    )
    kinds = [c["type"] for c in said(change)["conditions"]]
    assert kinds == ["BudgetChecked", "Marked", "Acknowledged"]


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    before = record({"said": {"Evicted": ["False", "PdbExhausted"]}})
    waits = status.condition(
        before, Step.EVICTED, status=False, reason="Paused", message="", now_s=NOW_S
    )
    turns = status.condition(
        before, Step.EVICTED, status=True, reason="Evicted", message="", now_s=NOW_S
    )
    [old], [new] = waits["conditions"], turns["conditions"]
    assert (old.reason, old.last_transition_time.timestamp()) == ("Paused", NOW_S - 30)
    assert new.last_transition_time.timestamp() == NOW_S


def test_messages_that_are_too_long_are_cut() -> None:
    change = status.failed("Reason", "ö" * 2000, NOW_S)
    assert len(change["message"].encode()) <= 1024


def test_messages_with_control_characters_cannot_act_on_a_terminal() -> None:
    """The API server takes any characters for the kind and name of an owner, say."""
    hostile, shown = "its \x1b[2J \u202eReplicaSet\n", "its \\x1b[2J \\u202eReplicaSet\\n"
    assert status.waiting(record(), hostile)["message"] == shown
    assert status.failed("Reason", hostile, NOW_S)["message"] == f"Reason: {shown}"
    change = status.condition(
        record(), Step.EVICTED, status=False, reason="Paused", message=hostile, now_s=NOW_S
    )
    assert change["conditions"][0].message == shown
