# SPDX-License-Identifier: Apache-2.0
"""Who may act: leader election on a `coordination.k8s.io/v1` Lease.

The rules are client-go's (tools/leaderelection/leaderelection.go), so our electors and Go's
understand each other's Leases. What must never break: **no two electors lead at once**, also
when the API server stalls, clocks disagree or this process was frozen. It follows from three
rules, each of which counts on the safe side:

- A leader stops `renewDeadline` after it *sent* its last successful renewal. `is_leader`
  asks the monotonic clock each time; no task has to run for it to turn false.
- A contender takes over `leaseDuration` after it first *saw* the newest version of the
  Lease, by its own monotonic clock. The times in the Lease are for people only. Any new
  resourceVersion counts as a sign of life (client-go compares the record, and robs a leader
  whose wall clock stands still).
- Every write names the resourceVersion it was decided on. A request that was stalled for
  minutes and is carried out after all changes nothing once another has written.

So a leader is out at least `leaseDuration - renewDeadline` before its successor is in,
as long as their clocks do not differ in speed by more than that leaves room for (a half, with
the defaults). One hole remains, as in client-go: if the Lease is deleted, a contender
that has just started knows nothing of the holder; one that saw the holder waits for it.

The work of a leader ends before its Lease is released, and is covered by renewals until then.
An identity must be unique, also among restarts of a program on one host. Give an elector a
client of its own: renewals should not queue behind a list of all pods.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec
import structlog

from common.clock import Clock, within
from common.config.leader_election import JITTER, LeaderElection
from common.kube.api import KubeApi
from common.kube.errors import Conflict, KubeError, Malformed, NotFound, TimedOut
from common.kube.resources import LEASES
from common.kube.timestamps import micro_time
from common.metrics import Metrics
from common.null_json import UNDECODABLE, JsonDecoder

log: structlog.stdlib.BoundLogger = structlog.get_logger()

T = TypeVar("T")

_NEVER: Final = -math.inf


class LeaseSpec(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a Lease says; each field may be missing."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel"):
    """A Lease on the wire. The metadata go back as they came, or a PUT would drop labels."""

    metadata: dict[str, Any]
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


@dataclass(frozen=True, slots=True)
class Sighting:
    """The Lease as last seen, and since when by our own clock it has been like that."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
    since_s: float = _NEVER

    @property
    def version(self) -> str:
        """The resourceVersion; empty if there is no Lease."""
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def holder(self) -> str:
        """Who holds it; empty if it is free."""
        return self.spec.holder_identity or ""


class Step(Enum):
    """What to do next about the Lease."""

    WAIT = "wait"
    CREATE = "create"
    REPLACE = "replace"


def observe(before: Sighting, lease: Lease | None, now_s: float) -> Sighting:
    """Return what is known after a read that found `lease`, or found none."""
    if lease is None:
        # Its holder may not know yet that it is gone, so holder and time stay.
        return replace(before, metadata={})
    seen = Sighting(lease.metadata, lease.spec, now_s)
    return before if seen.version == before.version else seen


def decide(seen: Sighting, *, identity: str, default_duration_s: float, now_s: float) -> Step:
    """Say whether `identity` may write itself into the Lease now, and how."""
    duration_s = seen.spec.lease_duration_seconds or default_duration_s
    free = seen.holder in ("", identity) or now_s >= seen.since_s + duration_s
    if not free:
        return Step.WAIT
    return Step.REPLACE if seen.version else Step.CREATE


def claim(seen: Sighting, *, identity: str, duration_s: int, stamp: str) -> LeaseSpec:
    """Return the record with which `identity` takes the Lease, or goes on holding it."""
    ours = seen.holder == identity
    changed = not ours and seen.since_s > _NEVER
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=duration_s,
        acquire_time=(seen.spec.acquire_time if ours else None) or stamp,
        renew_time=stamp,
        lease_transitions=(seen.spec.lease_transitions or 0) + changed,
    )


