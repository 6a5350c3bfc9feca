# SPDX-License-Identifier: Apache-2.0
"""Gates, limits, breakers and extenders put together, as the migration controller asks them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from common.api.contract import GUIDED_BY
from common.cluster.migrations import MigrationRecord
from common.config import SourceKind
from common.load import Belief, LoadTracker
from common.metrics import Metrics
from common.usage import SourceChoice
from rebalancer.pacing.extenders import Asked
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.refusals import Refusal
from rebalancer.store import MigrationStore
from simulator import build
from tests.support.clock import FakeClock
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.worlds.evictability import NOW
from tests.support.worlds.observer import FakeObserver
from tests.support.worlds.pacing import (
    MAINTENANCE,
    PacingCase,
    PacingWorld,
    config_of,
    lease_of,
    load_cases,
)
from tests.support.worlds.wire import wire_pod

CASES = load_cases("together")


class PacedWorld(PacingWorld):
    """A row's cluster with everything that decides over its Migration."""

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(row)
        self.clock = FakeClock(now=NOW.timestamp())
        for other in [m for m in self.others if m.replacement_uid == "own"]:
            # The pod to judge is what came of an earlier move.
            self.state.migrations.forget(other.name)
            number = self.others.index(other)
            given = {**row["migrations"][number], "replacement": self.pod.uid}
            self.add({"pod": f"other-{number}", **given})
        for name, given in row.get("extenders", {"a": {}}).items():
            self.renew(name, given or {})
        self.observer = FakeObserver(resting=row.get("resting", False))
        self.policy = self.new_policy()
        if row.get("gone"):
            self.state.pods.forget(self.pod.key)

    def new_policy(self) -> PacingPolicy:
        """Return a policy that knows what a restarted process knows."""
        self.metrics = Metrics("rebalancer")
        store = MigrationStore(PartialKubeApi(), self.state, clock=self.clock, metrics=self.metrics)
        return PacingPolicy(
            self.state,
            self.observer,
            store,
            lambda: self.config,
            clock=self.clock,
            metrics=self.metrics,
        )

    def renew(self, name: str, given: dict[str, Any]) -> None:
        self.state.leases.upsert(lease_of(name, given, now_s=self.clock.now()))

    def asked(self, migration: MigrationRecord | None = None) -> str | None:
        """Return the reason why a Migration may not begin."""
        mine = migration or self.migration
        refusal = self.policy.try_start(mine, self.state.snapshot())
        return refusal.name if refusal is not None else None

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"evenkeel_{name}", labels)


@pytest.mark.parametrize(
    ("row", "reasons"),
    [({}, ["NoMetrics"]), ({"maintenance": True, "nodes": {"n1": {"maintenance": True}}}, [])],
    ids=["load", "maintenance"],
)
def test_without_metrics_only_maintenance_goes_on(row: dict[str, Any], reasons: list[str]) -> None:
    """A move that was written before a restart is asked about like any other."""
    world = PacedWorld(row)
    source = SourceChoice(configured=SourceKind.AUTO, asked=SourceKind.REQUESTS)
    snapshot = world.state.snapshot()
    load = LoadTracker(from_requests=True).view(snapshot, world.clock.now())
    world.observer.latest = Belief(snapshot, load, source)
    assert [reason.name for reason in world.policy.refusals(world.migration)] == reasons


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whether_a_move_may_begin(case: PacingCase) -> None:
    world = PacedWorld(case.row)
    found = world.policy.refusals(world.migration)
    assert [reason.name for reason in found] == case.row.get("names", [])
    assert world.asked() == case.row.get("told")


def test_an_extender_that_knows_all_migrations_is_not_waited_for() -> None:
    assert PacedWorld({}).policy.acknowledged(100) is None


def test_all_that_keeps_a_move_from_beginning_is_known() -> None:
    world = PacedWorld({"config": {"paused": True}, "extenders": {}})
    assert [
        f"{found.name}: {found.message}" for found in world.policy.refusals(world.migration)
    ] == [
        "Paused: paused is set",
        "NoExtender: no extender is alive, so nothing would steer the replacement",
    ]
    assert PacedWorld({}).policy.refusals(world.migration) == ()


