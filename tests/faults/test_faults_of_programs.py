# SPDX-License-Identifier: Apache-2.0
"""The closed loop while the API, the measurements, an extender or a leader lets it down."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import EXTENDER_LEASE_PREFIX, SEEN_MIGRATIONS
from common.kube import client
from common.kube.resources import LEASES, MIGRATIONS, PODS
from common.kube.timestamps import micro_time
from simulator import build
from simulator.faults import FreezeWatches, MetricsFrozen, ServerError
from simulator.scheduler import Scheduler, SchedulerConfig
from simulator.scheduler.config import Profile
from tests.faults.extender_process import extender_process
from tests.support.stands.closed_loop import Loop, closed_loop, ending
from tests.support.stands.extender import asked_by
from tests.support.stands.loop_process import nursery
from tests.support.stands.loop_programs import IMPATIENT, figure

HOT = build.deployment("web", 8, cpu="100m", usage_cpu="1000m")
"""On one node two too many."""
PLACES = {"web": ["node-0"] * 8}
VERBS = ("get", "list", "create", "update", "patch", "delete")
SHORT_TERM: dict[str, Any] = {
    "leaderElection": {
        "namespace": "default",
        "leaseDuration": "10s",
        "renewDeadline": "6s",
        "retryPeriod": "1s",
    },
}


def level(loop: Loop) -> bool:
    return len(loop.on("node-0")) == 6 and len(loop.ready("web")) == 8


async def test_a_fifth_of_all_requests_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that takes too long is given up; one whose answer is lost was carried out."""
    monkeypatch.setattr(client, "REQUEST_LIMIT_S", 0.5)
    settings = {**SHORT_TERM, "migrationDeadline": "120s"}
    budget = build.pdb("web", match={"app": "web"}, max_unavailable=1)
    async with (
        closed_loop(tmp_path, HOT, budget, places=PLACES) as loop,
        loop.rebalancer(**settings) as health,
    ):
        add = partial(loop.cluster.server.faults.add, verbs=VERBS, probability=0.05)
        faults = {
            "409": add(status=409),
            "429": add(status=429, retry_after_s=1),
            "500": add(status=500),
            "timeouts": add(latency_s=8.0),
            "lost": add(loses=True, probability=0.1),
            "lost evictions": add(resources=["pods/eviction"], loses=True, probability=0.5),
        }
        await loop.until(lambda: len(loop.witness.evicted) >= 2, "two pods are evicted")
        await loop.until(lambda: not loop.left_behind(), "all moves ended")
        loop.cluster.server.faults.clear()
        await loop.until(lambda: level(loop), "node-0 is level")
        await loop.settled()
        await loop.cycles(health, 3)
    counts = {name: fault.hits for name, fault in faults.items()}
    endings = Counter(ending(each) for each in loop.migrations())
    print(counts, dict(endings))
    counts["lost"] += counts.pop("lost evictions")  # two evictions may both be lucky
    assert min(counts.values()) > 0
    told = {m["metadata"]["name"] for m in loop.migrations() if "evictedAt" in m["status"]}
    assert told == set(loop.witness.evicted), "each eviction is told of by its Migration"
    assert "Unguided" not in endings


@pytest.mark.parametrize("resources", [(), ("pods",), ("leases",), ("migrations",)])
async def test_watches_that_fall_silent_repeat_no_move(
    resources: tuple[str, ...], tmp_path: Path
) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES) as loop,
        loop.rebalancer(reading=IMPATIENT) as health,
    ):
        loop.when_evicted(lambda: loop.cluster.faults.inject(FreezeWatches(resources=resources)))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        await loop.cycles(health, 4)
        assert len(loop.witness.evicted) <= 2
        loop.cluster.faults.clear()
        await loop.until(lambda: level(loop), "node-0 is level")
        await loop.cycles(health, 2)
    assert len(loop.witness.evicted) == 2


