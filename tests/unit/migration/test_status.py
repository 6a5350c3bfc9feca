"""What is written about a Migration, and onto its pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, Outcome, Step, migration_record
from common.cluster.selectors import parse
from common.cluster.state import ClusterState
from common.metrics import Metrics
from rebalancer import crash
from rebalancer.migration import marks, status
from rebalancer.migration.figures import Figures
from tests.support.migration_scenes import NOW_S, SceneWorld
from tests.support.migrations import migration, spec_of


def record(row: dict[str, Any] | None = None) -> MigrationRecord:
    return SceneWorld(row or {}).scene().migration


def said(change: status.Change) -> Any:
    return msgspec.to_builtins(change)


def test_conditions_stand_in_the_order_of_the_steps() -> None:
    before = record({"done": ["BudgetChecked", "Acknowledged"]})
    change = status.condition(
        before, Step.MARKED, status=True, reason="Marked", words="", now_s=NOW_S
    )
    kinds = [c["type"] for c in said(change)["conditions"]]
    assert kinds == ["BudgetChecked", "Marked", "Acknowledged"]


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    before = record({"said": {"Evicted": ["False", "PdbExhausted"]}})
    waits = status.condition(
        before, Step.EVICTED, status=False, reason="Paused", words="", now_s=NOW_S
    )
    turns = status.condition(
        before, Step.EVICTED, status=True, reason="Evicted", words="", now_s=NOW_S
    )
    [old], [new] = waits["conditions"], turns["conditions"]
    assert (old.reason, old.last_transition_time.timestamp()) == ("Paused", NOW_S - 30)
    assert new.last_transition_time.timestamp() == NOW_S


def test_words_that_are_too_long_are_cut() -> None:
    change = status.failed("Reason", "ö" * 2000, NOW_S)
    assert len(change["message"].encode()) <= 1024


def test_words_of_others_cannot_act_on_a_terminal() -> None:
    """The API server takes any characters for the kind and name of an owner, say."""
    hostile, shown = "its \x1b[2J \u202eReplicaSet\n", "its \\x1b[2J \\u202eReplicaSet\\n"
    assert status.waiting(record(), hostile)["message"] == shown
    assert status.failed("Reason", hostile, NOW_S)["message"] == f"Reason: {shown}"
    change = status.condition(
        record(), Step.EVICTED, status=False, reason="Paused", words=hostile, now_s=NOW_S
    )
    assert change["conditions"][0].message == shown


def test_a_patch_carries_the_version_that_was_decided_on() -> None:
    assert status.patch(record(), {})["metadata"] == {"resourceVersion": "7"}


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
def test_every_node_name_becomes_a_valid_label(name: str) -> None:
    value = marks.shortened(name)
    assert len(value) <= 63
    assert parse(f"key={value}").matches({"key": value})
    assert value == name or len(name) > 63


def test_long_names_stay_apart() -> None:
    names = [f"{'n' * 70}-{number}" for number in range(50)]
    assert len({marks.shortened(name) for name in names}) == 50


def test_the_marks_are_exactly_the_promised_keys() -> None:
    """REQUIREMENTS R6.4."""
    prefix = "scheduler.alpha.kubernetes.io/"
    found = record()
    assert (
        set(marks.labels_of(found))
        == set(marks.LABELS)
        == {
            prefix + name
            for name in ("migration-id", "migration-status", "migrated-from", "migration-reason")
        }
    )
    assert (
        set(marks.annotations_of(found, NOW_S))
        == set(marks.ANNOTATIONS)
        == {prefix + name for name in ("migration-time", "original-pod", "original-pod-name")}
    )


def test_a_crash_point_must_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no crash point"):
        crash.point("after-lunch")
    monkeypatch.setenv(crash.VARIABLE, "after-evict")
    crash.point("before-evict")
    assert len(set(crash.POINTS)) == len(crash.POINTS)


def test_a_crash_point_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setenv(crash.VARIABLE, "after-evict")
    crash.point("after-evict")
    assert codes == [crash.EXIT_CODE]


@pytest.mark.parametrize(("strategy", "label"), [("LoadBalancing",) * 2, ("Strange", "other")])
def test_strategies_of_strangers_make_no_new_series(strategy: str, label: str) -> None:
    metrics = Metrics("test")
    figures = Figures(metrics, ClusterState())
    found = migration_record(migration(spec_of(strategy=strategy)), Interner())
    figures.ended(found, Outcome.AS_PLANNED, NOW_S)
    labels = {"outcome": "AsPlanned", "strategy": label}
    assert metrics.registry.get_sample_value("evenkeel_migrations_total", labels) == 1