def test_asking_for_refusals_reserves_no_place_and_counts_nothing() -> None:
    world = PacedWorld({"extenders": {"a": {"calls": {}}}})
    second = _twin(world)
    assert world.policy.refusals(world.migration) == ()
    assert world.asked(second) is None, "the first one has not begun"
    assert [each.name for each in world.policy.refusals(world.migration)] == ["Canary"]
    assert world.metric("limits_total", limit="Canary") is None


def test_two_that_are_asked_about_in_one_moment_do_not_share_the_last_place() -> None:
    world = PacedWorld({"extenders": {"a": {"calls": {}}}, "siblings": {}})
    second = _twin(world)
    assert world.asked() is None
    assert world.asked(second) == "Canary"
    assert world.asked() is None, "it does not stand in its own way"


def test_a_place_is_free_again_when_the_first_may_not_go_on() -> None:
    world = PacedWorld({"extenders": {"a": {"calls": {}}}})
    second = _twin(world)
    assert world.asked() is None
    world.set_node("n2", unschedulable=True)
    assert world.asked() == "TargetCordoned"
    world.set_node("n2")
    assert world.asked(second) is None


def test_a_place_is_free_again_when_the_first_is_over() -> None:
    world = PacedWorld({"extenders": {"a": {"calls": {}}}})
    second = _twin(world)
    assert world.asked() is None
    world.state.migrations.forget(world.migration.name)
    assert world.asked(second) is None


def test_paused_is_looked_at_each_time() -> None:
    world = PacedWorld({})
    assert world.asked() is None
    world.config = config_of({"config": {"paused": True}})
    under_way = replace(world.migration, phase="InProgress")
    assert world.asked(under_way) == "Paused"
    world.config = config_of({})
    assert world.asked(under_way) is None


def test_the_breaker_follows_moves_as_they_end_and_settings_as_they_change() -> None:
    world = PacedWorld({})
    assert world.asked() is None
    ended = {"evicted": 90, "phase": "Completed", "finished": 30, "created": 100}
    world.add({"pod": "x", "source": "n3", "outcome": "Unguided", **ended})
    assert world.asked() == "BreakerOpen"
    world.config = config_of({"config": {"requireExtender": False}})
    assert world.asked() is None


async def test_an_extender_that_falls_silent_is_not_waited_for() -> None:
    world = PacedWorld({"extenders": {"a": {"seen": 5}, "b": {"seen": 200}}})
    behind = world.policy.acknowledged(100)
    assert behind is not None
    assert behind.message == "extender a knows Migrations up to 5, and this one is 100"
    await world.clock.advance(10)
    world.renew("b", {"seen": 200})
    await world.clock.advance(10)
    assert world.policy.acknowledged(100) is None
    assert world.asked() is None, "the other one is alive"
    await world.clock.advance(10)
    assert world.policy.acknowledged(100) is None, "no extender is left to wait for"
    assert world.asked() == "NoExtender"


@pytest.mark.parametrize(("ago", "answer"), [(0.0, Asked.YES), (89.0, Asked.YES), (91.0, Asked.NO)])
def test_a_replacement_is_guided_if_its_scheduler_asked_since_it_was_made(
    ago: float, answer: Asked
) -> None:
    """The pod is a minute old, and clocks may differ by half a minute."""
    world = PacedWorld({"extenders": {"a": {"calls": {"default-scheduler": {"ago": ago}}}}})
    now_s = world.clock.now()
    made = replace(world.pod, created_s=now_s - 60.0)
    assert world.policy.asked(world.migration, made, now_s - 50.0) is answer


ADMISSION = {"config": {"guide": "admission"}, "extenders": {}}


def test_moves_that_the_api_server_guides_need_no_extender() -> None:
    world = PacedWorld({**ADMISSION, "siblings": {}})
    assert world.policy.may_plan() is None
    assert world.policy.notes() == ()
    assert world.asked() is None
    second = _twin(world)
    world.config = config_of({"config": {"guide": "admission", "barePods": "replace"}})
    assert world.asked(second) == "Canary", "no replacement has shown that the policy works"
    ended = {"evicted": 90, "phase": "Completed", "finished": 30, "created": 100}
    world.add({"pod": "x", "source": "n3", "outcome": "AsPlanned", **ended})
    assert world.asked(second) is None