async def test_measurements_that_stay_high_move_nothing(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, HOT, places=PLACES) as loop:
        await loop.until_ready("web", 8)
        await loop.clock.sleep(10.0)
        fault = loop.cluster.faults.inject(MetricsFrozen())
        async with loop.rebalancer(revalidateWithin="3s") as health:
            await loop.cycles(health, 5)
            assert loop.witness.evicted == []
            loop.cluster.faults.withdraw(fault)
            await loop.until(lambda: loop.witness.evicted, "new measurements move pods")
            loop.cluster.faults.inject(MetricsFrozen())
            await loop.cycles(health, 5)
    assert len(loop.witness.evicted) <= 2


async def test_a_lease_of_another_namespace_is_no_extenders(tmp_path: Path) -> None:
    """There anybody may be able to write one."""
    async with (
        closed_loop(tmp_path, HOT, places=PLACES, guided=False) as loop,
        loop.extender(leaseNamespace="kube-system"),
        loop.rebalancer() as health,
    ):
        await loop.until_ready("web", 8)
        await loop.cycles(health, 5)
        assert loop.migrations() == []
        assert await figure(health, "extenders_live") == 0
    assert loop.witness.evicted == []


async def test_a_scheduler_that_has_shown_one_node_only_does_not_pass_for_one_that_hides_most(
    tmp_path: Path,
) -> None:
    """Where one node was left to choose from, nothing is known about the share that is shown."""
    async with closed_loop(tmp_path, build.deployment("web", 4), guided=False) as loop:
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.extender(), loop.rebalancer():
            loop.cordon("node-0", "node-1")
            loop.cluster.create([build.pod("other")])
            await loop.until_ready("other", 1)
            loop.cordon("node-0", "node-1", on=False)
            # An extender reports which schedulers called it when it next renews its Lease.
            await loop.clock.sleep(10.0)
            name = loop.plan(pod, other_than(pod))
            [status] = await loop.until_ended(name)
            await loop.settled()
    assert status.get("outcome") == "AsPlanned", status.get("message")


async def test_without_an_extender_nothing_moves_for_load(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES, guided=False) as loop,
        loop.rebalancer() as health,
    ):
        await loop.until_ready("web", 8)
        await loop.cycles(health, 5)
        assert loop.migrations() == []
        async with loop.extender():
            await loop.until(lambda: level(loop), "node-0 is level")
            await loop.settled()
    assert len(loop.witness.evicted) == 2


async def test_an_extender_that_goes_before_the_eviction_stops_it(tmp_path: Path) -> None:
    web, other = build.deployment("web", 4), build.pod("other")
    async with closed_loop(tmp_path, web, other, guided=False) as loop, AsyncExitStack() as term:
        await term.enter_async_context(loop.extender())
        [first] = await loop.until_ready("other", 1)
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.rebalancer() as health:
            name = loop.plan(pod, other_than(pod), needs=[first["metadata"]["uid"]])
            await loop.until_says(name, "BudgetChecked", "WaitsForRoom")
            await term.aclose()
            loop.store.delete(PODS, "other", namespace="default")
            await loop.until_says(name, "BudgetChecked", "NoExtender")
            await loop.cycles(health, 3)
            assert loop.witness.evicted == []
            async with loop.extender():
                [status] = await loop.until_ended(name)
                await loop.settled()
    assert status["outcome"] == "AsPlanned"


