# SPDX-License-Identifier: Apache-2.0
"""The state of breakers, as finished moves leave it behind.

A breaker is closed, open until a time, or half-open from then on: one move may try.
`rebalancer.pacing.replay` derives histories from finished Migrations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord
from rebalancer.pacing.votes import Workload, workload_of

LONGEST_S: Final = 3600.0
"""Between two tries, where `halfOpenAfter` is not longer."""


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether moves may begin."""

    open: bool = False
    half_open: bool = False
    """One move may try."""
    until_s: float | None = None
    """When one may try; None if it is closed, or ends with its cause."""
    cause: str = ""

    def depends_on_the_past(self, now_s: float) -> bool:
        """Tell whether it would change if finished Migrations were removed.

        After a long time without moves, what once went wrong may be forgotten.
        """
        return self.until_s is not None and now_s < self.until_s + LONGEST_S


CLOSED: Final = BreakerState()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What finished moves have come to, independent of the time."""

    until_s: float | None = None
    """When one may try, or could already; None if the breaker is closed."""
    cause: str = ""

    def at(self, now_s: float) -> BreakerState:
        """Return the state at a moment after the last of those moves."""
        if self.until_s is None:
            return CLOSED
        due = now_s >= self.until_s
        return BreakerState(open=not due, half_open=due, until_s=self.until_s, cause=self.cause)


_NO_HISTORY: Final = History()


class Histories(msgspec.Struct, frozen=True, kw_only=True):
    """The same for the cluster, and for each namespace and workload that was moved."""

    cluster: History = _NO_HISTORY
    namespaces: Mapping[str, History] = msgspec.field(default_factory=dict)
    workloads: Mapping[Workload, History] = msgspec.field(default_factory=dict)

    def namespace(self, name: str) -> History:
        return self.namespaces.get(name, _NO_HISTORY)

    def workload(self, found: Workload) -> History:
        return self.workloads.get(found, _NO_HISTORY)

    def depends_on(self, migration: MigrationRecord, now_s: float) -> bool:
        """Tell whether a breaker that is not closed depends on a finished move."""
        wide = (self.cluster, self.namespace(migration.namespace))
        if any(found.at(now_s).depends_on_the_past(now_s) for found in wide):
            return True
        # The result of one workload may be forgotten once another of its moves may try.
        return self.workload(workload_of(migration)).at(now_s).open

    def closed_for(self, migration: MigrationRecord, now_s: float) -> bool:
        """Tell whether no breaker, of those that a move counts for, stops or slows moves."""
        wide = (self.cluster, self.namespace(migration.namespace))
        mine = self.workload(workload_of(migration)).at(now_s)
        return not mine.open and all(found.at(now_s) is CLOSED for found in wide)


def state_of_all(states: Collection[BreakerState]) -> BreakerState:
    """Return the state of all namespaces together: that of the first that may try."""
    if not states or CLOSED in states:
        return CLOSED
    return min(states, key=lambda state: (state.until_s or inf, state.cause))
