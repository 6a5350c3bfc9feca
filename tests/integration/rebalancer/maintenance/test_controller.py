# SPDX-License-Identifier: Apache-2.0
"""Nodes under maintenance on a living cluster: cordon, progress, and the end of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import (
    CORDONED_BY,
    DRAINED_CONDITION,
    MAINTENANCE_LABEL,
    MAINTENANCE_PODS,
    MAINTENANCE_PROGRESS,
)
from common.cache.state import ClusterState
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodUid
from common.config import Strategy
from common.kube.resources import NODES, PODS
from common.runtime import Runtime
from rebalancer.evictability.deadline import is_forced
from rebalancer.maintenance.controller import (
    BLOCKED_AFTER_S,
    CORDONER,
    UPDATE_EVERY_S,
    Maintenance,
)
from rebalancer.maintenance.drain_gate import DrainGate
from rebalancer.planner import Plan
from rebalancer.planner.plan import Bound, Level, Move, NodePlan, Refused
from rebalancer.refusals import Reason, Refusal
from simulator import build
from simulator.api import Json
from tests.support.worlds.guards import GuardWorld, guard_world

ON: Json = {"metadata": {"labels": {MAINTENANCE_LABEL: "true"}}}
OFF: Json = {"metadata": {"labels": {MAINTENANCE_LABEL: None}}}
CORDON: Json = {"spec": {"unschedulable": True}}
UNCORDON: Json = {"spec": {"unschedulable": None}}


class Drain:
    """One rebalancer's view of maintenance; several may come after each other."""

    def __init__(self, world: GuardWorld, client: Any = None) -> None:
        self.world = world
        self.state = ClusterState()
        self.plan: Plan | None = None
        self.gate = DrainGate(lambda: world.config)
        self.maintenance = Maintenance(
            client or world.client,
            self.state,
            world.notes,
            plan=lambda: self.plan,
            config=lambda: world.config,
            gate=self.gate,
            runtime=Runtime(world.clock, world.metrics),
        )

    async def look(self) -> None:
        """Let the watch catch up, then reconcile."""
        self.refresh()
        await self.maintenance.reconcile()

    def refresh(self) -> None:
        known = {found["metadata"]["name"] for found in self.world.cluster.pods()}
        for key in [key for key in self.state.pods.records if key.partition("/")[2] not in known]:
            self.state.pods.forget(key)
        self.world.fill(self.state)


@asynccontextmanager
async def two_nodes(folder: Path, replicas: int = 3) -> AsyncIterator[tuple[GuardWorld, Drain]]:
    """Run pods of `web` on node-0 with node-1 beside it, and let NodeMaintenance act."""
    made = [build.node("node-0"), build.node("node-1", unschedulable=True)]
    async with guard_world(folder, build.deployment("web", replicas), nodes=made) as world:
        world.configure(enabledStrategies=["NodeMaintenance"])
        await world.ready("web", replicas)
        world.patch(NODES, "node-1", UNCORDON)
        yield world, Drain(world)


def spec_of(world: GuardWorld, name: str = "node-0") -> tuple[bool, str | None]:
    """Return whether a node is cordoned, and by whom."""
    node = world.node(name)
    by = node["metadata"]["annotations"].get(CORDONED_BY)
    return bool(node["spec"].get("unschedulable")), by


def said_on(world: GuardWorld) -> Json:
    found: Json = world.node("node-0")["metadata"]["annotations"]
    return found


async def test_a_labelled_node_is_cordoned_and_says_how_far_it_is(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        await drain.look()
        assert spec_of(world) == (False, None)
        world.patch(NODES, "node-0", ON)
        await drain.look()
        assert spec_of(world) == (True, CORDONER)
        assert said_on(world)[MAINTENANCE_PODS] == "3"
        assert said_on(world)[MAINTENANCE_PROGRESS] == "0 of 3 pods moved; 3 are next"
        assert world.notes.of("MaintenanceProgress") == ["0 of 3 pods moved; 3 are next"]
        assert spec_of(world, "node-1") == (False, None)


async def test_without_cordon_only_the_progress_is_told(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        said = {"maintenance": {"cordon": False}, "enabledStrategies": ["NodeMaintenance"]}
        world.configure(**said)
        world.patch(NODES, "node-0", ON)
        await drain.look()
        assert spec_of(world) == (False, None)
        assert MAINTENANCE_PROGRESS in said_on(world)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"enabledStrategies": ["NodeMaintenance"], "mode": "observe"},
        {"enabledStrategies": ["NodeMaintenance"], "modes": {"NodeMaintenance": "observe"}},
    ],
)
async def test_nothing_is_touched_while_the_strategy_does_not_act(
    said: dict[str, Any], tmp_path: Path
) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.configure(**said)
        world.patch(NODES, "node-0", ON)
        await drain.look()
        await drain.look()
        assert spec_of(world) == (False, None)
        assert MAINTENANCE_PROGRESS not in said_on(world)
        assert condition_of(world) is None
        [note] = world.notes.of("MaintenanceIgnored")
        why = "observe" if "enabledStrategies" in said else "not among enabledStrategies"
        assert why in note