@pytest.mark.parametrize(("said", "answer"), [("", Asked.NO), ("x", Asked.NO), ("own", Asked.YES)])
def test_a_guided_replacement_says_by_which_migration(said: str, answer: Asked) -> None:
    world = PacedWorld({**ADMISSION, "extenders": {"a": {}}})
    uid = world.migration.uid if said == "own" else said
    made = replace(world.pod, annotations={GUIDED_BY: uid} if uid else {})
    assert world.policy.asked(world.migration, made, world.clock.now()) is answer


def test_a_replacement_without_guidance_stops_moves_also_where_no_extender_is_required() -> None:
    world = PacedWorld({"config": {"guide": "admission", "requireExtender": False}})
    ended = {"evicted": 90, "phase": "Completed", "finished": 30, "created": 100}
    world.add({"pod": "x", "source": "n3", "outcome": "Unguided", **ended})
    assert world.asked() == "BreakerOpen"


def test_what_the_asker_knows_against_a_move_frees_its_place_too() -> None:
    world = PacedWorld({"extenders": {"a": {"calls": {}}}})
    second = _twin(world)
    exhausted = Refusal("PdbExhausted", "not now", permanent=False)
    assert world.policy.try_start(world.migration, world.state.snapshot(), exhausted) is exhausted
    assert world.asked(second) is None, "the first one is no canary"


def test_what_will_not_pass_is_told_before_what_the_asker_knows() -> None:
    world = PacedWorld({"nodes": {"n2": {"unschedulable": True}}})
    exhausted = Refusal("PdbExhausted", "not now", permanent=False)
    found = world.policy.try_start(world.migration, world.state.snapshot(), exhausted)
    assert found is not None
    assert found.name == "TargetCordoned"


def test_a_reason_is_counted_once_while_it_lasts() -> None:
    world = PacedWorld({"config": {"paused": True}})
    assert [world.asked() for _ in range(3)] == ["Paused"] * 3
    assert world.metric("limits_total", limit="Paused") == 1.0
    world.config = config_of({})
    assert world.asked() is None
    world.config = config_of({"config": {"paused": True}})
    assert world.asked() == "Paused"
    assert world.metric("limits_total", limit="Paused") == 2.0


def test_notes_tell_what_stands_in_the_way_and_a_report_sets_the_gauges() -> None:
    world = PacedWorld(
        {
            "extenders": {
                "a": {"calls": {"default-scheduler": {"share": 0.5}}},
                "b": {"settings": "x", "calls": {}},
            },
            "resting": True,
        }
    )
    assert world.policy.notes() == (
        "Nothing is moved for load: the load of too few nodes is known.",
        "default-scheduler shows the extender 50% of the nodes, so about 50% of replacements "
        "can land on their target.",
        "extender b has other load settings than the rebalancer: one may attract what the "
        "other moves away",
    )
    assert world.metric("breaker_open", purpose="load") is None, "notes are only a question"
    world.policy.report()
    assert world.metric("breaker_open", purpose="load") == 1.0
    assert world.metric("breaker_open", purpose="maintenance") == 0.0
    assert world.metric("extenders_live") == 2.0
    assert world.metric("extender_share", scheduler="default-scheduler") == 0.5


@pytest.mark.parametrize(
    ("extenders", "note"),
    [
        ({}, "No extender is alive: replacements would not be steered."),
        (
            {"a": {"calls": {}}},
            "default-scheduler has not called an extender yet: one move at a time tests it.",
        ),
    ],
)
def test_notes_about_guidance(extenders: dict[str, Any], note: str) -> None:
    assert PacedWorld({"extenders": extenders}).policy.notes() == (note,)


