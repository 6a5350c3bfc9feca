# SPDX-License-Identifier: Apache-2.0
"""The rules of an election, and an elector that follows them."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from common.clock import Clock
from common.config import Duration, LeaderElection
from common.kube.api import KubeApi
from common.kube.leader import (
    Elector,
    Lease,
    LeaseSpec,
    Sighting,
    Step,
    claim,
    decide,
    observe,
    release,
    written_duration_s,
)
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import (
    Call,
    DirectClient,
    MemoryApi,
    Refusal,
    SkewedClock,
    Stall,
    leading,
    lost,
)

HELM = LeaderElection(name="helm")
PATH = "/apis/coordination.k8s.io/v1/namespaces/here/leases/helm"


def elector(
    client: KubeApi,
    identity: str,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    election: LeaderElection = HELM,
) -> Elector:
    return Elector(
        client,
        election,
        namespace="here",
        identity=identity,
        clock=clock,
        metrics=metrics or Metrics("test"),
        rng=random.Random(identity),
    )


@asynccontextmanager
async def running(
    clock: FakeClock, call: Callable[[], Awaitable[Any]]
) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(call())
    try:
        yield task
    finally:
        await cancelled(clock, task)


async def cancelled(clock: FakeClock, task: asyncio.Task[Any]) -> None:
    task.cancel()
    while not task.done():
        await clock.advance(0.25)


async def play(clock: FakeClock, seconds: float) -> None:
    """Let time pass in steps that leave everybody time to think."""
    for _ in range(round(seconds * 4)):
        await clock.advance(0.25)


def spec_in(api: MemoryApi) -> dict[str, Any]:
    found: dict[str, Any] = api.objects[PATH]["spec"]
    return found


def seen(holder: str | None, *, since_s: float = 100.0, **spec: Any) -> Sighting:
    return Sighting({"resourceVersion": "7"}, LeaseSpec(holder_identity=holder, **spec), since_s)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_duration": 10.0},
        {"lease_duration": float("inf")},
        {"lease_duration": float("nan")},
        {"renew_deadline": 15.0},
        {"renew_deadline": 2.4},
        {"renew_deadline": float("nan")},
        {"retry_period": 8.4},
        {"retry_period": 0.0},
        {"retry_period": -1.0},
    ],
)
def test_refuses_durations_under_which_two_could_lead(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"not longer than|must be longer|is not a duration"):
        LeaderElection.model_validate({key: Duration(each) for key, each in wrong.items()})


@pytest.mark.parametrize(("duration_s", "written"), [(15.0, 15), (14.2, 15), (0.3, 1)])
def test_writes_a_duration_never_shorter_than_configured(duration_s: float, written: int) -> None:
    election = LeaderElection(
        lease_duration=Duration(duration_s),
        renew_deadline=Duration(0.2),
        retry_period=Duration(0.1),
    )
    assert written_duration_s(election) == written


@pytest.mark.parametrize(
    ("sighting", "now_s", "step"),
    [
        (Sighting(), 0.0, Step.CREATE),
        (seen(None), 100.0, Step.REPLACE),
        (seen(""), 100.0, Step.REPLACE),
        (seen("us"), 100.0, Step.REPLACE),
        (seen("us"), 999.0, Step.REPLACE),
        (seen("them", lease_duration_seconds=15), 114.9, Step.WAIT),
        (seen("them", lease_duration_seconds=15), 115.0, Step.REPLACE),
        (seen("them", lease_duration_seconds=60), 115.0, Step.WAIT),
        (seen("them", lease_duration_seconds=60), 160.0, Step.REPLACE),
        (seen("them"), 119.9, Step.WAIT),
        (seen("them"), 120.0, Step.REPLACE),
        (seen("them", lease_duration_seconds=0), 119.9, Step.WAIT),
        (observe(seen("them", lease_duration_seconds=15), None, 105.0), 114.9, Step.WAIT),
        (observe(seen("them", lease_duration_seconds=15), None, 105.0), 115.0, Step.CREATE),
        (observe(seen("us"), None, 105.0), 105.0, Step.CREATE),
    ],
)
def test_decides_by_holder_and_by_how_long_it_was_seen(
    sighting: Sighting, now_s: float, step: Step
) -> None:
    assert decide(sighting, identity="us", default_duration_s=20.0, now_s=now_s) is step


def test_the_times_in_the_lease_decide_nothing() -> None:
    for stamp in ("1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"):
        sighting = seen("them", lease_duration_seconds=15, renew_time=stamp, acquire_time=stamp)
        steps = [
            decide(sighting, identity="us", default_duration_s=15.0, now_s=now_s)
            for now_s in (114.0, 116.0)
        ]
        assert steps == [Step.WAIT, Step.REPLACE]


def test_only_a_new_version_is_a_sign_of_life() -> None:
    lease = Lease({"resourceVersion": "8"}, LeaseSpec(holder_identity="them"))
    first = observe(seen("them"), lease, 110.0)
    assert first.since_s == 110.0
    assert observe(first, lease, 120.0).since_s == 110.0


@pytest.mark.parametrize(
    ("sighting", "acquired", "transitions"),
    [
        (Sighting(), "now", 0),
        (seen("us", acquire_time="then", lease_transitions=3), "then", 3),
        (seen("them", acquire_time="then", lease_transitions=3), "now", 4),
        (seen("", acquire_time="then", lease_transitions=3), "now", 4),
        (seen("them"), "now", 1),
        (seen("us"), "now", 0),
        (observe(seen("us", acquire_time="then", lease_transitions=3), None, 1.0), "then", 3),
    ],
)
def test_transitions_count_changes_of_the_holder(
    sighting: Sighting, acquired: str, transitions: int
) -> None:
    assert claim(sighting, identity="us", duration_s=15, stamp="now") == LeaseSpec(
        holder_identity="us",
        lease_duration_seconds=15,
        acquire_time=acquired,
        renew_time="now",
        lease_transitions=transitions,
    )


def test_a_released_lease_is_free_at_once() -> None:
    spec = release(seen("us", lease_transitions=3), stamp="now")
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 3)
    released = Sighting({"resourceVersion": "8"}, spec, 100.0)
    assert decide(released, identity="b", default_duration_s=15.0, now_s=100.0) is Step.REPLACE


def test_an_elector_needs_an_identity() -> None:
    with pytest.raises(ValueError, match="identity"):
        elector(DirectClient(MemoryApi()), "", FakeClock())


async def test_creates_the_lease_and_keeps_renewing_it() -> None:
    api, clock = MemoryApi(), FakeClock(now=1_794_819_216.0)
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        assert spec_in(api) == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-11-16T08:53:36.000000Z",
            "renewTime": "2026-11-16T08:53:36.000000Z",
            "leaseTransitions": 0,
        }
        for _ in range(30):
            await play(clock, 2.0)
            assert one.is_leader
        assert spec_in(api)["acquireTime"] == "2026-11-16T08:53:36.000000Z"
        assert spec_in(api)["renewTime"] == "2026-11-16T08:54:36.000000Z"
        assert [call.method for call in api.calls] == ["GET", "POST"] + ["PUT"] * 30


async def test_leaves_the_metadata_of_others_alone() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        api.touch(PATH, team="ours")
        await play(clock, 6.0)
        assert one.is_leader
        assert api.objects[PATH]["metadata"]["labels"] == {"team": "ours"}


async def test_follows_while_another_holds_the_lease_and_says_who() -> None:
    api, clock = MemoryApi(), FakeClock()
    one, two = (elector(DirectClient(api), who, clock) for who in "ab")
    async with running(clock, one.run), running(clock, two.run):
        await leading(one)
        await play(clock, 60.0)
        assert (one.is_leader, two.is_leader) == (True, False)
        assert one.holder == two.holder == "a"


async def test_takes_over_from_a_dead_leader_when_its_lease_has_run_out() -> None:
    api, clock = MemoryApi(), FakeClock()
    dead = SkewedClock(clock)
    one = elector(DirectClient(api, clock=dead), "a", dead)
    two = elector(DirectClient(api), "b", clock)
    async with running(clock, one.run), running(clock, two.run):
        await leading(one)
        await play(clock, 5.0)
        with dead.frozen():
            await play(clock, 14.0)
            assert not two.is_leader
            await play(clock, 6.0)
            assert two.is_leader
            assert spec_in(api)["leaseTransitions"] == 1


async def test_a_frozen_process_does_not_believe_that_it_leads() -> None:
    api, clock = MemoryApi(), FakeClock()
    stuck = SkewedClock(clock)
    one = elector(DirectClient(api, clock=stuck), "a", stuck)
    async with running(clock, one.run):
        await leading(one)
        with stuck.frozen():
            await clock.advance(9.9)
            assert one.is_leader
            await clock.advance(0.2)
            assert not one.is_leader
        await play(clock, 5.0)
        assert one.is_leader


async def test_a_late_answer_counts_from_when_the_question_was_sent() -> None:
    api, clock, stuck = MemoryApi(), FakeClock(), Stall(lambda call: call.method != "GET")
    api.after = stuck.holds
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await clock.advance(4.0)
        stuck.release()
        await leading(one)
        api.before = Stall().holds
        await play(clock, 5.75)
        assert one.is_leader
        await play(clock, 0.25)
        assert not one.is_leader


async def test_stops_leading_when_the_api_server_says_nothing_more() -> None:
    api, clock, metrics = MemoryApi(), FakeClock(), Metrics("test")
    one = elector(DirectClient(api), "a", clock, metrics=metrics)
    async with running(clock, one.run):
        await leading(one)
        await play(clock, 4.0)
        stall = Stall()
        api.before = stall.holds
        await play(clock, 9.75)
        assert (one.is_leader, lost(metrics)) == (True, 0)
        await play(clock, 0.25)
        assert (one.is_leader, lost(metrics)) == (False, 1)
        stall.release()
        await play(clock, 12.0)
        assert one.is_leader


async def test_one_request_that_hangs_does_not_cost_the_lead() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)):
        await leading(one)
        stall = Stall(lambda call: not stall.parked)
        api.before = stall.holds
        await play(clock, 20.0)
        assert len(stall.parked) == 1
        assert work.history == ["start"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_survives_a_storm_of_refusals_shorter_than_the_deadline(status: int) -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        with api.refusing(Refusal(status)):
            await play(clock, 7.0)
        await play(clock, 2.0)
        assert one.is_leader


async def test_says_once_what_is_wrong_and_not_at_each_try() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    with capture_logs() as logs, api.refusing(Refusal(403, message="not you")):
        async with running(clock, one.run):
            await play(clock, 60.0)
    said = [entry["error"] for entry in logs if entry["event"] == "lease not renewed"]
    assert said == ["not you"]
    assert len(api.calls) > 10


async def test_an_answer_that_is_no_lease_is_an_error_like_others() -> None:
    api, clock = MemoryApi(), FakeClock()
    api.objects[PATH] = {"metadata": {"resourceVersion": "1"}, "spec": "what?"}
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run) as task:
        await play(clock, 10.0)
        assert not task.done()
        assert not one.is_leader


async def test_waits_a_random_while_between_tries_to_acquire() -> None:
    api, clock, times = MemoryApi(), FakeClock(), list[float]()

    async def note(_: Call) -> None:
        times.append(clock.monotonic())

    held = {"holderIdentity": "b", "leaseDurationSeconds": 3600}
    api.objects[PATH] = {"metadata": {"resourceVersion": "1"}, "spec": held}
    api.before = note
    async with running(clock, elector(DirectClient(api), "a", clock).run):
        await play(clock, 300.0)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(2.0 <= gap <= 4.4 for gap in gaps)
    assert max(gaps) - min(gaps) > 1.5


async def test_a_renewal_whose_answer_was_lost_does_not_cost_the_lead() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)

        async def lose_one(call: Call) -> None:
            api.after = Stall(lambda _: False).holds
            raise Refusal(504)

        api.after = lose_one
        for _ in range(60):
            await play(clock, 0.25)
            assert one.is_leader


async def test_a_leader_whose_wall_clock_stands_still_is_not_robbed() -> None:
    class Stopped(FakeClock):
        def now(self) -> float:
            return 1_794_819_216.0

    api, clock = MemoryApi(), Stopped()
    one, two = (elector(DirectClient(api), who, clock) for who in "ab")
    async with running(clock, one.run), running(clock, two.run):
        await leading(one)
        await play(clock, 60.0)
        assert (one.is_leader, two.is_leader) == (True, False)


async def test_steps_down_as_soon_as_it_sees_another_holder() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        api.objects[PATH] = {
            **api.objects[PATH],
            "metadata": {"name": "helm", "resourceVersion": "1000"},
            "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15},
        }
        await play(clock, 2.0)
        assert not one.is_leader
        assert one.holder == "z"


async def test_a_leader_puts_a_deleted_lease_back() -> None:
    api, clock = MemoryApi(), FakeClock()
    one, two = (elector(DirectClient(api), who, clock) for who in "ab")
    async with running(clock, one.run), running(clock, two.run):
        await leading(one)
        await play(clock, 10.0)
        del api.objects[PATH]
        await play(clock, 2.0)
        assert (one.is_leader, two.is_leader) == (True, False)
        assert spec_in(api)["holderIdentity"] == "a"


async def test_a_deleted_lease_is_no_invitation_while_its_holder_may_lead() -> None:
    api, clock = MemoryApi(), FakeClock()
    dead = SkewedClock(clock)
    one = elector(DirectClient(api, clock=dead), "a", dead)
    two = elector(DirectClient(api), "b", clock)
    async with running(clock, one.run), running(clock, two.run):
        await leading(one)
        await play(clock, 6.0)
        with dead.frozen():
            del api.objects[PATH]
            for _ in range(200):
                await play(clock, 0.25)
                assert not (one.is_leader and two.is_leader)
            assert two.is_leader


async def test_releases_when_cancelled_so_that_the_next_need_not_wait() -> None:
    api, clock = MemoryApi(), FakeClock()
    one, two = (elector(DirectClient(api), who, clock) for who in "ab")
    async with running(clock, one.run) as first, running(clock, two.run):
        await leading(one)
        await play(clock, 5.0)
        await cancelled(clock, first)
        assert spec_in(api)["holderIdentity"] == ""
        assert spec_in(api)["leaseDurationSeconds"] == 1
        assert spec_in(api)["leaseTransitions"] == 0
        await play(clock, 4.5)
        assert two.is_leader
        assert spec_in(api)["leaseTransitions"] == 1


async def test_has_stopped_leading_before_it_releases() -> None:
    api, clock, led = MemoryApi(), FakeClock(), list[bool]()
    one = elector(DirectClient(api), "a", clock)

    async def ask(call: Call) -> None:
        if call.method == "PUT" and call.body["spec"]["holderIdentity"] == "":
            led.append(one.is_leader)

    api.before = ask
    async with running(clock, one.run):
        await leading(one)
    assert led == [False]


async def test_does_not_release_what_it_no_longer_leads() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        await play(clock, 1.0)
        with api.refusing(Refusal(500)):
            await play(clock, 10.0)
            assert not one.is_leader
    assert spec_in(api)["holderIdentity"] == "a"


async def test_releases_though_a_renewal_was_cancelled_under_way() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        stall = Stall(lambda _: not stall.parked)
        api.after = stall.holds
        await play(clock, 2.0)
        assert len(stall.parked) == 1
    assert spec_in(api)["holderIdentity"] == ""


async def test_does_not_release_the_lease_of_its_successor() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run):
        await leading(one)
        api.objects[PATH] = {
            **api.objects[PATH],
            "metadata": {"name": "helm", "resourceVersion": "1000"},
            "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15},
        }
    assert spec_in(api)["holderIdentity"] == "z"


async def test_gives_up_releasing_when_the_api_server_is_gone() -> None:
    api, clock = MemoryApi(), FakeClock()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, one.run) as task:
        await leading(one)
        api.before = Stall().holds
        task.cancel()
        await play(clock, 5.0)
        assert task.done()


class Work:
    """Something that only a leader may do."""

    def __init__(self) -> None:
        self.history: list[str] = []
        self.end = asyncio.Event()
        self.may_stop = asyncio.Event()
        self.may_stop.set()

    async def __call__(self) -> str:
        self.history.append("start")
        try:
            await self.end.wait()
        finally:
            self.history.append("ending")
            await self.may_stop.wait()
            self.history.append("ended")
        return "result"


async def test_work_is_cancelled_when_the_lead_is_lost_and_starts_again_later() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)):
        await play(clock, 1.0)
        assert work.history == ["start"]
        with api.refusing(Refusal(500)):
            await play(clock, 8.75)
            assert work.history == ["start"]
            await play(clock, 0.25)
            assert work.history == ["start", "ending", "ended"]
        await play(clock, 5.0)
        assert work.history == ["start", "ending", "ended", "start"]


async def test_does_not_lead_again_before_the_old_work_has_ended() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    work.may_stop.clear()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)):
        await play(clock, 1.0)
        with api.refusing(Refusal(500)):
            await play(clock, 10.0)
        await play(clock, 30.0)
        assert work.history == ["start", "ending"]
        assert not one.is_leader
        work.may_stop.set()
        await play(clock, 5.0)
        assert work.history == ["start", "ending", "ended", "start"]


async def test_a_late_renewal_does_not_bring_the_lead_back_while_work_ends() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    work.may_stop.clear()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)):
        await leading(one)
        with api.refusing(Refusal(500)):
            await play(clock, 7.0)
        stall = Stall()
        api.before = stall.holds
        await play(clock, 3.0)
        assert work.history == ["start", "ending"]
        stall.release()
        await play(clock, 1.0)
        assert not one.is_leader
        work.may_stop.set()


async def test_work_that_ends_gives_its_result_and_releases_the_lease() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    work.end.set()
    one = elector(DirectClient(api), "a", clock)
    assert await one.lead(work) == "result"
    assert spec_in(api)["holderIdentity"] == ""
    assert not one.is_leader


async def test_work_that_fails_releases_the_lease_and_says_why() -> None:
    api, clock = MemoryApi(), FakeClock()

    def work() -> Awaitable[None]:
        raise RuntimeError("broken")

    one = elector(DirectClient(api), "a", clock)
    with pytest.raises(RuntimeError, match="broken"):
        await one.lead(work)
    assert spec_in(api)["holderIdentity"] == ""


async def test_work_that_fails_while_it_is_stopped_is_heard() -> None:
    api, clock = MemoryApi(), FakeClock()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("broken")

    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)) as task:
        await leading(one)
        await play(clock, 1.0)
        task.cancel()
        await asyncio.wait({task})
        assert isinstance(task.exception(), RuntimeError)
    assert spec_in(api)["holderIdentity"] == ""


async def test_renews_until_cancelled_work_has_ended_and_then_releases() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    work.may_stop.clear()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)) as task:
        await play(clock, 1.0)
        task.cancel()
        await play(clock, 60.0)
        assert work.history == ["start", "ending"]
        assert one.is_leader
        work.may_stop.set()
        await asyncio.wait({task})
        assert task.cancelled()
        assert spec_in(api)["holderIdentity"] == ""


async def test_whoever_cancels_twice_leaves_the_lease_to_run_out() -> None:
    api, clock, work = MemoryApi(), FakeClock(), Work()
    work.may_stop.clear()
    one = elector(DirectClient(api), "a", clock)
    async with running(clock, lambda: one.lead(work)) as task:
        await play(clock, 1.0)
        task.cancel()
        await play(clock, 1.0)
        task.cancel()
        await asyncio.wait({task})
        assert work.history == ["start", "ending"]
        assert not one.is_leader
        assert spec_in(api)["holderIdentity"] == "a"
        work.may_stop.set()
        await play(clock, 0.25)


async def test_metrics_tell_who_leads_and_how_often_that_changed() -> None:
    api, clock, metrics = MemoryApi(), FakeClock(), Metrics("test")
    stuck = SkewedClock(clock)
    one = elector(DirectClient(api, clock=stuck), "a", stuck, metrics=metrics)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"evenkeel_{name}", labels)

    assert value("leader") == 0
    async with running(clock, one.run):
        await leading(one)
        assert value("leader") == 1
        assert value("leader_transitions_total", to="leading") == 1
        with stuck.frozen():
            await clock.advance(11.0)
            assert value("leader") == 0
        await play(clock, 5.0)
        assert value("leader") == 1
    assert value("leader") == 0
    assert value("leader_transitions_total", to="leading") == 2
    assert value("leader_transitions_total", to="waiting") == 2
