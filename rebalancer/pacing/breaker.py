# SPDX-License-Identifier: Apache-2.0
"""Stops moving when moves go wrong, and lets one try again after a while.

There is a breaker for each workload, for each namespace and for the cluster. A workload that
does not come up again after a move is quarantined at once. A namespace stops when too many of
its workloads went wrong. So does the cluster, but there no namespace decides alone: the votes
must be enough even without those of any one namespace. Each workload has one vote, that of its
latest move. Every tenant can make moves of its own pods go wrong; that stops its own pods, and
no others.

Load and maintenance have breakers of their own. A replacement that was placed without guidance
stops moves for load; a node may be drained without guidance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.config import Breaker
from rebalancer.pacing.history import CLOSED, BreakerState, Histories, state_of_all
from rebalancer.pacing.signs import FEW_STRANDED, Signs, alarmed, stranded, stranded_message
from rebalancer.pacing.votes import (
    SCOPES,
    TRYING,
    TRYING_NAMESPACE,
    TRYING_WORKLOAD,
    Workload,
    workload_of,
    workload_of_pod,
)
from rebalancer.refusals import Reason, Refusal


class Breakers(msgspec.Struct, frozen=True, kw_only=True):
    """All breakers of one purpose at one moment."""

    past: Histories
    alarm: BreakerState | None = None
    stranded: Mapping[str, int] = msgspec.field(default_factory=dict)
    now_s: float
    try_s: float
    """How long a move that tries keeps others from trying: a slow one does not hold them longer."""

    @classmethod
    def of(cls, past: Histories, signs: Signs, settings: Breaker) -> Breakers:
        """Combine the history of moves with what the cluster shows now."""
        return cls(
            past=past,
            alarm=alarmed(signs),
            stranded=stranded(signs),
            now_s=signs.now_s,
            try_s=settings.half_open_after.seconds,
        )

    def cluster(self) -> BreakerState:
        return self.alarm or self.past.cluster.at(self.now_s)

    def namespace(self, name: str) -> BreakerState:
        count = self.stranded.get(name, 0)
        if count > FEW_STRANDED:
            return BreakerState(open=True, cause=stranded_message(count))
        return self.past.namespace(name).at(self.now_s)

    def workload(self, found: Workload) -> BreakerState:
        return self.past.workload(found).at(self.now_s)

    def shown(self, movable: Callable[[], Iterable[str]]) -> BreakerState:
        """Return whether anything may move; `movable` names the namespaces with movable pods."""
        if self.alarm is not None or self.past.cluster.until_s is not None:
            return self.cluster()
        states = {n: self.namespace(n) for n in (*self.past.namespaces, *self.stranded)}
        state = state_of_all(states.values())
        others = state is not CLOSED and any(name not in states for name in movable())
        return CLOSED if others else state

    def stopped_namespaces(self) -> Iterator[tuple[str, BreakerState]]:
        """Yield the namespaces whose moves are stopped, or one of which may try."""
        for name in sorted({*self.past.namespaces, *self.stranded}):
            state = self.namespace(name)
            if state.open or state.half_open:
                yield name, state

    @property
    def quiet(self) -> bool:
        """Tell whether no namespace and no workload is stopped."""
        return not self.quarantined() and not any(self.stopped_namespaces())

    def quarantined(self) -> int:
        """Return how many workloads are quarantined."""
        return sum(found.at(self.now_s).open for found in self.past.workloads.values())

    def trying(self, migration: MigrationRecord) -> str:
        """Return the scope for which a move that begins now tries; empty if none is half-open."""
        states = {
            TRYING: self.cluster(),
            TRYING_NAMESPACE: self.namespace(migration.namespace),
            TRYING_WORKLOAD: self.workload(workload_of(migration)),
        }
        return next((scope for scope in SCOPES if states[scope].half_open), "")

    def against(
        self, migration: MigrationRecord, ahead: Sequence[MigrationRecord]
    ) -> Iterator[Refusal]:
        """Yield why a move may not begin, with these of the same purpose under way."""
        space, workload = migration.namespace, workload_of(migration)
        kin = [m for m in ahead if workload_of(m) == workload]
        others = [m for m in ahead if self.now_s - (m.started_s or m.created_s) < self.try_s]
        near = [m for m in others if m.namespace == space]
        wide = blocks(self.cluster(), self.now_s, another=bool(others)) or blocks(
            self.namespace(space), self.now_s, another=bool(near), namespace=space
        )
        if wide is not None:
            yield wide
        if isolated := quarantine(self.workload(workload), self.now_s, another=bool(kin)):
            yield isolated

    def against_planning(self, pod: PodRecord, snapshot: Snapshot) -> Iterator[Refusal]:
        """Yield why moves of this pod are not planned while those of others may be."""
        space, now_s = pod.namespace, self.now_s
        if stopped := blocks(self.namespace(space), now_s, another=False, namespace=space):
            yield stopped
        state = self.workload(workload_of_pod(pod, snapshot))
        if isolated := quarantine(state, now_s, another=False):
            yield isolated


def blocks(
    state: BreakerState, now_s: float, *, another: bool, namespace: str = ""
) -> Refusal | None:
    """Return why no move may begin; `another` means that one is under way already."""
    if state.half_open and another:
        if namespace:
            cause = state.cause
            return Reason.BREAKER_HALF_OPEN.refusal("namespace", cause=cause, namespace=namespace)
        return Reason.BREAKER_HALF_OPEN.refusal(cause=state.cause)
    if not state.open:
        return None
    cause = f"{state.cause}{_left(state, now_s)}"
    if namespace:
        return Reason.BREAKER_OPEN.refusal("namespace", cause=cause, namespace=namespace)
    return Reason.BREAKER_OPEN.refusal(cause=cause)


def quarantine(state: BreakerState, now_s: float, *, another: bool) -> Refusal | None:
    """Return why no move of a workload may begin; `another` of it is under way already."""
    if state.half_open and another:
        return Reason.WORKLOAD_QUARANTINED.refusal("half-open", cause=state.cause)
    if not state.open:
        return None
    return Reason.WORKLOAD_QUARANTINED.refusal(cause=f"{state.cause}{_left(state, now_s)}")


def _left(state: BreakerState, now_s: float) -> str:
    return f"; one may try in {state.until_s - now_s:.0f}s" if state.until_s is not None else ""
