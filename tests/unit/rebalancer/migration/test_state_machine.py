# SPDX-License-Identifier: Apache-2.0
"""What is next about a Migration, for every look of the world that matters."""

from __future__ import annotations

import pytest

from common.api.migrations import Step
from common.config import RebalancerConfiguration
from rebalancer.migration import steps
from rebalancer.migration.budgets import budget_refusal
from rebalancer.migration.controller import FAILPOINTS
from rebalancer.migration.progress import BARE_STEPS, OWNED_STEPS, SURGE_STEPS
from rebalancer.migration.replacements import why_not_replaced
from rebalancer.migration.state_machine import RULES, next_step
from rebalancer.migration.verdicts import Fail
from tests.support.worlds.migration_views import MigrationCase, MigrationWorld, load_cases, spoken

CONFIG = RebalancerConfiguration()


@pytest.mark.parametrize("case", load_cases("state_machine.yaml"), ids=str)
def test_the_next_step_follows_from_what_is_seen(case: MigrationCase) -> None:
    assert spoken(next_step(case.view(), case.config)) == case.expected


def test_every_rule_decides_some_case_of_the_table() -> None:
    deciding = set()
    for case in load_cases("state_machine.yaml"):
        view, config = case.view(), case.config
        deciding.add(next((r for r in RULES if r(view, config) is not None), None))
    assert deciding >= set(RULES)


def test_every_step_has_an_effect_and_failpoints() -> None:
    assert set(steps.STEPS) == set(Step) == set(FAILPOINTS)
    only_surges = {Step.COUNTED, Step.RAISED, Step.RANKED, Step.LOWERED}
    assert {*OWNED_STEPS, Step.CLEANED_UP} == set(Step) - only_surges
    assert {*BARE_STEPS, Step.PROTECTED, Step.CLEANED_UP} == set(Step) - only_surges
    assert {*SURGE_STEPS, Step.PROTECTED, Step.CLEANED_UP} == set(Step)


def test_the_missing_step_reports_that_the_maintenance_ended() -> None:
    row = {"spec": {"strategy": "NodeMaintenance", "reason": "Maintenance"}, "done": "all before"}
    found = next_step(MigrationWorld(row).view(), CONFIG)
    assert isinstance(found, Fail)
    assert found.step is Step.EVICTED


LATE = {"spec": {"deadline": "2026-11-16T08:59:59Z"}, "evicted": 60}
FOUND = {"replacement": {"name": "web-d", "uid": "web-d", "node": "n4"}}


@pytest.mark.parametrize(
    ("pod", "step", "cause"),
    [
        ({"at": "n4", "waits": "ImagePullBackOff"}, Step.READY, "ImagePullBackOff"),
        ({"at": "n4", "waits": "ContainerCreating"}, Step.READY, "ContainerCreating"),
        ({"at": "n4"}, Step.READY, "NotReady"),
        ({"unschedulable": True}, Step.REPLACED, "Unschedulable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_move_that_is_late_says_why_its_replacement_did_not_start(
    pod: dict[str, object], step: Step, cause: str
) -> None:
    done = ["Evicted", "Replaced"] if step is Step.READY else ["Evicted"]
    status = FOUND if step is Step.READY else {}
    pods = {"web-a": None, "web-d": {"age": 20, "ready": False, **pod}}
    row = {**LATE, "done": done, "status": status, "pods": pods}
    found = next_step(MigrationWorld(row).view(), CONFIG)
    assert isinstance(found, Fail)
    assert (found.reason.name, found.step) == ("DeadlineExceeded", step)
    assert f": {cause}: " in found.reason.message
    assert found.cause is not None
    assert found.cause.name == cause


ONE_LEFT = {"web": {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}}


@pytest.mark.parametrize(
    ("others", "refused"),
    [
        ({}, False),
        ({"web-b": {"done": ["BudgetChecked"], "spec": {"source": "n2"}}}, True),
        ({"web-b": {"done": [], "spec": {"source": "n2"}}}, False),
        ({"web-b": {"done": "evicted", "spec": {"source": "n2"}}}, False),
    ],
    ids=["alone", "promised", "pending", "evicted"],
)
def test_a_budget_promised_to_another_move_is_spent(others: object, refused: bool) -> None:
    view = MigrationWorld({"budgets": ONE_LEFT, "others": others}).view()
    found = budget_refusal(view)
    assert (found is not None and found.name == "PdbExhausted") == refused
    assert found is None or not found.permanent


@pytest.mark.parametrize(("age", "refused"), [(70, True), (50, False)])
def test_of_two_that_were_promised_one_disruption_the_older_goes(age: int, refused: bool) -> None:
    other = {"done": ["BudgetChecked"], "age": age, "spec": {"source": "n2"}}
    row = {"budgets": ONE_LEFT, "done": "all before", "others": {"web-b": other}}
    assert (budget_refusal(MigrationWorld(row).view()) is not None) == refused


def test_a_lost_replacement_that_was_replaced_itself_is_no_scaling_down() -> None:
    found = {"replacement": {"name": "lost", "uid": "lost", "node": "n4"}}
    row = {"done": ["Evicted", "Replaced"], "status": found}
    again = MigrationWorld({**row, "pods": {"web-a": None, "web-e": {"age": 5, "at": "n4"}}})
    fewer = MigrationWorld({**row, "pods": {"web-a": None}, "owner": {"desired": 2}})
    assert why_not_replaced(again.view()) is None
    assert why_not_replaced(fewer.view()) is not None


def test_a_pod_that_is_gone_needs_no_budget() -> None:
    spent = {"web": {"disruptionsAllowed": 0}}
    assert (
        budget_refusal(MigrationWorld({"budgets": spent, "pods": {"web-a": None}}).view()) is None
    )