def release(seen: Sighting, *, stamp: str) -> LeaseSpec:
    """Return the record of a Lease that any elector may take at once."""
    return LeaseSpec(
        holder_identity="",
        lease_duration_seconds=1,
        acquire_time=stamp,
        renew_time=stamp,
        lease_transitions=seen.spec.lease_transitions or 0,
    )


def written_duration_s(election: LeaderElection) -> int:
    """Return the duration as a Lease holds it: whole seconds, never shorter than configured."""
    return math.ceil(election.lease_duration)


class Elector:
    """Takes part in the election for one Lease; `lead` runs what only a leader may do."""

    def __init__(
        self,
        client: KubeApi,
        election: LeaderElection,
        *,
        namespace: str,
        identity: str,
        clock: Clock,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        if not identity:
            raise ValueError("an elector needs an identity")
        self.namespace: Final = namespace
        self.identity: Final = identity
        self._client = client
        self._election = election
        self._clock = clock
        self._rng = rng
        self._log = log.bind(lease=f"{namespace}/{election.name}", identity=identity)
        self._decoder = JsonDecoder(Lease)
        self._seen = Sighting()
        self._leads_until_s = _NEVER
        self._leading = False
        self._complaint = ""
        self._stood_by_for: str | None = None
        # Asked at each scrape, so that it is right even when nothing here gets to run.
        metrics.gauge("leader", "1 while this process leads.").set_function(
            lambda: float(self.is_leader)
        )
        self._holders = metrics.gauge(
            "lease_holder", "1 for the current holder of the Lease.", ("holder",)
        )
        transitions = metrics.counter(
            "leader_transitions_total", "How often this process gained or lost leadership.", ("to",)
        )
        self._won_total = transitions.labels("leading")
        self._lost_total = transitions.labels("waiting")

    @property
    def is_leader(self) -> bool:
        """Whether we lead at this very moment. Ask again before each act that needs it."""
        return self._clock.monotonic() < self._leads_until_s

    @property
    def holder(self) -> str | None:
        """Who holds the Lease, as last seen."""
        return self._seen.holder or None

    async def run(self) -> None:
        """Acquire and renew for ever; release when canceled."""
        await self.lead(asyncio.Event().wait)

    async def lead(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` whenever we lead and return its result once it ends by itself.

        It is canceled at once when the lead is lost and started again when it is won
        back. When this call is canceled, or the work ends, the Lease is released.
        """
        while True:
            await self._acquire()
            worker = asyncio.create_task(_run(work))
            if await self._hold(worker):
                return worker.result()

    async def _acquire(self) -> None:
        pause_s = self._election.retry_period
        await self._attempt()
        while not self.is_leader:
            await self._clock.sleep(pause_s * (1 + JITTER * self._rng.random()))
            await self._attempt()

    async def _hold(self, worker: asyncio.Task[T]) -> bool:
        """Renew while `worker` runs; tell whether it ended before the lead was lost."""
        keepers = [asyncio.create_task(self._renew()), asyncio.create_task(self._expire())]
        try:
            await asyncio.wait({worker, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            ended = worker.done()
            if not ended:
                self._step_down("not renewed in time")
                _cancel(*keepers)
        finally:
            await self._wind_down(worker, keepers)
            _raise_failure(*keepers, worker)
        return ended

    async def _wind_down(self, worker: asyncio.Task[T], keepers: list[asyncio.Task[None]]) -> None:
        """End the work first, under renewals if we still lead; then let go of the Lease."""
        try:
            _cancel(worker)
            await asyncio.wait({worker})
        finally:
            _cancel(*keepers)
            await asyncio.wait(keepers)
            # A second cancellation does not wait for the work; its Lease must then run out.
            await self._let_go(released=worker.done())

    async def _renew(self) -> None:
        while self.is_leader:
            await self._clock.sleep(self._election.retry_period)
            await self._attempt()

    async def _expire(self) -> None:
        while (left_s := self._leads_until_s - self._clock.monotonic()) > 0:
            await self._clock.sleep(left_s)

    async def _attempt(self) -> None:
        """Try once to win or to keep the Lease."""
        try:
            await self._write_if_free()
            self._complaint = ""
        except Conflict as error:
            self._log.debug("lease taken by another process", error=str(error))
        except KubeError as error:
            self._complain(error)

    async def _write_if_free(self) -> None:
        if self.is_leader:
            try:
                return await self._claim()
            except (Conflict, NotFound):
                # An earlier renewal of ours whose response was lost, or a write of another.
                pass
        await self._read()
        await self._claim()

    async def _read(self) -> None:
        path = LEASES.path(namespace=self.namespace, name=self._election.name)
        try:
            lease = await self._call(self._client.get(path))
        except NotFound:
            lease = None
        self._see(lease)

    async def _claim(self) -> None:
        now_s = self._clock.monotonic()
        duration_s = written_duration_s(self._election)
        step = decide(
            self._seen,
            identity=self.identity,
            default_duration_s=duration_s,
            now_s=now_s,
        )
        if step is Step.WAIT:
            return self._stand_by()
        await self._write(
            claim(
                self._seen,
                identity=self.identity,
                duration_s=duration_s,
                stamp=micro_time(self._clock.now()),
            )
        )
        # Counted from before the request: no one can have seen it earlier than that.
        self._leads_until_s = now_s + self._election.renew_deadline
        if self.is_leader:
            self._step_up()

    async def _write(self, spec: LeaseSpec) -> None:
        where = {"namespace": self.namespace, "name": self._election.name}
        lease = Lease({**self._seen.metadata, **where}, spec)
        if self._seen.version:
            call = self._client.replace(LEASES, lease, **where)
        else:
            call = self._client.create(LEASES, lease, namespace=self.namespace)
        self._see(await self._call(call))

    async def _call(self, call: Awaitable[bytes]) -> Lease:
        # Half of the deadline: one request that hangs must not cost us the lead
        # (client-go does the same in resourcelock/interface.go).
        limit_s = self._election.renew_deadline / 2
        try:
            return self._decoder.decode(await within(self._clock, limit_s, call))
        except TimeoutError as error:
            raise TimedOut(f"no answer about the lease within {limit_s:g} s") from error
        except UNDECODABLE as error:
            raise Malformed(f"not a Lease: {error}") from error

    def _see(self, lease: Lease | None) -> None:
        before = self.holder
        self._seen = observe(self._seen, lease, self._clock.monotonic())
        if self.holder == before:
            return
        self._log.info("lease holder changed", holder=self.holder)
        if before is not None:
            self._holders.remove(before)
        if self.holder is not None:
            self._holders.labels(self.holder).set(1)

    async def _let_go(self, *, released: bool) -> None:
        """Stop leading, then tell the others, so that they need not wait."""
        if not self.is_leader:
            return
        self._step_down("stopping")
        if released:
            try:
                await within(self._clock, self._election.renew_deadline / 2, self._release())
            except (KubeError, TimeoutError) as error:
                self._log.warning("lease not released", error=str(error))

    async def _release(self) -> None:
        try:
            await self._write(release(self._seen, stamp=micro_time(self._clock.now())))
        except Conflict:
            # A renewal that was canceled under way may have been carried out.
            await self._read()
            if self.holder == self.identity:
                await self._write(release(self._seen, stamp=micro_time(self._clock.now())))

    def _stand_by(self) -> None:
        """Say once per leader who leads instead of us."""
        self._step_down("held by another")
        if self.holder != self._stood_by_for:
            self._stood_by_for = self.holder
            self._log.info("standing by", leader=self.holder)

    def _step_up(self) -> None:
        self._stood_by_for = None
        if not self._leading:
            self._leading = True
            self._won_total.inc()
            self._log.info("leading")

    def _step_down(self, why: str) -> None:
        self._leads_until_s = _NEVER
        if self._leading:
            self._leading = False
            self._lost_total.inc()
            self._log.info("no longer leading", why=why)

    def _complain(self, error: KubeError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            self._log.warning("lease not renewed", error=self._complaint)


async def _run(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()


def _raise_failure(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        if not task.cancelled() and (error := task.exception()):
            raise error
