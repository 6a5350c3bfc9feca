# SPDX-License-Identifier: Apache-2.0
"""Copies of bare pods on a living cluster: made once, taken back, never instead of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import COPY_OF, ORIGINAL_POD, ORIGINAL_POD_NAME
from common.cache.state import ClusterState
from common.kube.errors import KubeError
from common.kube.resources import MIGRATIONS, PODS
from rebalancer.migration.bare_pods import SWEEP_EVERY_S, BarePods
from rebalancer.migration.verdicts import Fail, Proceed, Wait
from simulator import build
from simulator.api import DeleteOptions, Json, is_ready
from tests.support.worlds.guards import ACKNOWLEDGED, GuardWorld, guard_world

COPY = "rescheduled-solo-1800000000"


@asynccontextmanager
async def solo(folder: Path, **pod: Any) -> AsyncIterator[tuple[GuardWorld, str]]:
    """Run a bare pod `solo` and give its Migration, which every extender knows."""
    async with guard_world(folder, build.pod("solo", **pod)) as world:
        (found,) = await world.ready("solo", 1)
        name = world.migrate(found)
        world.say(name, **ACKNOWLEDGED)
        yield world, name


def replacer_of(world: GuardWorld) -> BarePods:
    """Return one without a past, as a new leader's."""
    state = world.fill(ClusterState())
    return BarePods(world.client, state, clock=world.clock, metrics=world.metrics)


async def replace(world: GuardWorld, name: str) -> Any:
    view = world.view(name)
    return await replacer_of(world).replace(view, lambda: None)


async def roll_back(world: GuardWorld, name: str) -> None:
    view = world.view(name)
    await replacer_of(world).roll_back(view.migration)


def copied(world: GuardWorld) -> Json:
    found = world.pod(COPY)
    assert found is not None
    return found


def gone(world: GuardWorld, name: str) -> bool:
    found = world.pod(name)
    return found is None or "deletionTimestamp" in found["metadata"]


async def test_the_copy_runs_beside_the_original_and_says_whose_it_is(tmp_path: Path) -> None:
    async with solo(tmp_path, usage_cpu="200m") as (world, name):
        answer = await replace(world, name)
        assert answer == Proceed("CopyCreated", f"pod {COPY} stands in for it")
        await world.until(
            lambda: len([p for p in world.pods("solo") if p["spec"].get("nodeName")]) == 2
        )
        made, original = copied(world), world.pod("solo")
        assert original is not None
        said = made["metadata"]["annotations"]
        assert said[COPY_OF] == original["metadata"]["uid"]
        assert said[ORIGINAL_POD] == original["metadata"]["uid"]
        assert said[ORIGINAL_POD_NAME] == "solo"
        assert made["spec"]["containers"] == original["spec"]["containers"]
        assert made["spec"]["schedulerName"] == original["spec"]["schedulerName"]
        assert not gone(world, "solo")


