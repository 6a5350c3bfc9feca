"""What is next about a Migration, for every look of the world that matters."""

from __future__ import annotations

import pytest

from common.cluster.migrations import Step
from rebalancer.migration import steps
from rebalancer.migration.budgeting import budget_refusal
from rebalancer.migration.controller import ACTIONS
from rebalancer.migration.machine import BARE_STEPS, OWNED_STEPS, RULES, Rules, next_step
from rebalancer.migration.replacements import why_not_replaced
from rebalancer.migration.verdicts import Fail
from tests.support.migration_scenes import SceneCase, SceneWorld, load_scenes, spoken


@pytest.mark.parametrize("case", load_scenes("machine.yaml"), ids=str)
def test_the_next_step_follows_from_what_is_seen(case: SceneCase) -> None:
    assert spoken(next_step(case.scene(), Rules())) == case.expected


def test_every_rule_decides_some_case_of_the_table() -> None:
    deciding = set()
    for case in load_scenes("machine.yaml"):
        scene = case.scene()
        deciding.add(next((r for r in RULES if r(scene, Rules()) is not None), None))
    assert deciding >= set(RULES)


def test_every_step_has_an_effect_and_crash_points() -> None:
    assert set(steps.EFFECTS) == set(Step) == set(ACTIONS)
    assert {*OWNED_STEPS, Step.CLEANED_UP} == set(Step)
    assert {*BARE_STEPS, Step.PROTECTED, Step.CLEANED_UP} == set(Step)


def test_the_step_that_was_missing_tells_that_the_maintenance_ended() -> None:
    row = {"spec": {"strategy": "NodeMaintenance", "reason": "Maintenance"}, "done": "all before"}
    found = next_step(SceneWorld(row).scene(), Rules())
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
    found = next_step(SceneWorld(row).scene(), Rules())
    assert isinstance(found, Fail)
    assert (found.reason.name, found.step) == ("DeadlineExceeded", step)
    assert f": {cause}: " in found.reason.words
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
    scene = SceneWorld({"budgets": ONE_LEFT, "others": others}).scene()
    found = budget_refusal(scene)
    assert (found is not None and found.name == "PdbExhausted") == refused
    assert found is None or not found.for_good


@pytest.mark.parametrize(("age", "refused"), [(70, True), (50, False)])
def test_of_two_that_were_promised_one_disruption_the_older_goes(age: int, refused: bool) -> None:
    other = {"done": ["BudgetChecked"], "age": age, "spec": {"source": "n2"}}
    row = {"budgets": ONE_LEFT, "done": "all before", "others": {"web-b": other}}
    assert (budget_refusal(SceneWorld(row).scene()) is not None) == refused


def test_a_lost_replacement_that_was_replaced_itself_is_no_scaling_down() -> None:
    found = {"replacement": {"name": "lost", "uid": "lost", "node": "n4"}}
    row = {"done": ["Evicted", "Replaced"], "status": found}
    again = SceneWorld({**row, "pods": {"web-a": None, "web-e": {"age": 5, "at": "n4"}}})
    fewer = SceneWorld({**row, "pods": {"web-a": None}, "owner": {"desired": 2}})
    assert why_not_replaced(again.scene()) is None
    assert why_not_replaced(fewer.scene()) is not None


def test_a_pod_that_is_gone_needs_no_budget() -> None:
    spent = {"web": {"disruptionsAllowed": 0}}
    assert budget_refusal(SceneWorld({"budgets": spent, "pods": {"web-a": None}}).scene()) is None
