# SPDX-License-Identifier: Apache-2.0
"""The temporary budget of a workload on a living cluster: when it comes, stays, and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.api.contract import EXPIRES, TEMPORARY_PDB_LABEL
from common.cache.state import ClusterState
from common.kube.resources import DEPLOYMENTS, PDBS
from common.kube.timestamps import micro_time, parse_time
from rebalancer.migration.temporary_pdb.controller import (
    PAUSE_S,
    RETRY_S,
    SWEEP_EVERY_S,
    TemporaryPdbs,
)
from rebalancer.migration.verdicts import Fail, Proceed, Wait
from rebalancer.migration.view import MigrationView
from simulator import build
from simulator.build import Manifest
from tests.support.worlds.guards import GuardWorld, guard_world

NAME = "web-rescheduler-pdb"


def guard_of(world: GuardWorld, state: ClusterState | None = None) -> TemporaryPdbs:
    """Return a guard that has no past, as a new leader's."""
    return TemporaryPdbs(
        world.client,
        state or ClusterState(),
        config=lambda: world.config,
        clock=world.clock,
        metrics=world.metrics,
    )


@asynccontextmanager
async def web(folder: Path, *more: Manifest, replicas: int = 3) -> AsyncIterator[GuardWorld]:
    """Run a Deployment `web` whose pods are all ready."""
    async with guard_world(folder, build.deployment("web", replicas), *more) as world:
        await world.ready("web", replicas)
        yield world


async def protect(world: GuardWorld, guard: TemporaryPdbs, name: str) -> Any:
    view = world.view(name)
    return await guard.protect(view)


async def release(world: GuardWorld, guard: TemporaryPdbs, name: str) -> Any:
    view = world.view(name)
    return await guard.release(view)


async def protected(world: GuardWorld, guard: TemporaryPdbs, name: str) -> None:
    """Ask until the budget stands."""
    assert isinstance(await protect(world, guard, name), Wait)
    await world.counted()
    assert await protect(world, guard, name) == Proceed(
        "TemporaryPdb", f"PDB {NAME} guards its workload"
    )


