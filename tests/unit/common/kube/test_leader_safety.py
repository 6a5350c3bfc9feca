# SPDX-License-Identifier: Apache-2.0
"""Never two leaders, whatever the API server, the clocks and the machines do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import given, settings
from hypothesis import strategies as st

from common.config import Duration, LeaderElection
from common.kube.leader import Elector
from common.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.stands.lease_api import Call, DirectClient, MemoryApi, Refusal, SkewedClock


class Trouble(Enum):
    """What happens to one of the machines for a while."""

    FROZEN = "its process gets no time"
    UNHEARD = "its requests are carried out late"
    UNTOLD = "its requests are carried out and answered late"
    REFUSED = "its requests are refused"
    RESTART = "it is asked to stop and starts again"


@dataclass(frozen=True)
class Mishap:
    """A trouble that hits the leader of the moment, or the other one, for a while."""

    trouble: Trouble
    at_s: float
    for_s: float
    hits_leader: bool = True


class Machine:
    """One process that takes part in the election, with its own idea of time."""

    def __init__(self, name: str, api: MemoryApi, clock: SkewedClock, retry_s: float) -> None:
        self._name = name
        self._api = api
        self._election = LeaderElection(name="helm", retry_period=Duration(retry_s))
        self._lives = 0
        self.troubles: dict[Trouble, asyncio.Event] = {}
        self.clock = clock
        self._start()

    def _start(self) -> None:
        self._lives += 1
        self.identity = identity = f"{self._name}{self._lives}"
        self.elector = Elector(
            DirectClient(self._api, identity, self.clock),
            self._election,
            namespace="here",
            identity=identity,
            clock=self.clock,
            metrics=Metrics("test"),
            rng=random.Random(identity),
        )
        self._task = asyncio.create_task(self.elector.run())

    def suffer(self, trouble: Trouble) -> Callable[[], None]:
        """Have a trouble until the answer is called."""
        over = self.troubles.setdefault(trouble, asyncio.Event())
        if trouble is Trouble.FROZEN:
            self.clock.freeze()
        if trouble is Trouble.RESTART and not self._task.cancelling():
            self._task.cancel()
            self._task.add_done_callback(lambda _: self._start())

        def end() -> None:
            self.troubles.pop(trouble, None)
            over.set()
            if trouble is Trouble.FROZEN:
                self.clock.thaw()

        return end

    def stop(self) -> None:
        self.clock.thaw()
        self._task.cancel()


class World:
    """True time, one API server, and everybody who ever thought to be the leader."""

    def __init__(
        self,
        rates: Sequence[float],
        ahead_s: Sequence[float],
        mishaps: Sequence[Mishap] = (),
        latency_s: float = 0.0,
        retry_s: float = 2.0,
    ) -> None:
        self.time = FakeClock()
        self.api = MemoryApi()
        self.api.before, self.api.after = self._before, self._after
        clocks = [
            SkewedClock(self.time, rate=rate, ahead_s=ahead)
            for rate, ahead in zip(rates, ahead_s, strict=True)
        ]
        self.machines = [
            Machine(name, self.api, clock, retry_s)
            for name, clock in zip("ab", clocks, strict=True)
        ]
        self.most_leaders = 0
        self.ever: set[str] = set()
        self._mishaps = mishaps
        self._latency_s = latency_s

    async def play(self, seconds: float) -> None:
        fate = [asyncio.create_task(self._suffer(mishap)) for mishap in self._mishaps]
        await self.time.advance(seconds)
        self._count()
        for task in fate:
            task.cancel()

    async def end(self) -> None:
        for machine in self.machines:
            machine.stop()
        await self.time.advance(10.0)

    async def _suffer(self, mishap: Mishap) -> None:
        await self.time.sleep(mishap.at_s)
        leads = [machine for machine in self.machines if machine.elector.is_leader]
        rest = [machine for machine in self.machines if machine not in leads]
        victim = (leads + rest if mishap.hits_leader else rest + leads)[0]
        end = victim.suffer(mishap.trouble)
        await self.time.sleep(mishap.for_s)
        end()

    async def _before(self, call: Call) -> None:
        self._count()
        await self._stall(call, Trouble.UNHEARD)
        if Trouble.REFUSED in self._troubles(call):
            raise Refusal(500)

    async def _after(self, call: Call) -> None:
        self._count(winner=call.body["spec"]["holderIdentity"] if call.body else "")
        await self._stall(call, Trouble.UNTOLD)
        await self.time.sleep(self._latency_s)

    async def _stall(self, call: Call, trouble: Trouble) -> None:
        if over := self._troubles(call).get(trouble):
            await over.wait()

    def _troubles(self, call: Call) -> dict[Trouble, asyncio.Event]:
        return self.machines["ab".index(call.user[0])].troubles

    def _count(self, winner: str = "") -> None:
        """See who leads now; the one that has just been written into the Lease is about to."""
        leaders = {machine.identity for machine in self.machines if machine.elector.is_leader}
        self.most_leaders = max(self.most_leaders, len((leaders | {winner}) - {""}))
        self.ever |= leaders


# Up to what the default settings leave room for: 15 / 10, less what the edges of time take.
RATES = st.one_of(st.sampled_from([0.85, 1.2]), st.floats(0.85, 1.2))
AHEAD = st.floats(-1e6, 1e6)
MISHAP = st.builds(
    Mishap,
    st.sampled_from(Trouble),
    st.floats(0.0, 70.0),
    st.one_of(st.floats(0.0, 9.0), st.floats(9.0, 25.0)),
    st.sampled_from([True, True, False]),
)


@settings(max_examples=40)
@given(
    rates=st.tuples(RATES, RATES),
    ahead_s=st.tuples(AHEAD, AHEAD),
    mishaps=st.lists(MISHAP, min_size=1, max_size=8),
    latency_s=st.sampled_from([0.0, 1.5]),
    retry_s=st.sampled_from([0.5, 2.0]),
)
async def test_no_two_lead_at_the_same_time(
    rates: tuple[float, float],
    ahead_s: tuple[float, float],
    mishaps: list[Mishap],
    latency_s: float,
    retry_s: float,
) -> None:
    world = World(rates, ahead_s, mishaps, latency_s, retry_s)
    await world.play(140.0)
    assert world.most_leaders == 1
    assert sum(machine.elector.is_leader for machine in world.machines) == 1
    await world.end()


async def test_the_lead_passes_on_when_machines_freeze_in_turn() -> None:
    turns = [Mishap(Trouble.FROZEN, 10.0 + 40.0 * i, 30.0) for i in range(4)]
    world = World((1.0, 1.0), (-3600.0, 86_400.0), turns)
    await world.play(200.0)
    assert world.most_leaders == 1
    assert world.ever == {"a1", "b1"}
    await world.end()


async def test_a_lookout_that_sees_two_leaders_says_so() -> None:
    # Beyond what the settings leave room for: one clock runs at a third of the other's speed.
    world = World((0.5, 1.5), (0.0, 0.0), [Mishap(Trouble.FROZEN, 10.0, 40.0)])
    await world.play(60.0)
    assert world.most_leaders == 2
    await world.end()
