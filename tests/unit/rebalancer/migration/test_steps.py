# SPDX-License-Identifier: Apache-2.0
"""What the steps of a move do, and when the Eviction API is asked again."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from common.api.contract import TEMPORARY_PDB_LABEL
from common.api.migrations import StepReason
from common.cluster.records import PodUid
from common.config import RebalancerConfiguration
from common.metrics import Metrics
from common.runtime import Runtime
from rebalancer.migration.bare_pods import BarePods
from rebalancer.migration.collaborators import Actuators, Preconditions
from rebalancer.migration.eviction import Answer, Result, Stopped, Victim
from rebalancer.migration.reporting import Reporter
from rebalancer.migration.steps import StepRunner
from rebalancer.migration.timing import Timing
from rebalancer.migration.verdicts import Fail, Proceed, Verdict, Wait
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Refusal
from tests.support.clock import FakeClock
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.stands.migration import NoGuard, OpenPolicy
from tests.support.worlds.migration_views import NOW_S, MigrationWorld

TWO_LEFT = {"disruptionsAllowed": 2, "currentHealthy": 3, "desiredHealthy": 1}
ONE_LEFT = {"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
UNUSED: Any = None


class Driver:
    """Says no the first time."""

    def __init__(self, first: Answer) -> None:
        self._answers = [first, Answer(Result.ACCEPTED, "the Eviction API accepted it")]

    async def evict(self, _: Victim, stopped: Stopped) -> Answer:
        assert stopped() is None
        return self._answers.pop(0)

    async def check(self, _: Victim) -> Answer:
        raise AssertionError("the pod is there")


class Silent(Reporter):
    """Reports nothing."""

    def __init__(self) -> None: ...

    def eviction_answered(self, result: Result) -> None: ...


class Longest(random.Random):
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


def world_clock() -> FakeClock:
    return FakeClock(now=NOW_S)


def evicting(first: Answer, clock: FakeClock, **parts: Any) -> StepRunner:
    """Return a runner whose first eviction gets this answer; `parts` replace its actuators."""
    actuators = {
        "client": UNUSED,
        "eviction": Driver(first),
        "marker": UNUSED,
        "temporary_pdbs": NoGuard(),
        "bare_pods": UNUSED,
        "surge": UNUSED,
        **{name: part for name, part in parts.items() if name != "pacing"},
    }
    return StepRunner(
        Preconditions(pacing=parts.get("pacing", OpenPolicy())),
        Actuators(**actuators),
        Silent(),
        config=RebalancerConfiguration,
        timing=Timing(),
        runtime=Runtime(clock, Metrics("test"), Longest()),
    )


def view(budget: dict[str, Any]) -> MigrationView:
    return MigrationWorld({"budgets": {"web": budget}, "done": "all before"}).view()


def left_s(verdict: Verdict) -> float | None:
    assert isinstance(verdict, Wait)
    return verdict.retry_s


BUDGET = Answer(Result.BUDGET, "web needs 2 and has 2")
BUSY = Answer(Result.THROTTLED, "slow down", 10.0)


@pytest.mark.parametrize(("first", "heeds"), [(BUDGET, True), (BUSY, False)])
async def test_a_budget_is_asked_again_when_it_has_changed_and_a_busy_server_in_its_time(
    first: Answer, heeds: bool
) -> None:
    clock = world_clock()
    runner = evicting(first, clock)
    assert left_s(await runner.evict(view(TWO_LEFT))) == 10.0
    await clock.advance(4.0)
    assert left_s(await runner.evict(view(TWO_LEFT))) == 6.0
    assert left_s(await runner.evict(view(ONE_LEFT))) == (1.0 if heeds else 6.0)
    await clock.advance(1.0 if heeds else 6.0)
    assert await runner.evict(view(ONE_LEFT)) == Proceed("Evicted", "the Eviction API accepted it")


async def test_what_an_older_move_was_promised_is_not_asked_for() -> None:
    older = {"web-b": {"done": ["BudgetChecked"], "spec": {"source": "n2"}, "age": 90}}
    row = {"budgets": {"web": ONE_LEFT}, "done": "all before", "others": older}
    found = await evicting(BUDGET, world_clock()).evict(MigrationWorld(row).view())
    assert isinstance(found, Wait)
    assert "1 spent" in found.reason.message
    assert found.retry_s is None, "nothing was asked of the API"


@pytest.mark.parametrize("stands", [True, False])
async def test_a_temporary_pdb_that_expired_is_created_again_before_the_eviction(
    stands: bool,
) -> None:
    ours = {"status": TWO_LEFT, "labels": {TEMPORARY_PDB_LABEL: "web"}}
    said = {"Protected": ["True", StepReason.TEMPORARY_PDB]}
    budgets = {"web-rescheduler-pdb": ours} if stands else {}
    row = {"budgets": budgets, "done": "all before", "said": said}
    guard = NoGuard(Wait(Refusal("PdbUnsettled", "not counted yet", False)))
    accepted = Answer(Result.ACCEPTED, "the Eviction API accepted it")
    runner = evicting(accepted, world_clock(), temporary_pdbs=guard)
    found = await runner.evict(MigrationWorld(row).view())
    assert isinstance(found, Proceed if stands else Wait)


async def test_nothing_is_evicted_if_stopped_while_the_pod_is_read() -> None:
    class Slow(Driver):
        async def evict(self, _: Victim, stopped: Stopped) -> Answer:
            policy.switch = Refusal("Paused", "paused is set", permanent=False)
            return Answer(Result.NOT_SENT, stopped() or "")

    policy = OpenPolicy()
    runner = evicting(BUDGET, world_clock(), pacing=policy, eviction=Slow(BUDGET))
    found = await runner.evict(view(TWO_LEFT))
    assert isinstance(found, Wait)
    assert found.reason == Refusal("NotSent", "Paused: paused is set", permanent=False)


async def test_the_pause_switch_is_read_right_before_a_copy_is_created() -> None:
    asked: list[str | None] = []

    class Copies(BarePods):
        def __init__(self) -> None: ...

        async def replace(self, view: MigrationView, stopped: Stopped) -> Verdict:
            asked.append(stopped())
            return Wait(Refusal("CopyStopped", "no copy is created", permanent=False))

    policy = OpenPolicy(switch=Refusal("Paused", "paused is set", permanent=False))
    runner = evicting(BUDGET, world_clock(), pacing=policy, bare_pods=Copies())
    row = {"kind": "none", "done": ["BudgetChecked", "Marked", "Acknowledged"]}
    assert isinstance(await runner.replace(MigrationWorld(row).view()), Wait)
    assert asked == ["Paused: paused is set"]


class Reader(PartialKubeApi):
    """Returns one pod for every request."""

    def __init__(self, **pod: Any) -> None:
        self._pod = pod

    async def request(self, method: str, path: str, **given: Any) -> bytes:
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
    runner = evicting(BUDGET, world_clock(), client=Reader(**pod))
    owner = {"desired": 3, "status": {"active": 2}}
    row = {"kind": "Job", "owner": owner, "done": ["Evicted", "Replaced"], "status": FOUND}
    found = await runner.ready(MigrationWorld({**row, "pods": {"web-a": None}}).view())
    if ending == "ReplacementLost":
        assert isinstance(found, Fail)
        assert found.reason.name == ending
    else:
        assert isinstance(found, Proceed)
        assert found.reason == ending
        assert "has succeeded" in found.message


async def test_api_servers_have_time_to_learn_what_guides() -> None:
    clock = world_clock()
    runner = evicting(BUDGET, clock)
    row = {"guides": True, "done": ["BudgetChecked", "Marked"]}
    view = MigrationWorld(row).view()
    runner.remember(view.migration)
    assert left_s(await runner.acknowledge(view)) == 2.0
    await clock.advance(2.0)
    runner.remember(view.migration)
    assert isinstance(await runner.acknowledge(view), Proceed)


class Victims(Driver):
    """Notes which pods are evicted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        assert stopped() is None
        self.names.append(victim.name)
        return Answer(Result.ACCEPTED, "the Eviction API accepted it")


@pytest.mark.parametrize(("node", "evicted"), [("", ["web-b"]), ("n4", [])])
async def test_a_pod_that_was_sent_to_a_full_node_is_evicted_unless_it_has_one(
    node: str, evicted: list[str]
) -> None:
    driver, live = Victims(), {"metadata": {"uid": "web-b"}, "spec": {"nodeName": node}}
    runner = evicting(BUDGET, world_clock(), eviction=driver, client=Reader(**live))
    await runner.evict_stuck(MigrationWorld({}).state.snapshot().pods[PodUid("web-b")])
    assert driver.names == evicted
