# SPDX-License-Identifier: Apache-2.0
"""Injected faults: slow responses, errors, lost responses, dropped and frozen watches.

The server calls `before` for each request, `loses` after it was carried out, and
`until_thawed` before it writes to a watch. All randomness comes from the seed, and a fault can
be limited to a number of requests, so that a test defines exactly what fails.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from common.clock import Clock

if TYPE_CHECKING:
    from simulator.api.streams import Stream

TOO_MANY_REQUESTS: Final = 429


class FaultInjected(Exception):
    """A request is rejected with this status, as the filters of the real server would."""

    def __init__(self, status: int, retry_after_s: int | None) -> None:
        super().__init__(f"a fault answers with {status}")
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Requests:
    """Which requests a fault affects."""

    verbs: frozenset[str] = frozenset()
    """get, list, watch, create, update, patch, delete, deletecollection; empty means all."""
    resources: frozenset[str] = frozenset()
    """Plurals, with a subresource after a slash: `pods`, `pods/eviction`; empty means all."""

    def include(self, verb: str, resource: str) -> bool:
        verbs = not self.verbs or verb in self.verbs
        return verbs and (not self.resources or resource in self.resources)


@dataclass(eq=False)
class Fault:
    """One fault: what fails, for which requests, and how often."""

    requests: Requests
    latency_s: float = 0.0
    status: int | None = None
    retry_after_s: int | None = None
    probability: float = 1.0
    times: int | None = None
    """How many requests it affects; None means all."""
    loses: bool = False
    """The request is carried out, then the connection breaks."""
    hits: int = field(default=0, init=False)

    def concerns(self, verb: str, resource: str) -> bool:
        """Return whether the fault applies to a request."""
        if self.times is not None and self.hits >= self.times:
            return False
        return self.requests.include(verb, resource)


class Faults:
    """All faults of a server; initially none."""

    def __init__(self, *, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._faults: list[Fault] = []
        self._watches: set[Stream] = set()
        self._frozen: frozenset[str] | None = None
        self._thawed = asyncio.Event()
        self._thawed.set()

    def add(
        self,
        *,
        verbs: Iterable[str] = (),
        resources: Iterable[str] = (),
        latency_s: float = 0.0,
        status: int | None = None,
        retry_after_s: int | None = None,
        probability: float = 1.0,
        times: int | None = None,
        loses: bool = False,
    ) -> Fault:
        """Add a fault; the returned value counts its hits."""
        fault = Fault(
            requests=Requests(frozenset(verbs), frozenset(resources)),
            latency_s=latency_s,
            status=status,
            retry_after_s=retry_after_s,
            probability=probability,
            times=times,
            loses=loses,
        )
        self._faults.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Remove a fault."""
        self._faults.remove(fault)

    def clear(self) -> None:
        """Remove all faults and thaw frozen watches."""
        self._faults.clear()
        self.thaw_watches()

    async def before(self, verb: str, resource: str) -> None:
        """Delay or reject a request if a fault applies."""
        if not self._faults:
            return
        early = [fault for fault in self._faults if not fault.loses]
        hit = [fault for fault in early if self._hits(fault, verb, resource)]
        latency_s = sum(fault.latency_s for fault in hit)
        if latency_s > 0:
            await self._clock.sleep(latency_s)
        for fault in hit:
            if fault.status is not None:
                raise FaultInjected(fault.status, fault.retry_after_s)

    def loses(self, verb: str, resource: str) -> bool:
        """Return whether the response to a request that was carried out is lost."""
        late = [fault for fault in self._faults if fault.loses]
        return sum(self._hits(fault, verb, resource) for fault in late) > 0

    def _hits(self, fault: Fault, verb: str, resource: str) -> bool:
        if not fault.concerns(verb, resource):
            return False
        hit = fault.probability >= 1.0 or self._rng.random() < fault.probability
        fault.hits += hit
        return hit

    def drop_watches(self, resource: str | None = None) -> int:
        """Break open watches like a lost connection; return how many."""
        dropped = [w for w in self._watches if resource is None or w.resource == resource]
        for watch in dropped:
            watch.drop()
        return len(dropped)

    def freeze_watches(self, *resources: str) -> None:
        """Make watches send nothing while their connections stay open; empty means all."""
        self._frozen = frozenset(resources)
        self._thawed.clear()

    def thaw_watches(self) -> None:
        """Let frozen watches continue where they stopped."""
        self._frozen = None
        self._thawed.set()

    async def until_thawed(self, resource: str) -> None:
        """Wait while watches of this kind are frozen."""
        while self._frozen is not None and (not self._frozen or resource in self._frozen):
            await self._thawed.wait()

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    def opened(self, watch: Stream) -> None:
        """Register a watch."""
        self._watches.add(watch)

    def closed(self, watch: Stream) -> None:
        """Unregister a watch."""
        self._watches.discard(watch)