async def test_a_workload_without_a_budget_gets_one_while_its_pods_move(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        first = await protect(world, guard, name)
        assert isinstance(first, Wait)
        assert first.reason.name == "PdbUnsettled"
        found = await world.counted()
        owner = world.store.find(DEPLOYMENTS, "web", "default")
        assert owner is not None
        uid = owner["metadata"]["uid"]
        assert found["spec"]["minAvailable"] == 1
        assert found["spec"]["selector"] == owner["spec"]["selector"]
        assert found["metadata"]["labels"][TEMPORARY_PDB_LABEL] == uid
        (reference,) = found["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["uid"]) == (
            "Deployment",
            "web",
            uid,
        )
        ends_s = parse_time(found["metadata"]["annotations"][EXPIRES])
        assert ends_s == world.clock.now() + 300
        assert isinstance(await protect(world, guard, name), Proceed)


async def test_other_limits_can_be_configured(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        world.configure(temporaryPdb={"maxUnavailable": "25%", "expiry": "1m"})
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        found = world.budget()
        assert found is not None
        assert found["spec"]["maxUnavailable"] == "25%"
        assert "minAvailable" not in found["spec"]
        assert parse_time(found["metadata"]["annotations"][EXPIRES]) == world.clock.now() + 60


async def test_off_makes_none(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        world.configure(temporaryPdb="off")
        answer = await protect(world, guard_of(world), world.migrate(world.pods("web")[0]))
        assert answer == Proceed("TemporaryPdbOff", "temporaryPdb is off")
        assert world.budget() is None


async def test_a_bare_pod_needs_none(tmp_path: Path) -> None:
    async with guard_world(tmp_path, build.pod("solo")) as world:
        (pod,) = await world.ready("solo", 1)
        name, guard = world.migrate(pod), guard_of(world)
        assert (await protect(world, guard, name)).reason == "NothingToGuard"
        assert (await release(world, guard, name)).reason == "NothingToGuard"
        assert world.store.list(PDBS) == []


async def test_a_covered_workload_gets_none(tmp_path: Path) -> None:
    own = build.pdb("own", match={"app": "web"}, min_available=1)
    async with web(tmp_path, own) as world:
        answer = await protect(world, guard_of(world), world.migrate(world.pods("web")[0]))
        assert answer == Proceed("CoveredByPdb", "PDB own covers its pods")
        assert world.budget() is None


@pytest.mark.parametrize(
    ("replicas", "limits", "reason"),
    [
        (1, {"minAvailable": 1}, "SingleReplica"),
        (2, {"minAvailable": 2}, "WouldForbid"),
        (2, {"minAvailable": "100%"}, "WouldForbid"),
    ],
)
async def test_none_is_made_that_would_itself_forbid_the_eviction(
    replicas: int, limits: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    async with web(tmp_path, replicas=replicas) as world:
        world.configure(temporaryPdb=limits)
        answer = await protect(world, guard_of(world), world.migrate(world.pods("web")[0]))
        assert isinstance(answer, Proceed)
        assert answer.reason == reason
        assert world.budget() is None


async def test_a_healthy_pod_waits_while_no_other_is_healthy(tmp_path: Path) -> None:
    async with web(tmp_path, replicas=2) as world:
        first, second = world.pods("web")
        name, guard = world.migrate(first), guard_of(world)
        await protected(world, guard, name)
        world.break_pod(second)
        await world.until(lambda: (world.budget() or {})["status"]["disruptionsAllowed"] == 0)
        answer = await protect(world, guard, name)
        assert isinstance(answer, Wait)
        assert answer.reason.name == "PdbExhausted"
        other = world.migrate(second)
        assert isinstance(await protect(world, guard, other), Proceed), "it does not work anyway"


async def test_a_count_of_an_earlier_generation_lets_nothing_pass(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        view = world.view(name)
        counted = view.snapshot.budgets[f"default/{NAME}"]
        changed = msgspec.structs.replace(counted, generation=counted.generation + 1)
        assert changed.disruptions_allowed >= 1
        budgets = {changed.key: changed}
        snapshot = msgspec.structs.replace(view.snapshot, budgets=budgets)
        answer = await guard.protect(MigrationView(view.migration, snapshot, view.now_s))
        assert isinstance(answer, Wait)
        assert answer.reason.name == "PdbUnsettled"


async def test_one_budget_serves_all_moves_of_a_workload_and_goes_with_the_last(
    tmp_path: Path,
) -> None:
    async with web(tmp_path) as world:
        pods, guard = world.pods("web"), guard_of(world)
        first, second = world.migrate(pods[0]), world.migrate(pods[1])
        await protected(world, guard, first)
        assert isinstance(await protect(world, guard, second), Proceed)
        assert len(world.store.list(PDBS)) == 1
        world.close(first)
        assert await release(world, guard, first) == Proceed("Shared")
        assert world.budget() is not None
        world.close(second)
        assert isinstance(await release(world, guard, second), Proceed)
        assert world.budget() is None
        assert isinstance(await release(world, guard, second), Proceed), "asked again"


async def test_two_that_end_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        pods, guard = world.pods("web"), guard_of(world)
        first, second = world.migrate(pods[0]), world.migrate(pods[1])
        await protected(world, guard, first)
        each_sees_the_other = world.view(first), world.view(second)
        world.close(first)
        world.close(second)
        for view in each_sees_the_other:
            assert await guard.release(view) == Proceed("Shared")
        await guard.sweep(world.snapshot())
        assert world.budget() is None


@pytest.mark.parametrize("how", ["pdb", "scale"])
async def test_ours_gives_way_at_once(how: str, tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        if how == "pdb":
            world.cluster.create([build.pdb("own", match={"app": "web"}, min_available=1)])
        else:
            world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
        answer = await protect(world, guard, name)
        assert isinstance(answer, Proceed)
        assert answer.reason == ("CoveredByPdb" if how == "pdb" else "SingleReplica")
        assert world.budget() is None


async def test_ours_gives_way_though_the_watch_has_not_shown_it_yet(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        own = build.pdb("own", match={"app": "web"}, min_available=1)
        before = world.view(name)
        assert isinstance(await guard.protect(before), Wait)
        made = world.budget()
        assert made is not None
        world.store.delete(PDBS, NAME, namespace="default")
        world.cluster.create([own])
        unseen = world.view(name)
        world.store.create(PDBS, {k: v for k, v in made.items() if k != "status"} | clean(made))
        assert isinstance(await guard.protect(unseen), Proceed)
        assert world.budget() is None


def clean(found: Any) -> Any:
    kept = ("name", "namespace", "labels", "annotations")
    return {"metadata": {key: found["metadata"][key] for key in kept}}


async def test_a_pdb_of_that_name_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    foreign = build.pdb(NAME, match={"app": "other"}, min_available=1)
    async with web(tmp_path, foreign) as world:
        before = world.budget()
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        assert (await protect(world, guard, name)).reason == "NameTaken"
        world.close(name)
        await release(world, guard, name)
        await guard.sweep(world.snapshot())
        after = world.budget()
        assert before is not None
        assert after is not None
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"] == before["spec"]


async def test_a_name_that_was_taken_unseen_is_found_out_by_the_conflict(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        before = world.view(name)
        world.cluster.create([build.pdb(NAME, match={"app": "other"}, min_available=1)])
        assert (await guard.protect(before)).reason == "NameTaken"


async def test_a_budget_whose_label_was_taken_off_a_moment_ago_stays(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        world.close(name)
        before = world.view(name)
        world.patch(PDBS, NAME, {"metadata": {"labels": {TEMPORARY_PDB_LABEL: None}}}, "default")
        await guard.release(before)
        await guard.sweep(before.snapshot)
        assert world.budget() is not None


async def test_a_crash_after_the_creation_is_gone_on_from(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name = world.migrate(world.pods("web")[0])
        before = world.view(name)
        await guard_of(world).protect(before)
        made = await world.counted()
        again = guard_of(world)
        assert isinstance(await again.protect(before), Wait), "unseen as yet"
        assert isinstance(await protect(world, again, name), Proceed)
        now = world.budget()
        assert now is not None
        assert now["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_new_leader_sweeps_what_is_expired_or_unused(tmp_path: Path) -> None:
    async with web(tmp_path, build.deployment("api", 2)) as world:
        await world.ready("api", 2)
        used, unused = world.migrate(world.pods("web")[0]), world.migrate(world.pods("api")[0])
        for name in (used, unused):
            await protect(world, guard_of(world), name)
        world.close(unused)
        await guard_of(world).sweep(world.snapshot())
        assert world.budget("api-rescheduler-pdb") is None
        assert world.budget() is not None
        await world.clock.advance(301)
        await guard_of(world).sweep(world.snapshot())
        assert world.budget() is None


async def test_the_end_is_put_off_for_a_move_that_still_needs_it(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        await world.clock.advance(140)
        await protect(world, guard, name)
        assert world.calls("renewed", "temporary_pdbs_total") == 0
        await world.clock.advance(20)
        await protect(world, guard, name)
        found = world.budget()
        assert found is not None
        assert parse_time(found["metadata"]["annotations"][EXPIRES]) == world.clock.now() + 300


async def test_sweeping_goes_on_by_itself(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        state = ClusterState()
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world, state)
        await protected(world, guard, name)
        world.fill(state)
        task = asyncio.create_task(guard.run())
        try:
            await world.clock.until_sleeping(1)
            assert world.budget() is not None
            world.close(name)
            world.fill(state)
            await world.clock.advance(PAUSE_S)
            await world.until(lambda: world.budget() is None)
            state.budgets.forget(f"default/{NAME}")
            again = world.migrate(world.pods("web")[1])
            await protect(world, guard_of(world), again)
            await world.clock.until_sleeping(1)
            world.fill(state)
            for _ in range(12):
                await world.clock.advance(SWEEP_EVERY_S)
                await world.clock.until_sleeping(1)
            await world.until(lambda: world.budget() is None)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_a_creation_that_fails_is_tried_again(status: int, tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        world.fault("create", PDBS, status)
        answer = await protect(world, guard, name)
        assert isinstance(answer, Wait)
        assert (answer.reason.name, answer.retry_s) == ("TemporaryPdbUnavailable", RETRY_S)
        await protected(world, guard, name)


async def test_a_creation_that_is_forbidden_fails_the_move(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        world.fault("create", PDBS, 403)
        answer = await protect(world, guard_of(world), world.migrate(world.pods("web")[0]))
        assert isinstance(answer, Fail)
        assert answer.reason.name == "TemporaryPdbRefused"


@pytest.mark.parametrize("verb", ["get", "delete"])
@pytest.mark.parametrize("status", [429, 500, 504])
async def test_a_removal_that_fails_is_asked_for_again(
    verb: str, status: int, tmp_path: Path
) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        world.close(name)
        world.fault(verb, PDBS, status)
        answer = await release(world, guard, name)
        assert isinstance(answer, Wait)
        assert answer.reason.name == "TemporaryPdbStays"
        assert isinstance(await release(world, guard, name), Proceed)
        assert world.budget() is None


async def test_a_removal_that_is_forbidden_is_reported_and_not_repeated(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        world.close(name)
        world.fault("delete", PDBS, 403)
        answer = await release(world, guard, name)
        assert isinstance(answer, Fail)
        assert answer.reason.name == "TemporaryPdbStays"
        await guard.sweep(world.snapshot())
        assert world.budget() is None, "the sweep tries again"


async def test_conflicts_are_solved_by_reading_again(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        world.close(name)
        world.fault("delete", PDBS, 409, times=2)
        assert isinstance(await release(world, guard, name), Proceed)
        assert world.budget() is None


async def test_a_conflict_without_end_waits(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        world.close(name)
        world.fault("delete", PDBS, 409, times=None)
        answer = await release(world, guard, name)
        assert isinstance(answer, Wait)
        assert not answer.reason.permanent


async def test_a_budget_that_cannot_be_renewed_lets_nothing_pass(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        await world.clock.advance(200)
        for status in (403, 409, 500):
            world.fault("patch", PDBS, status)
            assert isinstance(await protect(world, guard, name), Wait)
        assert isinstance(await protect(world, guard, name), Proceed)


async def test_the_budget_of_a_deleted_workload_is_released(tmp_path: Path) -> None:
    async with web(tmp_path) as world:
        name, guard = world.migrate(world.pods("web")[0]), guard_of(world)
        await protected(world, guard, name)
        orphan = clean(world.budget()) | {"spec": (world.budget() or {})["spec"]}
        world.store.delete(DEPLOYMENTS, "web", namespace="default")
        await world.until(lambda: world.budget() is None and not world.pods("web"))
        orphan["metadata"]["annotations"] = {EXPIRES: micro_time(world.clock.now() + 1000)}
        world.store.create(PDBS, {**orphan, "apiVersion": "policy/v1", "kind": PDBS.kind})
        await guard_of(world).sweep(world.snapshot())
        assert world.budget() is None