@pytest.mark.parametrize("late", [False, True])
async def test_every_extender_that_is_alive_must_know_the_move(late: bool, tmp_path: Path) -> None:
    """One that was cut off when the others acknowledged may be the next to be asked."""
    async with (
        closed_loop(tmp_path, build.deployment("web", 4)) as loop,
        loop.rebalancer(),
        renewed(loop, f"{EXTENDER_LEASE_PREFIX}late"),
    ):
        pod = (await loop.until_ready("web", 4))[0]
        name = str(pod["metadata"]["uid"])
        if late:
            loop.when_done(name, "Acknowledged", lambda: loop.store.create(LEASES, behind(loop)))
        else:
            loop.store.create(LEASES, behind(loop))
            await loop.clock.sleep(1.0)
        loop.plan(pod, other_than(pod))
        await loop.until_says(name, "Evicted" if late else "Acknowledged", "NotAcknowledged")
        assert loop.witness.evicted == []
        knows = {"metadata": {"annotations": {SEEN_MIGRATIONS: "1000000"}}}
        loop.store.patch(LEASES, f"{EXTENDER_LEASE_PREFIX}late", knows, namespace="default")
        [status] = await loop.until_ended(name)
    assert status["outcome"] == "AsPlanned"


@asynccontextmanager
async def renewed(loop: Loop, name: str) -> AsyncIterator[None]:
    """Renew a Lease as soon as it exists, as a live process does."""

    async def renew() -> None:
        while True:
            if any(found["metadata"]["name"] == name for found in loop.store.list(LEASES)):
                body = {"spec": {"renewTime": micro_time(loop.clock.now())}}
                loop.store.patch(LEASES, name, body, namespace="default")
            await loop.clock.sleep(2.0)

    work = asyncio.create_task(renew())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.wait({work})