async def test_nothing_is_copied_before_every_extender_knows(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        world.say(name, conditions=[])
        answer = await replace(world, name)
        assert isinstance(answer, Wait)
        assert answer.reason.name == "NotAcknowledged"
        assert world.pod(COPY) is None


async def test_paused_stops_the_copy_and_is_asked_last(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        view = world.view(name)
        replacer = replacer_of(world)
        answer = await replacer.replace(view, lambda: "Paused: paused is set")
        assert isinstance(answer, Wait)
        assert answer.reason.name == "CopyStopped"
        assert "paused is set" in answer.reason.message
        assert world.pod(COPY) is None
        assert isinstance(await replace(world, name), Proceed)


async def test_a_crash_after_the_creation_makes_no_second_copy(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        before = world.view(name)
        await replace(world, name)
        uid = copied(world)["metadata"]["uid"]
        assert isinstance(await replacer_of(world).replace(before, lambda: None), Proceed)
        assert isinstance(await replace(world, name), Proceed)
        assert copied(world)["metadata"]["uid"] == uid
        assert len(world.pods("solo")) == 2


async def test_a_pod_of_that_name_that_is_not_ours_fails_the_move_and_stays(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        before = world.view(name)
        world.cluster.create([build.pod(COPY)])
        for view in (before, world.view(name)):
            answer = await replacer_of(world).replace(view, lambda: None)
            assert isinstance(answer, Fail)
            assert answer.reason.name == "NameTaken"
        await roll_back(world, name)
        assert not gone(world, COPY)


async def test_another_pod_of_the_original_s_name_is_not_copied(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        before = world.view(name)
        world.store.delete(PODS, "solo", namespace="default")
        await world.until(lambda: world.pod("solo") is None)
        world.cluster.create([build.pod("solo")])
        answer = await replacer_of(world).replace(before, lambda: None)
        assert isinstance(answer, Fail)
        assert answer.reason.name == "OriginalGone"
        assert world.pod(COPY) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"restartPolicy": "Never"}, "its restartPolicy is Never"),
        ({"hostname": "db"}, "its hostname is fixed"),
        (
            {"volumes": [{"name": "data", "rbd": {"monitors": ["m"], "image": "i"}}]},
            "its volume data (rbd) may not be mounted twice",
        ),
    ],
)
async def test_what_cannot_run_twice_is_not_copied(
    spec: dict[str, Any], message: str, tmp_path: Path
) -> None:
    async with solo(tmp_path, spec=spec) as (world, name):
        answer = await replace(world, name)
        assert isinstance(answer, Fail)
        assert answer.reason.name == "BarePodNotCopyable"
        assert message in answer.reason.message
        assert world.pod(COPY) is None


async def test_rolling_back_removes_the_copy_and_leaves_the_original(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        await roll_back(world, name)
        assert gone(world, COPY)
        assert not gone(world, "solo")
        await world.until(lambda: world.pod(COPY) is None)
        await roll_back(world, name)


async def test_the_copy_is_kept_once_the_original_is_going(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        world.store.delete(PODS, "solo", namespace="default")
        before = world.view(name)
        await replacer_of(world).roll_back(before.migration)
        await world.until(lambda: world.pod("solo") is None)
        await replacer_of(world).roll_back(before.migration)
        assert not gone(world, COPY)


async def test_a_copy_that_ended_fails_the_move(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)

        def failed(old: Json) -> Json:
            return {**old, "status": {**old["status"], "phase": "Failed"}}

        await world.until(lambda: is_ready(world.pod(COPY) or {}))
        world.store.modify(PODS, COPY, failed, namespace="default", status=True)
        answer = await replace(world, name)
        assert isinstance(answer, Fail)
        assert answer.reason.name == "CopyEnded"


async def test_a_copy_that_came_after_the_roll_back_is_swept(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        late = world.view(name)
        world.close(name, "Failed")
        await roll_back(world, name)
        await replacer_of(world).replace(late, lambda: None)
        await replacer_of(world).sweep(world.snapshot())
        assert gone(world, COPY)
        assert not gone(world, "solo")


async def test_sweeping_goes_on_by_itself(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        world.close(name, "Failed")
        task = asyncio.create_task(replacer_of(world).run())
        try:
            world.fault("get", PODS, 500)
            await world.clock.until_sleeping(1)
            assert not gone(world, COPY)
            await world.clock.advance(SWEEP_EVERY_S)
            await world.until(lambda: gone(world, COPY))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_copy_whose_migration_vanished_unseen_is_swept(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        await replacer_of(world).sweep_strays(world.snapshot())
        assert not gone(world, COPY), "its Migration looks after it"
        world.store.delete(MIGRATIONS, name)
        world.fault("delete", PODS, 500)
        await replacer_of(world).sweep_strays(world.snapshot())
        assert not gone(world, COPY)
        await replacer_of(world).sweep_strays(world.snapshot())
        assert gone(world, COPY)
        assert not gone(world, "solo")


async def test_a_copy_without_an_original_is_no_stray(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        world.store.delete(MIGRATIONS, name)
        world.store.delete(PODS, "solo", namespace="default", options=DeleteOptions(grace_s=0))
        await replacer_of(world).sweep_strays(world.snapshot())
        assert not gone(world, COPY)


async def test_a_roll_back_that_is_forbidden_does_not_come_again_and_again(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        world.fault("delete", PODS, 403)
        await roll_back(world, name)
        assert not gone(world, COPY)
        assert world.calls("failed", "pod_copies_total") == 1


async def test_a_sweep_leaves_copies_of_open_and_of_completed_moves(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        await replacer_of(world).sweep(world.snapshot())
        world.close(name, "Completed")
        await replacer_of(world).sweep(world.snapshot())
        assert not gone(world, COPY)


@pytest.mark.parametrize("verb", ["get", "create"])
@pytest.mark.parametrize("status", [429, 500, 504])
async def test_a_copy_that_could_not_be_made_is_tried_again(
    verb: str, status: int, tmp_path: Path
) -> None:
    async with solo(tmp_path) as (world, name):
        world.fault(verb, PODS, status)
        answer = await replace(world, name)
        assert isinstance(answer, Wait)
        assert answer.reason.name == "CopyUnavailable"
        assert isinstance(await replace(world, name), Proceed)


async def test_a_copy_that_is_forbidden_fails_the_move(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        world.fault("create", PODS, 403)
        answer = await replace(world, name)
        assert isinstance(answer, Fail)
        assert answer.reason.name == "CopyRefused"
        assert not gone(world, "solo")


async def test_a_roll_back_that_fails_says_so_and_goes_on_when_asked_again(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        for verb in ("get", "delete"):
            world.fault(verb, PODS, 500)
            with pytest.raises(KubeError):
                await roll_back(world, name)
        assert not gone(world, COPY)
        world.close(name, "Failed")
        world.fault("delete", PODS, 500)
        await replacer_of(world).sweep(world.snapshot())
        assert not gone(world, COPY), "a sweep that fails comes again"
        await roll_back(world, name)
        assert gone(world, COPY)


async def test_a_conflict_on_removal_is_another_pod_by_now(tmp_path: Path) -> None:
    async with solo(tmp_path) as (world, name):
        await replace(world, name)
        world.fault("delete", PODS, 409)
        await roll_back(world, name)
        assert not gone(world, COPY)
