"""Faults on demand: slow answers, refusals, lost answers, dropped and frozen watches.

The server asks `before` each request, asks `loses` after it was carried out, and lets
`watches` decide whether a watch may speak. Everything random comes from the seed, and a fault
may be limited to a number of requests, so that a test says exactly what goes wrong.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from common.clock import Clock

INTERNAL_ERROR: Final = 500
TOO_MANY_REQUESTS: Final = 429


class FaultInjected(Exception):
    """A request is refused with this status, as the real server's filters would."""

    def __init__(self, status: int, retry_after_s: int | None) -> None:
        super().__init__(f"a fault answers with {status}")
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(eq=False)
class Fault:
    """What goes wrong, for whom, how often."""

    verbs: frozenset[str] = frozenset()
    """get, list, watch, create, update, patch, delete, deletecollection; none means all."""
    resources: frozenset[str] = frozenset()
    """Plurals, with a subresource after a slash: `pods`, `pods/eviction`; none means all."""
    latency_s: float = 0.0
    status: int | None = None
    retry_after_s: int | None = None
    probability: float = 1.0
    times: int | None = None
    """How many requests it still hits; None means all."""
    loses: bool = False
    """The request is carried out, and then the connection breaks."""
    hits: int = 0

    def concerns(self, verb: str, resource: str) -> bool:
        """Tell whether a request is one of those meant."""
        if self.times is not None and self.hits >= self.times:
            return False
        wanted = not self.verbs or verb in self.verbs
        return wanted and (not self.resources or resource in self.resources)


class Droppable(Protocol):
    """A watch, as far as faults know it."""

    resource: str

    def drop(self) -> None:
        """End the connection without a goodbye."""


class Faults:
    """All faults of a server; none to begin with."""

    def __init__(self, *, clock: Clock, rng: random.Random | None = None) -> None:
        self._clock = clock
        self._rng = rng or random.Random()
        self._faults: list[Fault] = []
        self._watches: set[Droppable] = set()
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
        """Let something go wrong from now on; the result counts its hits."""
        fault = Fault(
            verbs=frozenset(verbs),
            resources=frozenset(resources),
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
        """Let one thing go well again."""
        self._faults.remove(fault)

    def clear(self) -> None:
        """Let everything go well again, and frozen watches speak."""
        self._faults.clear()
        self.thaw_watches()

    async def before(self, verb: str, resource: str) -> None:
        """Delay or refuse a request, if a fault says so."""
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
        """Tell whether the answer to a request that was carried out gets lost."""
        late = [fault for fault in self._faults if fault.loses]
        return sum(self._hits(fault, verb, resource) for fault in late) > 0

    def _hits(self, fault: Fault, verb: str, resource: str) -> bool:
        if not fault.concerns(verb, resource):
            return False
        hit = fault.probability >= 1.0 or self._rng.random() < fault.probability
        fault.hits += hit
        return hit

    def drop_watches(self, resource: str | None = None) -> int:
        """End open watches as a lost connection does; return how many."""
        dropped = [w for w in self._watches if resource is None or w.resource == resource]
        for watch in dropped:
            watch.drop()
        return len(dropped)

    def freeze_watches(self, *resources: str) -> None:
        """Let watches say nothing more while their connections stay; none named means all."""
        self._frozen = frozenset(resources)
        self._thawed.clear()

    def thaw_watches(self) -> None:
        """Let frozen watches go on where they stopped."""
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

    def opened(self, watch: Droppable) -> None:
        """Take note of a watch."""
        self._watches.add(watch)

    def closed(self, watch: Droppable) -> None:
        """Forget a watch."""
        self._watches.discard(watch)
