# SPDX-License-Identifier: Apache-2.0
"""Groups are evicted together: none of their pods if the first eviction is refused."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from common.config import RebalancerConfiguration
from common.kube.events import EventType, ObjectRef
from common.metrics import Metrics
from common.runtime import Runtime
from rebalancer.group_restarts import group_restarts
from rebalancer.migration.eviction import Answer, Result, Stopped, Victim
from rebalancer.migration.pod_remover import PodRemover
from rebalancer.planner import Plan, make_plan
from tests.support.clock import FakeClock
from tests.support.worlds.planner import PlannerWorld

SETTINGS = {"enabledStrategies": ["NodeMaintenance"], "groups": "restart", "mode": "act"}
ALL = ["train-0", "train-1", "train-2"]


class Driver:
    """Answers from a list, then accepts."""

    def __init__(self, *answers: Result) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def evict(self, victim: Victim, stopped: Stopped) -> Answer:
        assert stopped() is None
        self.asked.append(victim.name)
        return Answer(self._answers.pop(0) if self._answers else Result.ACCEPTED, "answered")

    async def check(self, _: Victim) -> Answer:
        raise AssertionError("nothing is only checked")


class Recorder:
    """Remembers what Events say."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def record(
        self,
        *,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str,
        related: ObjectRef | None = None,
    ) -> None:
        self.notes.append(note)


def world(*names: str) -> PlannerWorld:
    """Return a cluster with these pods of a gang, which is complete without names."""
    found = PlannerWorld(config=SETTINGS)
    found.node("a", maintenance=True)
    found.node("b")
    gang = {"schedulingGroup": {"podGroupName": "train"}}
    for name in names or ALL:
        found.pod(name, "a", 1.0, owner="train", spec=gang)
    found.gang("train", 3)
    return found


def planned(found: PlannerWorld) -> Plan:
    demand = found.demand()
    return msgspec.structs.replace(make_plan(demand), removals=group_restarts(demand).listed)


async def carried_out(
    found: PlannerWorld, plan: Plan, driver: Driver, settings: dict[str, object] | None = None
) -> list[str]:
    """Let the remover see a plan once; return the notes of its Events."""
    recorder, clock = Recorder(), FakeClock()
    config = RebalancerConfiguration.model_validate({**SETTINGS, **(settings or {})})
    remover = PodRemover(
        found.state,
        driver,
        recorder,
        plan=lambda: plan,
        leads=lambda: True,
        config=lambda: config,
        runtime=Runtime(clock=clock, metrics=Metrics("test")),
    )
    running = asyncio.create_task(remover.run())
    await clock.advance(1.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return recorder.notes


async def test_all_pods_of_a_group_are_evicted() -> None:
    found, driver = world(), Driver()
    notes = await carried_out(found, planned(found), driver)
    assert sorted(driver.asked) == ALL
    assert len(notes) == 3
    assert all(note.startswith("Removed from a by NodeMaintenance: PodGroup") for note in notes)


async def test_a_pod_that_is_gone_already_stops_nothing() -> None:
    found, driver = world(), Driver(Result.GONE)
    await carried_out(found, planned(found), driver)
    assert sorted(driver.asked) == ALL


@pytest.mark.parametrize("first", [Result.BUDGET, Result.THROTTLED, Result.FAILED, Result.REFUSED])
async def test_none_follows_a_pod_that_may_not_go(first: Result) -> None:
    found, driver = world(), Driver(first)
    assert await carried_out(found, planned(found), driver) == []
    assert len(driver.asked) == 1


async def test_none_goes_when_one_has_left_since() -> None:
    driver, later = Driver(), world(*ALL[:2])
    assert await carried_out(later, planned(world()), driver) == []
    assert driver.asked == []


@pytest.mark.parametrize("settings", [{"paused": True}, {"mode": "observe"}])
async def test_none_goes_when_moves_were_stopped_meanwhile(settings: dict[str, object]) -> None:
    found, driver = world(), Driver()
    await carried_out(found, planned(found), driver, settings)
    assert driver.asked == []
