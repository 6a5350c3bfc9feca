# SPDX-License-Identifier: Apache-2.0
"""Moves while requests fail, answers get lost and processes die: nothing is evicted twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import RebalancerConfiguration
from common.kube.client import KubeClient
from common.kube.errors import Conflict, TimedOut
from common.kube.resources import PODS
from rebalancer.refusals import Refusal
from simulator import build
from simulator.api import DeleteOptions
from simulator.faults import AnyFault, FreezeWatches, ServerError, Throttle
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.stands.migration import MigrationStand, condition, migrating


class UnluckyClient(PartialKubeApi):
    """A client whose answers are lost, or that falls silent, at a chosen request."""

    def __init__(
        self,
        client: KubeClient,
        *,
        loses: str = "",
        blind: bool = False,
        stops_at: int = -1,
        done: bool = False,
    ) -> None:
        """While it is `blind`, reads fail after the answer that is lost."""
        self._client = client
        self._loses = loses
        self.blind = blind
        self._stops_at = stops_at
        self._done = done
        self.calls: list[str] = []
        self.stopped = asyncio.Event()
        self._sent: list[asyncio.Future[bytes]] = []

    async def request(self, method: str, path: str, **given: Any) -> bytes:
        verb = "eviction" if path.endswith("/eviction") else method.lower()
        return await self._call(verb, self._client.request(method, path, **given))

    async def _call(self, verb: str, request: Any) -> bytes:
        number = len(self.calls)
        self.calls.append(verb)
        if verb == "get" and self._loses in self.calls and self.blind:
            request.close()  # its answer would be seen: a pod that is gone by now is an error
            raise TimedOut("nothing is seen")
        stops = 0 <= self._stops_at <= number
        if stops and not (self._done and number == self._stops_at):
            request.close()
        else:
            self._sent.append(asyncio.ensure_future(request))
            answer = await asyncio.shield(self._sent[-1])
        if stops:
            self.stopped.set()
            await asyncio.Event().wait()
        if verb == self._loses and self.calls.count(verb) == 1:
            raise TimedOut("the answer was lost")
        return answer

    async def arrived(self) -> None:
        """Wait for the answers to all that was sent, as the next leader waits for its Lease."""
        await asyncio.gather(*self._sent, return_exceptions=True)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(ServerError(status=500, times=1), id="500"),
        pytest.param(ServerError(status=503, times=2), id="503"),
        pytest.param(ServerError(status=504, times=1), id="504"),
        pytest.param(Throttle(retry_after_seconds=1, times=1), id="429"),
    ],
)
async def test_an_eviction_that_fails_for_a_moment_is_tried_again(
    fault: Any, tmp_path: Path
) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        inject(stand, fault, "create", "pods/eviction")
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        attempts = 0 if isinstance(fault, Throttle) else fault.times
        assert status.get("attempts", 0) == attempts
        assert stand.deletions == [name]


async def test_an_eviction_that_fails_again_and_again_fails_the_move(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        inject(stand, ServerError(status=500), "create", "pods/eviction")
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
            assert stand.figure("evictions_total", result="failed") == 3
        assert (status["phase"], status["attempts"]) == ("Failed", 3)
        assert status["message"].startswith("EvictionFailed")
        assert stand.deletions == []
        assert stand.marks(name) == set()


@pytest.mark.parametrize("owner", ["deployment", "stateful_set"])
async def test_an_eviction_whose_answer_is_lost_is_not_repeated(owner: str, tmp_path: Path) -> None:
    async with migrating(tmp_path, getattr(build, owner)("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        unlucky = UnluckyClient(stand.client, loses="eviction")
        async with stand.controller(unlucky):
            name = stand.plan(victim, stand.others(victim)[0])
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert unlucky.calls.count("eviction") == 1
        assert condition(stand.migration(name), "Evicted")["reason"] == "PodGone"
        assert stand.deletions == [name]


async def test_a_last_attempt_is_no_failure_while_its_result_is_unknown(
    tmp_path: Path,
) -> None:
    """Its pod is gone: a move that ends now would leave the replacement to chance."""
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.config = RebalancerConfiguration(max_attempts=1)
        freeze = stand.cluster.faults.inject(FreezeWatches(resources=("pods",)))
        unlucky = UnluckyClient(stand.client, loses="eviction", blind=True)
        async with stand.controller(unlucky):
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until(lambda: stand.deletions, "it is evicted")
            await stand.until_waits(name, "Evicted", "EvictionUnsure")
            unlucky.blind = False
            stand.cluster.faults.withdraw(freeze)
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"
        assert "evictedAt" in status
        assert unlucky.calls.count("eviction") == 1
        assert stand.deletions == [name]


class GarblingClient(UnluckyClient):
    """A client whose first change of a Migration meets another's, and whose next read is torn."""

    torn = False

    async def request(self, method: str, path: str, **given: Any) -> bytes:
        of_migration = "/migrations/" in path
        if method == "PATCH" and of_migration and "patch" not in self.calls:
            self.calls.append("patch")
            raise Conflict(409, "another client was faster")
        whole = await super().request(method, path, **given)
        if method != "GET" or not of_migration or self.torn:
            return whole
        self.torn = True
        return whole[: len(whole) // 2]


async def test_a_response_that_cannot_be_read_stops_no_other_move(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        garbling = GarblingClient(stand.client)
        async with stand.controller(garbling):
            [found] = await stand.until_ended(stand.plan(victim, stand.others(victim)[0]))
        assert garbling.torn
        assert found["phase"] == "Completed"


@pytest.mark.parametrize("status", [403, 422])
async def test_a_refused_mark_is_reported_and_stops_nothing(status: int, tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        inject(stand, ServerError(status=status), "patch", "pods")
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            [found] = await stand.until_ended(name)
        assert found["phase"] == "Completed"
        marked = condition(stand.migration(name), "Marked")
        assert (marked["status"], marked["reason"]) == ("False", "MarkRefused")
        [told] = stand.events("MigrationMarkRefused")
        assert told["regarding"]["uid"] == name


async def test_a_mark_that_cannot_be_set_stops_nothing(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        inject(stand, ServerError(status=503), "patch", "pods")
        async with stand.controller():
            [found] = await stand.until_ended(stand.plan(victim, stand.others(victim)[0]))
        assert found["phase"] == "Completed"


async def test_moves_come_through_when_a_fifth_of_all_requests_fail(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 8), nodes=4) as stand:
        await stand.until_ready(8)
        victims = stand.movable("node-3")
        for fault in (
            ServerError(status=500, probability=0.1),
            Throttle(probability=0.05, retry_after_seconds=0),
            ServerError(status=409, probability=0.05),
        ):
            stand.cluster.faults.inject(fault)
        stand.config = stand.config.model_copy(update={"max_attempts": 20})
        async with stand.controller():
            names = [stand.plan(pod, "node-3") for pod in victims]
            found = await stand.until_ended(*names)
        assert len(names) > 3
        assert Counter(status.get("outcome") for status in found) == {"AsPlanned": len(names)}
        assert sorted(stand.deletions) == sorted(names)


@pytest.mark.long(18)
@pytest.mark.parametrize("done", [False, True], ids=["not-sent", "answer-lost"])
@pytest.mark.parametrize("owner", ["deployment", "stateful_set"])
async def test_a_new_controller_finishes_wherever_the_old_one_died(
    owner: str, done: bool, tmp_path: Path
) -> None:
    """Between any two requests of a whole move, and in the middle of each."""
    async with migrating(tmp_path, getattr(build, owner)("web", 3)) as stand:
        moved: list[str] = []
        for stops_at in range(100):
            victim = (await stand.until_ready(3))[stops_at % 3]
            unlucky = UnluckyClient(stand.client, stops_at=stops_at, done=done)
            name = stand.plan(victim, stand.others(victim)[0])
            moved.append(name)
            async with stand.controller(unlucky):
                over = await died_or_ended(stand, unlucky, name)
            await unlucky.arrived()
            async with stand.controller():
                [status] = await stand.until_ended(name)
            assert status["phase"] == "Completed", (stops_at, status)
            assert status["outcome"] != "NotReplaced", (stops_at, status)
            assert not stand.marks_anywhere(), stops_at
            if over:
                break
        assert stops_at > 10
        assert stand.deletions == moved


@pytest.mark.long(16)
@pytest.mark.parametrize("done", [False, True], ids=["not-sent", "answer-lost"])
async def test_a_bare_pod_is_never_lost_wherever_a_controller_died(
    done: bool, tmp_path: Path
) -> None:
    async with migrating(tmp_path, build.pod("web", labels={"app": "web"})) as stand:
        await stand.until_ready(1)
        fewest = [1]
        stand.watch_pods(lambda _: fewest.append(len(stand.ready())))
        for stops_at in range(100):
            [victim] = await stand.until_ready(1)
            unlucky = UnluckyClient(stand.client, stops_at=stops_at, done=done)
            copy = f"copy-{stops_at}"
            name = stand.plan(victim, stand.others(victim)[0], replacementName=copy)
            async with stand.controller(unlucky):
                over = await died_or_ended(stand, unlucky, name)
            await unlucky.arrived()
            async with stand.controller():
                [status] = await stand.until_ended(name)
            assert (status["phase"], status["replacement"]["name"]) == ("Completed", copy)
            await stand.until(lambda: len(stand.pods()) == 1, "the original is gone")
            if over:
                break
        assert stops_at > 10
        assert min(fewest) == 1


async def test_the_copy_of_a_pod_that_went_unseen_is_not_rolled_back(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.pod("web", labels={"app": "web"})) as stand:
        [victim] = await stand.until_ready(1)
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0], lasts_s=8.0, replacementName="copy")
            paused = Refusal("Paused", "moves are paused", False)
            stand.policy.refusal = lambda m: paused if m.replacement_uid else None
            await stand.until_waits(name, "Evicted", "Paused")
            stand.cluster.faults.inject(FreezeWatches(resources=("pods",)))
            now = DeleteOptions(grace_s=0)
            stand.cluster.store.delete(PODS, "web", namespace="default", options=now)
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Failed"
        assert [pod["metadata"]["name"] for pod in stand.pods()] == ["copy"]


async def died_or_ended(stand: MigrationStand, unlucky: UnluckyClient, name: str) -> bool:
    """Tell whether the move ended before the client fell silent."""
    ended = asyncio.create_task(stand.until_ended(name))
    died = asyncio.create_task(unlucky.stopped.wait())
    await asyncio.wait({ended, died}, return_when=asyncio.FIRST_COMPLETED)
    over = ended.done()
    for task in (ended, died):
        task.cancel()
    await asyncio.gather(ended, died, return_exceptions=True)
    return over


async def test_two_controllers_on_the_same_migrations_do_no_harm(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 6), nodes=4) as stand:
        await stand.until_ready(6)
        victims = stand.movable("node-3")
        async with stand.controller(), stand.controller():
            names = [stand.plan(pod, "node-3") for pod in victims]
            found = await stand.until_ended(*names)
        assert len(names) > 2
        assert {status.get("outcome") for status in found} == {"AsPlanned"}
        assert sorted(stand.deletions) == sorted(names)
        assert len({status["replacement"]["uid"] for status in found}) == len(names)
        assert len(stand.ready()) == 6