def test_a_half_open_breaker_shows_as_a_half() -> None:
    row = next(case.row for case in CASES if case.row["name"] == "after ten minutes one may try")
    world = PacedWorld(row)
    assert world.policy.notes() == (
        "One move at a time for load: the replacement of default/other-0 was placed without "
        "guidance.",
    )
    world.policy.report()
    assert world.metric("breaker_open", purpose="load") == 0.5


async def test_finished_moves_stay_while_a_breaker_depends_on_them() -> None:
    world = PacedWorld({})
    ended = {"phase": "Completed", "finished": 30, "created": 100}
    bad = world.add({"pod": "x", "source": "n3", "outcome": "Unguided", "evicted": 90, **ended})
    idle = world.add({"pod": "y", "phase": "Failed", "finished": 30, "created": 100})
    emptied = world.add({"pod": "z", "evicted": 90, "outcome": "AsPlanned", **ended, **MAINTENANCE})
    stays = {m.pod_name: world.policy.must_keep(m) for m in (bad, idle, emptied)}
    assert stays == {"x": True, "y": False, "z": False}
    await world.clock.advance(600.0 + 3600.0)
    assert not world.policy.must_keep(bad), "nothing was moved for long"


def test_a_switch_is_asked_for_without_anything_else() -> None:
    world = PacedWorld({})
    assert world.policy.stopped(world.migration) is None
    world.config = config_of({"config": {"paused": True}})
    assert world.policy.stopped(world.migration) == Refusal("Paused", "paused is set", False)


async def test_finished_moves_stay_while_the_others_alone_would_stop_moving() -> None:
    """Four of twenty went wrong, which is not too many; without some good ones it would be."""
    world = PacedWorld({})
    made = [
        world.add(
            {
                "pod": f"p{number}",
                "phase": "Completed",
                "outcome": "BackOnSource" if number >= 16 else "AsPlanned",
                "created": 4000 - number,
                "evicted": 3990 - number,
                "finished": 3980 - number,
            }
        )
        for number in range(20)
    ]
    world.policy.report()
    assert world.metric("breaker_open", purpose="load") == 0.0
    assert world.policy.must_keep(made[0])
    # Moves that went wrong may be forgotten at any time, and then the others too.
    for found in reversed(made):
        assert not world.policy.must_keep(found)
        world.state.migrations.forget(found.name)
        world.policy.report()
        assert world.metric("breaker_open", purpose="load") == 0.0


ENDED = {"evicted": 90, "phase": "Completed", "finished": 30, "created": 100}


def test_moves_of_another_namespace_that_go_wrong_stop_nothing_here() -> None:
    world = PacedWorld({})
    for number in range(9):
        outcome = "Unguided" if number % 2 else "BackOnSource"
        world.add({"pod": f"x{number}", "namespace": "thief", "outcome": outcome, **ENDED})
    assert world.asked() is None
    assert world.policy.may_plan() is None
    assert world.metric("breaker_open", purpose="load") is None
    assert world.policy.notes() == (
        "Nothing is moved for load in namespace thief: the replacement of thief/x1 was placed "
        "without guidance.",
    )
    world.policy.report()
    assert world.metric("breaker_open", purpose="load") == 0.0
    assert world.metric("namespaces_stopped", purpose="load") == 1.0
    assert world.metric("workloads_quarantined", purpose="load") == 4.0


def test_a_workload_whose_move_went_wrong_is_quarantined_and_stays_so_after_a_restart() -> None:
    world = PacedWorld({"config": {"workloadCooldown": "0s"}})
    mine = {"same": True, **ENDED, "phase": "Failed"}
    bad = world.add(world._told({"pod": "x", **mine}))
    for _ in range(2):
        assert world.asked() == "WorkloadQuarantined"
        assert world.policy.must_keep(bad)
        world.policy = world.new_policy()
        world.renew("a", {})


def _twin(world: PacedWorld) -> MigrationRecord:
    """Return a second Migration, of a bare pod on another node."""
    world.config = config_of({"config": {"barePods": "replace"}})
    pod = wire_pod(build.pod("db", node="n3", labels={"app": "db"}))
    world.state.pods.upsert(pod)
    uid = pod.metadata.uid
    return world.add({"pod": "db", "uid": uid, "kind": "", "replacement_name": "x", "source": "n3"})
