"""When the Eviction API is asked again after it said no."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from common.cluster.migrations import MigrationRecord
from common.config import RebalancerConfiguration
from common.contract import TEMPORARY_PDB_LABEL
from rebalancer.migration.eviction import Answer, Result, Stopped, Victim
from rebalancer.migration.guarding import GUARDED
from rebalancer.migration.scene import Scene
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.steps import Hands
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.reasons import Refusal
from tests.support.clock import FakeClock
from tests.support.migration_scenes import NOW_S, SceneWorld
from tests.support.migration_stand import NoGuard, OpenSteering

TWO_LEFT = {"disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1}
ONE_LEFT = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
UNUSED: Any = None


class Driver:
    """Says no the first time."""

    def __init__(self, first: Answer) -> None:
        self._answers = [first, Answer(Result.ACCEPTED, "the Eviction API took it")]

    async def evict(self, _: Victim, stopped: Stopped) -> Answer:
        assert stopped() is None
        return self._answers.pop(0)

    async def look(self, _: Victim) -> Answer:
        raise AssertionError("the pod is there")


class Longest(random.Random):
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


def clock_of_scenes() -> FakeClock:
    return FakeClock(now=NOW_S)


def evicting(first: Answer, clock: FakeClock) -> Hands:
    return Hands(
        UNUSED,
        steering=OpenSteering(),
        guard=NoGuard(),
        replacer=UNUSED,
        eviction=Driver(first),
        marks=UNUSED,
        announcer=UNUSED,
        config=RebalancerConfiguration,
        why_blind=lambda: None,
        leads=lambda: True,
        answered=lambda _: None,
        settings=ControllerSettings(),
        clock=clock,
        rng=Longest(),
    )


def scene(budget: dict[str, Any]) -> Scene:
    return SceneWorld({"budgets": {"web": budget}, "done": "all before"}).scene()


def left_s(verdict: Verdict) -> float | None:
    assert isinstance(verdict, Wait)
    return verdict.retry_s


BUDGET = Answer(Result.BUDGET, "web needs 2 and has 2")
BUSY = Answer(Result.THROTTLED, "slow down", 10.0)


@pytest.mark.parametrize(("first", "heeds"), [(BUDGET, True), (BUSY, False)])
async def test_a_budget_is_asked_again_when_it_has_changed_and_a_busy_server_in_its_time(
    first: Answer, heeds: bool
) -> None:
    clock = clock_of_scenes()
    hands = evicting(first, clock)
    assert left_s(await hands.evict(scene(TWO_LEFT))) == 10.0
    await clock.advance(4.0)
    assert left_s(await hands.evict(scene(TWO_LEFT))) == 6.0
    assert left_s(await hands.evict(scene(ONE_LEFT))) == (1.0 if heeds else 6.0)
    await clock.advance(1.0 if heeds else 6.0)
    assert await hands.evict(scene(ONE_LEFT)) == Proceed("Evicted", "the Eviction API took it")


async def test_what_an_older_move_was_promised_is_not_asked_for() -> None:
    older = {"web-b": {"done": ["BudgetChecked"], "spec": {"source": "n2"}, "age": 90}}
    row = {"budgets": {"web": ONE_LEFT}, "done": "all before", "others": older}
    found = await evicting(BUDGET, clock_of_scenes()).evict(SceneWorld(row).scene())
    assert isinstance(found, Wait)
    assert "1 spent" in found.reason.words
    assert found.retry_s is None, "nothing was asked of the API"


@pytest.mark.parametrize("stands", [True, False])
async def test_a_guard_whose_time_was_over_is_made_again_before_the_eviction(stands: bool) -> None:
    ours = {"status": TWO_LEFT, "labels": {TEMPORARY_PDB_LABEL: "web"}}
    said = {"Protected": ["True", GUARDED]}
    budgets = {"web-rescheduler-pdb": ours} if stands else {}
    row = {"budgets": budgets, "done": "all before", "said": said}
    hands = evicting(Answer(Result.ACCEPTED, "the Eviction API took it"), clock_of_scenes())
    guard = hands._guard
    assert isinstance(guard, NoGuard)
    guard.verdict = Wait(Refusal("PdbUnsettled", "not counted yet", False))
    found = await hands.evict(SceneWorld(row).scene())
    assert isinstance(found, Proceed if stands else Wait)


async def test_whoever_is_stopped_while_the_pod_is_looked_at_evicts_nobody() -> None:
    class Slow(Driver):
        async def evict(self, _: Victim, stopped: Stopped) -> Answer:
            steering.switch = Refusal("Paused", "paused is set", for_good=False)
            return Answer(Result.NOT_SENT, stopped() or "")

    hands, steering = evicting(BUDGET, clock_of_scenes()), OpenSteering()
    hands._steering, hands._eviction = steering, Slow(BUDGET)
    found = await hands.evict(scene(TWO_LEFT))
    assert isinstance(found, Wait)
    assert found.reason == Refusal("NotSent", "Paused: paused is set", for_good=False)


async def test_whoever_has_paused_is_asked_right_before_a_copy_is_made() -> None:
    asked: list[str | None] = []

    class Copies:
        async def replace(self, _: MigrationRecord, __: Scene, stopped: Stopped) -> Verdict:
            asked.append(stopped())
            return Wait(Refusal("CopyStopped", "no copy is made", for_good=False))

        async def roll_back(self, _: MigrationRecord, __: Scene) -> None: ...

    hands, steering = evicting(BUDGET, clock_of_scenes()), OpenSteering()
    steering.switch = Refusal("Paused", "paused is set", for_good=False)
    hands._steering, hands._replacer = steering, Copies()
    row = {"kind": "none", "done": ["BudgetChecked", "Marked", "Acknowledged"]}
    assert isinstance(await hands.replace(SceneWorld(row).scene()), Wait)
    assert asked == ["Paused: paused is set"]


class Reader:
    """Returns one pod whatever is asked for."""

    def __init__(self, **pod: Any) -> None:
        self._pod = pod

    async def get(self, _: str) -> bytes:
        return msgspec.json.encode(self._pod)


FOUND: dict[str, Any] = {"replacement": {"name": "web-d", "uid": "web-d", "node": "n4"}}


@pytest.mark.parametrize(
    ("phase", "uid", "node", "ending"),
    [
        ("Succeeded", "web-d", "n4", "AsPlanned"),
        ("Succeeded", "web-d", "n1", "BackOnSource"),
        ("Succeeded", "another", "n4", "ReplacementLost"),
        ("Failed", "web-d", "n4", "ReplacementLost"),
    ],
)
async def test_a_replacement_that_has_succeeded_is_no_loss(
    phase: str, uid: str, node: str, ending: str
) -> None:
    pod = {"metadata": {"uid": uid}, "spec": {"nodeName": node}, "status": {"phase": phase}}
    hands = evicting(BUDGET, clock_of_scenes())
    hands._reader = Reader(**pod)
    owner = {"desired": 3, "status": {"active": 2}}
    row = {"kind": "Job", "owner": owner, "done": ["Evicted", "Replaced"], "status": FOUND}
    found = await hands.ready(SceneWorld({**row, "pods": {"web-a": None}}).scene())
    if ending == "ReplacementLost":
        assert isinstance(found, Fail)
        assert found.reason.name == ending
    else:
        assert isinstance(found, Proceed)
        assert found.reason == ending
        assert "has succeeded" in found.words