def behind(loop: Loop) -> dict[str, Any]:
    """Return the Lease of an extender that has read nothing for long."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": f"{EXTENDER_LEASE_PREFIX}late",
            "namespace": "default",
            "annotations": {SEEN_MIGRATIONS: "1"},
        },
        "spec": {"holderIdentity": "late", "renewTime": micro_time(loop.clock.now())},
    }


async def test_an_extender_that_goes_after_the_eviction_leaves_nothing_open(tmp_path: Path) -> None:
    web = build.deployment("web", 4)
    async with closed_loop(tmp_path, web, guided=False) as loop, AsyncExitStack() as term:
        url = await term.enter_async_context(loop.extender(asked=False))
        pod = (await loop.until_ready("web", 4))[0]
        async with loop.asking(url), loop.rebalancer() as health:
            evicted = asyncio.Event()
            loop.when_evicted(evicted.set)
            name = loop.plan(pod, other_than(pod))
            await evicted.wait()
            await term.aclose()
            [status] = await loop.until_ended(name)
            await loop.cycles(health, 2)
    assert status["phase"] == "Completed"
    assert len(loop.witness.evicted) == 1


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignored", "waited-for"])
@pytest.mark.parametrize("step", ["Acknowledged", "Evicted"])
async def test_an_extender_that_is_killed_takes_up_its_intents_again(
    step: str, ignorable: bool, tmp_path: Path
) -> None:
    """A scheduler that does without it places the replacement by itself; one that waits
    is told by the next extender, which has only the Migrations to go by."""
    web = build.deployment("web", 4)
    async with closed_loop(tmp_path, web, guided=False) as loop:
        first, second = (await loop.until_ready("web", 4))[:2]
        name = str(first["metadata"]["uid"])
        async with (
            extender_process(loop) as killed,
            AsyncExitStack() as asked,
            loop.rebalancer(workloadCooldown="0s") as health,
        ):
            await asked.enter_async_context(asked_by(loop.cluster, killed.url, ignorable=ignorable))
            if step == "Acknowledged":
                loop.when_done(name, step, killed.kill)
            else:
                loop.when_evicted(killed.kill)
            loop.plan(first, other_than(first))
            assert await killed.buried() == -signal.SIGKILL
            async with (
                extender_process(loop) as successor,
                asked_by(loop.cluster, successor.url, ignorable=ignorable),
            ):
                # A Service leads to an extender once it is ready: until then its answers
                # are neutral, and the replacement could go anywhere.
                await asked.aclose()
                [status] = await loop.until_ended(name)
                await loop.until_ready("web", 4)
                assert await figure(health, "breaker_open", purpose="load") == 0
                # The first pod that the new one is asked about shows it the whole cluster.
                loop.cluster.create([build.pod("other")])
                await loop.until_ready("other", 1)
                later = loop.plan(second, other_than(second))
                await loop.until_ended(later)
                await loop.settled()
    assert status["phase"] == "Completed"
    assert ignorable or status["outcome"] == "AsPlanned"
    assert loop.status(later)["outcome"] == "AsPlanned"
    assert loop.witness.evicted == [name, later]


@pytest.mark.parametrize("renews_again", [True, False])
async def test_an_extender_that_cannot_renew_its_lease_is_not_taken_for_unasked(
    renews_again: bool, tmp_path: Path
) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES) as loop,
        # No move but the first begins before the extender counts as dead.
        loop.rebalancer(maxInFlightPerNode=1) as health,
    ):
        mute = ServerError(status=503, verbs=("create", "patch"), resources=("leases",))
        loop.when_evicted(lambda: loop.cluster.faults.inject(mute))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        [name] = loop.witness.evicted
        await loop.until_says(name, "Ready", "GuidanceUnknown")
        await loop.clock.sleep(20.0)
        assert not loop.status(name).get("outcome")
        if renews_again:
            loop.cluster.faults.clear()
        [status] = await loop.until_ended(name)
        assert status["outcome"] == "AsPlanned"
        assert status["message"].endswith("whether it was asked") is not renews_again
        assert await figure(health, "breaker_open", purpose="load") == 0
        if not renews_again:
            await loop.cycles(health, 3)
            assert loop.witness.evicted == [name], "without a living extender nothing begins"
        loop.cluster.faults.clear()
        await loop.until(lambda: level(loop), "node-0 is level")
    assert loop.outcomes() == ["AsPlanned", "AsPlanned"]


async def test_a_scheduler_that_never_asks_is_found_out_by_the_first_move(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, HOT, places=PLACES, guided=False) as loop,
        loop.extender(asked=False),
        loop.rebalancer(migrationDeadline="100s", clockSkew="5s") as health,
    ):
        await loop.until(lambda: "Unguided" in loop.outcomes(), "found out")
        await loop.cycles(health, 5)
        assert await figure(health, "breaker_open", purpose="load") == 1
    assert loop.outcomes() == ["DeadlineExceeded", "Unguided"]
    assert len(loop.witness.evicted) == 1


async def test_a_second_scheduler_that_never_asks_moves_nothing_but_one_canary(
    tmp_path: Path,
) -> None:
    """The first scheduler asks as it should, which says nothing about the second."""
    spec = {"schedulerName": "second"}
    web = build.deployment("web", 8, cpu="100m", usage_cpu="1000m", spec=spec)
    async with closed_loop(tmp_path, web, places=PLACES) as loop, second_scheduler(loop):
        async with loop.rebalancer() as health:
            await loop.until_ready("web", 8)
            await loop.cycles(health, 3)
            assert loop.migrations() == [], "its pods are not moved for load"
        both = ["default-scheduler", "second"]
        told: dict[str, Any] = {
            "schedulerNames": both,
            "migrationDeadline": "100s",
            "clockSkew": "5s",
        }
        async with loop.rebalancer(**told) as health:
            await loop.until(lambda: "Unguided" in loop.outcomes(), "found out")
            await loop.cycles(health, 3)
            assert await figure(health, "breaker_open", purpose="load") == 1
    assert len(loop.witness.evicted) == 1


@asynccontextmanager
async def second_scheduler(loop: Loop) -> AsyncIterator[None]:
    """Run a scheduler of its own for the pods that name it."""
    config = SchedulerConfig(profiles=(Profile("second"),))
    scheduler = Scheduler(loop.cluster.context, loop.cluster.cache, config)
    work = asyncio.create_task(scheduler.run())
    try:
        yield
    finally:
        work.cancel()
        await asyncio.wait({work})


async def test_leaders_that_cannot_renew_stop_and_leave_nothing_open(tmp_path: Path) -> None:
    """Extenders cannot renew either, and are asked all the same."""
    settings = {**SHORT_TERM, "migrationDeadline": "120s"}
    async with (
        closed_loop(tmp_path, HOT, places=PLACES) as loop,
        loop.rebalancer(**settings),
        loop.rebalancer(**settings),
    ):
        fault = ServerError(status=503, verbs=("update", "patch"), resources=("leases",))
        loop.when_evicted(lambda: loop.cluster.faults.inject(fault))
        await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
        await loop.clock.sleep(15.0)
        evicted = len(loop.witness.evicted)
        await loop.clock.sleep(10.0)
        assert len(loop.witness.evicted) == evicted, "no leader, so no eviction"
        loop.cluster.faults.clear()
        await loop.until(lambda: level(loop), "node-0 is level")
    assert loop.outcomes() == ["AsPlanned", "AsPlanned"]


async def test_a_leader_that_hangs_and_wakes_up_again_evicts_nothing_twice(tmp_path: Path) -> None:
    with nursery() as rebalancers:
        async with closed_loop(tmp_path, HOT, places=PLACES) as loop:
            pid = await rebalancers.born(loop, **SHORT_TERM)
            try:
                loop.when_evicted(lambda: os.kill(pid, signal.SIGSTOP))
                await loop.until(lambda: loop.witness.evicted, "a pod is evicted")
                async with loop.rebalancer(**SHORT_TERM) as health:
                    await loop.until(lambda: level(loop), "node-0 is level")
                    os.kill(pid, signal.SIGCONT)
                    await loop.cycles(health, 4)
            finally:
                os.kill(pid, signal.SIGKILL)
            assert await rebalancers.buried() == -signal.SIGKILL
    assert len(loop.witness.evicted) == 2


@pytest.mark.parametrize(
    "waits_for", [("get", "pods"), ("patch", "migrations/status")], ids=["evicting", "marking"]
)
async def test_a_leader_that_hangs_in_the_middle_of_a_move_does_not_go_on_with_it(
    waits_for: tuple[str, str], tmp_path: Path
) -> None:
    """When it wakes up and gets its answer, the move was called off under another."""
    verb, resource = waits_for
    with nursery() as rebalancers:
        async with closed_loop(tmp_path, build.deployment("web", 4)) as loop:
            pod = (await loop.until_ready("web", 4))[0]
            slow = loop.cluster.server.faults.add(
                verbs=[verb], resources=[resource], latency_s=5.0, times=1
            )
            pid = await rebalancers.born(loop, **SHORT_TERM)
            try:
                await loop.until(lambda: leader(loop), "there is a leader")
                first, name = leader(loop), loop.plan(pod, other_than(pod))
                await loop.until(lambda: slow.hits, "it waits for an answer")
                os.kill(pid, signal.SIGSTOP)
                async with loop.rebalancer(**SHORT_TERM, paused=True) as health:
                    await loop.until(lambda: leader(loop) not in ("", first), "another leads")
                    loop.store.delete(MIGRATIONS, name)
                    await loop.cycles(health, 1)
                    os.kill(pid, signal.SIGCONT)
                    await loop.cycles(health, 4)
                    assert loop.left_behind() == []
            finally:
                os.kill(pid, signal.SIGKILL)
            assert await rebalancers.buried() == -signal.SIGKILL
    assert loop.witness.evicted == []


def leader(loop: Loop) -> str:
    """Return which rebalancer leads; empty if none does."""
    lease = loop.store.find(LEASES, "evenkeel-rebalancer", "default") or {}
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def other_than(pod: dict[str, Any]) -> str:
    """Return a node that a pod is not on."""
    return "node-1" if pod["spec"]["nodeName"] != "node-1" else "node-2"