async def test_our_cordon_goes_with_the_label(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        world.patch(NODES, "node-0", OFF)
        await drain.look()
        assert spec_of(world) == (False, None)
        assert not [key for key in said_on(world) if key.startswith("evenkeel.io/")]
        assert condition_of(world) is None
        assert world.notes.of("MaintenanceEnded") == [
            "The label was removed: moves stop, it is schedulable again"
        ]


async def test_a_cordon_by_another_user_is_left_alone(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", CORDON)
        world.patch(NODES, "node-0", ON)
        await drain.look()
        assert spec_of(world) == (True, None)
        world.patch(NODES, "node-0", OFF)
        await drain.look()
        assert spec_of(world) == (True, None)


async def test_who_uncordons_by_hand_is_obeyed(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        world.patch(NODES, "node-0", UNCORDON)
        await world.clock.advance(UPDATE_EVERY_S)
        await drain.look()
        assert spec_of(world) == (False, CORDONER)
        world.patch(NODES, "node-0", OFF)
        await drain.look()
        assert spec_of(world) == (False, None)


async def test_a_new_leader_finds_the_cordon_of_the_old_one(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        await drain.look()
        before = world.node("node-0")["metadata"]["resourceVersion"]
        await Drain(world).look()
        assert world.node("node-0")["metadata"]["resourceVersion"] == before, "nothing to do"
        world.patch(NODES, "node-0", OFF)
        world.configure(mode="observe")
        await Drain(world).look()
        assert spec_of(world) == (False, None)


async def test_an_old_look_does_not_cordon_a_node_that_lost_its_label(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        drain.refresh()
        world.patch(NODES, "node-0", OFF)
        await drain.maintenance.reconcile()
        assert spec_of(world) == (False, None)


async def test_an_old_look_does_not_uncordon_a_node_that_got_its_label_again(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        world.patch(NODES, "node-0", OFF)
        drain.refresh()
        world.patch(NODES, "node-0", ON)
        await drain.maintenance.reconcile()
        assert spec_of(world) == (True, CORDONER)


async def test_progress_is_written_now_and_then_and_at_the_end_at_once(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=2) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        first, second = world.pods("web")
        await left(world, first)
        await drain.look()
        assert said_on(world)[MAINTENANCE_PROGRESS] == "0 of 2 pods moved; 2 are next"
        await world.clock.advance(UPDATE_EVERY_S)
        await drain.look()
        assert said_on(world)[MAINTENANCE_PROGRESS] == "1 of 2 pods moved; 1 is next"
        await left(world, second)
        await drain.look()
        assert said_on(world)[MAINTENANCE_PROGRESS] == "2 of 2 pods moved"
        assert world.notes.of("MaintenanceDone") == ["2 of 2 pods moved"]
        assert condition_of(world) == ("True", "Drained", "2 of 2 pods moved")
        world.store.create(PODS, build.pod("late", node="node-0"), namespace="default")
        await drain.look()
        assert condition_of(world) == (
            "False",
            "Draining",
            "1 of 2 pods moved; 1 is next; remaining: default/late is next",
        )


async def test_the_condition_is_false_before_the_cordon(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        world.patch(NODES, "node-0", ON)
        seen: list[tuple[bool, Any]] = []
        world.store.subscribe(NODES, lambda _: seen.append((spec_of(world)[0], reason_of(world))))
        await drain.look()
        await drain.look()
        assert list(dict.fromkeys(seen)) == [
            (False, None),
            (False, ("False", "NotCordoned")),
            (True, ("False", "NotCordoned")),
            (True, ("False", "Draining")),
        ]


def condition_of(world: GuardWorld) -> tuple[str, str, str] | None:
    """Return what node-0 says of being drained."""
    for found in world.node("node-0")["status"]["conditions"]:
        if found["type"] == DRAINED_CONDITION:
            return found["status"], found["reason"], found["message"]
    return None


def reason_of(world: GuardWorld) -> tuple[str, str] | None:
    found = condition_of(world)
    return None if found is None else found[:2]


async def test_a_drain_that_does_not_go_on_is_blocked_and_names_pods_and_reasons(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        [pod] = world.pods("web")
        name = f"default/{pod['metadata']['name']}"
        world.patch(NODES, "node-0", ON)
        drain.plan = plan_of(pod, refused=(Reason.NO_TARGET.refusal(),))
        for _ in range(2):
            await drain.look()
        assert reason_of(world) == ("False", "Draining")
        await world.clock.advance(BLOCKED_AFTER_S)
        await drain.look()
        assert reason_of(world) == ("False", "Blocked")
        drain.plan = plan_of(pod, refused=(Reason.SINGLE_REPLICA.refusal(),))
        for _ in range(2):
            await drain.look()
        assert world.notes.of("MaintenanceBlocked") == [
            f"0 of 1 pods moved; remaining: {name} waits: no target",
            f"0 of 1 pods moved; remaining: {name} stays: single replica",
        ]
        assert world.notes.of("MaintenanceDone") == []


async def test_a_condition_of_a_drain_that_is_switched_off_is_unknown(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        world.configure(mode="observe", enabledStrategies=["NodeMaintenance"])
        await drain.look()
        assert reason_of(world) == ("Unknown", "NotActing")


def of_node(world: GuardWorld) -> MigrationRecord:
    """Return the Migration of a pod of node-0, made for the maintenance."""
    [pod, *_] = world.pods("web")
    said = {"strategy": "NodeMaintenance", "reason": "Maintenance"}
    return world.view(world.migrate(pod, **said)).migration


async def test_moves_wait_for_the_cordon_and_the_announcement(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        world.patch(NODES, "node-0", ON)
        found = of_node(world)

        def why() -> str:
            refusal = drain.gate.refusal(found, world.snapshot())
            return "" if refusal is None else refusal.name

        assert why() == "NotCordoned"
        world.fault("patch", NODES, 500)
        await drain.look()
        assert why() == "NotCordoned"
        assert "that failed" in world.notes.of("MaintenanceBlocked")[0]
        await world.clock.advance(UPDATE_EVERY_S)
        await drain.look()
        assert world.notes.of("MaintenancePlanned") == [
            "1 pod to move; how full the other nodes will be is not known"
        ]
        assert why() == ""
        world.patch(NODES, "node-0", UNCORDON)
        assert why() == "", "who uncordons by hand is obeyed"
        other = Drain(world)
        assert other.gate.refusal(found, world.snapshot()) == Reason.NOT_ANNOUNCED.refusal()


async def test_without_cordon_moves_wait_for_the_announcement_only(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        world.configure(maintenance={"cordon": False}, enabledStrategies=["NodeMaintenance"])
        world.patch(NODES, "node-0", ON)
        found = of_node(world)
        assert drain.gate.refusal(found, world.snapshot()) == Reason.NOT_ANNOUNCED.refusal()
        await drain.look()
        assert drain.gate.refusal(found, world.snapshot()) is None


async def test_a_deadline_is_announced_twice_and_then_holds(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        said = {"maintenance": {"deadline": "2h"}, "reschedulingInterval": "30s"}
        world.configure(enabledStrategies=["NodeMaintenance"], **said)
        [pod] = world.pods("web")
        world.patch(NODES, "node-0", ON)
        drain.plan = plan_of(pod, refused=(Reason.SINGLE_REPLICA.refusal(),))

        async def after(seconds: float) -> int:
            await world.clock.advance(seconds)
            await drain.look()
            return len(world.notes.of("MaintenanceDeadline"))

        def forced() -> bool:
            view = world.snapshot().nodes[NodeName("node-0")]
            return is_forced(view.node, world.config, world.clock.now())

        assert await after(0.0) == 0
        assert await after(3590.0) == 0
        assert await after(20.0) == 2, "on the node and on the pod"
        assert await after(3000.0) == 2
        assert await after(565.0) == 4
        assert not forced()
        assert await after(40.0) == 4
        assert forced()
        world.configure(enabledStrategies=["NodeMaintenance"])
        assert not forced()


async def test_a_deadline_that_passed_unsaid_is_announced_a_cycle_before_it_holds(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path, replicas=1) as (world, drain):
        said = {"maintenance": {"deadline": "10m"}, "reschedulingInterval": "30s"}
        world.configure(enabledStrategies=["NodeMaintenance"])
        [pod] = world.pods("web")
        world.patch(NODES, "node-0", ON)
        drain.plan = plan_of(pod, refused=(Reason.SINGLE_REPLICA.refusal(),))
        await drain.look()
        await world.clock.advance(7200.0)
        world.configure(enabledStrategies=["NodeMaintenance"], **said)
        await drain.look()
        await Drain(world).look()
        view = world.snapshot().nodes[NodeName("node-0")]
        assert not is_forced(view.node, world.config, world.clock.now() + 29.0)
        assert is_forced(view.node, world.config, world.clock.now() + 31.0)


async def left(world: GuardWorld, pod: Json) -> None:
    """Let a pod leave its node for good."""
    name = pod["metadata"]["name"]
    world.store.delete(PODS, name, namespace="default")
    await world.until(lambda: world.pod(name) is None)


async def test_how_full_the_others_will_be_is_told_once(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-0", ON)
        await drain.look()
        assert world.notes.of("MaintenancePlanned") == []
        drain.plan = plan_of(world.pods("web")[0])
        await drain.look()
        await drain.look()
        assert world.notes.of("MaintenancePlanned") == [
            "1 pod to move; the other nodes will use at most 71 % of their CPU (node-1) "
            "and 30 % of their memory (node-1)"
        ]


def plan_of(pod: Json, refused: tuple[Refusal, ...] = ()) -> Plan:
    """Return a plan that moves one pod from node-0 to node-1, or leaves it."""
    uid = PodUid(pod["metadata"]["uid"])
    stays = Refused(pod="default/web", uid=uid, node=NodeName("node-0"), reasons=refused)
    leaving = Move(
        pod="default/web",
        uid=PodUid(pod["metadata"]["uid"]),
        owner="",
        source=NodeName("node-0"),
        target=NodeName("node-1"),
        alternatives=(),
        strategy=Strategy.NODE_MAINTENANCE,
        reason="Maintenance",
        message="",
        chain=0,
        cpu_milli=1.0,
        mem_bytes=1.0,
        this_cycle=True,
    )
    after = Level(cpu=71.0, memory=30.0)
    other = NodePlan(name=NodeName("node-1"), before=after, after=after, role="target")
    return Plan(
        plan_id="p",
        fingerprint="f",
        strategies=(Strategy.NODE_MAINTENANCE,),
        goals=(),
        moves=() if refused else (leaving,),
        lower_bound=Bound(evictions=0, proof="none", message=""),
        nodes=(other,),
        unmet=(),
        refused=(stays,) if refused else (),
    )


async def test_a_pause_is_told(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.configure(enabledStrategies=["NodeMaintenance"], paused=True)
        world.patch(NODES, "node-0", ON)
        await drain.look()
        assert said_on(world)[MAINTENANCE_PROGRESS].endswith("; moves are paused")


@pytest.mark.parametrize("verb", ["get", "patch"])
@pytest.mark.parametrize("status", [403, 409, 429, 500, 504])
async def test_a_node_that_could_not_be_written_is_tried_again(
    verb: str, status: int, tmp_path: Path
) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        for wanted, cordoned in ((ON, True), (OFF, False)):
            world.patch(NODES, "node-0", wanted)
            world.fault(verb, NODES, status)
            await drain.look()
            await world.clock.advance(UPDATE_EVERY_S)
            await drain.look()
            assert spec_of(world)[0] is cordoned


async def test_a_node_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        world.patch(NODES, "node-1", ON)
        drain.refresh()
        world.store.delete(NODES, "node-1")
        await drain.maintenance.reconcile()
        assert world.calls("failed", "maintenance_writes_total") == 0


async def test_it_runs_by_itself_when_a_label_comes(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (world, drain):
        drain.refresh()
        task = asyncio.create_task(drain.maintenance.run())
        try:
            await world.clock.until_sleeping(1)
            await world.clock.advance(0.5)
            world.patch(NODES, "node-0", ON)
            drain.refresh()
            await world.until(lambda: spec_of(world) == (True, CORDONER))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _OddAnswers:
    """The real client, but what it reads of one node is nonsense."""

    def __init__(self, world: GuardWorld, node: str) -> None:
        self._client = world.client
        self._odd = NODES.path(name=node)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, path: str, **given: Any) -> bytes:
        return b"[" * 100_000 if path == self._odd else await self._client.get(path, **given)


async def test_a_node_that_cannot_be_read_keeps_no_other_from_being_cordoned(
    tmp_path: Path,
) -> None:
    async with two_nodes(tmp_path) as (world, _):
        drain = Drain(world, _OddAnswers(world, "node-0"))
        for name in ("node-0", "node-1"):
            await world.client.patch(NODES, ON, name=name)
        await world.client.patch(NODES, UNCORDON, name="node-1")
        await drain.look()
        marked = [world.node(n)["spec"].get("unschedulable", False) for n in ("node-0", "node-1")]
        assert marked == [False, True]