async def test_a_pod_that_the_watch_does_not_show_is_never_evicted(tmp_path: Path) -> None:
    """Its gates cannot be judged: the pod is looked at, and left alone."""
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        await stand.until_ready(2)
        async with stand.controller():
            stand.cluster.faults.inject(FreezeWatches(resources=("pods",)))
            stand.cluster.create([build.deployment("late", 2)])
            await stand.until(lambda: len(stand.ready("late")) == 2, "late is Ready")
            late = stand.ready("late")[0]
            name = stand.plan(late, stand.others(late)[0], lasts_s=4.0)
            [status] = await stand.until_ended(name)
            assert stand.figure("evictions_total", result="there") >= 1
        assert status["phase"] == "Failed"
        assert stand.deletions == []


async def test_nothing_is_evicted_while_the_cache_is_stale(tmp_path: Path) -> None:
    async with migrating(tmp_path, build.deployment("web", 2)) as stand:
        victim = (await stand.until_ready(2))[0]
        stand.blind = "waiting for pods"
        async with stand.controller():
            name = stand.plan(victim, stand.others(victim)[0])
            await stand.until_waits(name, "BudgetChecked", "CacheStale")
            assert stand.deletions == []
            stand.blind = None
            [status] = await stand.until_ended(name)
        assert status["phase"] == "Completed"


def inject(stand: MigrationStand, fault: AnyFault, verb: str, resource: str) -> None:
    """Let requests of one kind fail."""
    stand.cluster.faults.inject(
        msgspec.structs.replace(fault, verbs=(verb,), resources=(resource,))
    )
