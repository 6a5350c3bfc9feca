# SPDX-License-Identifier: Apache-2.0
"""What finished moves say about whether moving works: one vote for each workload.

A Migration that failed before anything was moved has no vote: its pod still runs. Neither has
one that was called off, even if a copy of its pod had been created. A replacement that missed
its target once is chance, more are a sign. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Final

from common.api.migrations import Outcome, Phase, Step
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, PodRecord, PodUid
from rebalancer.evictability import was_carried_out
from rebalancer.pacing.checks import called_off

FEWEST_BAD: Final = 2
"""A single bad vote opens no breaker, however few votes there are."""

Workload = ControllerId | PodUid
"""What moves are counted by; a bare pod is its own workload."""


class Vote(StrEnum):
    """What one finished move says about moving."""

    GOOD = "good"
    BAD = "bad"
    UNGUIDED = "unguided"
    RETURNED = "returned"
    """The replacement runs, but on the source."""
    MISSED = "missed"
    """The replacement runs, but neither on the target nor on an alternative."""
    NOTHING = "nothing"
    """Nothing was moved, or no replacement was needed."""


TRYING: Final = "Trying"
"""The reason of the condition `BudgetChecked` where a move tries for the cluster."""
TRYING_NAMESPACE: Final = "TryingNamespace"
"""The same where it tries for its namespace."""
TRYING_WORKLOAD: Final = "TryingWorkload"
"""The same where it tries for its workload."""

SCOPES: Final = (TRYING, TRYING_NAMESPACE, TRYING_WORKLOAD)
"""The widest first; a move that tries for a wide scope tries for the narrow ones too."""


def vote_of(migration: MigrationRecord, *, guidance: bool, misses: bool = False) -> Vote:
    """Return the vote of a finished Migration.

    `guidance` means that moves need an extender, `misses` that they should reach their target.
    """
    if not was_carried_out(migration) or migration.outcome == Outcome.NOT_REPLACED:
        return Vote.NOTHING
    if called_off(migration):
        return Vote.NOTHING
    if guidance and migration.outcome == Outcome.UNGUIDED:
        return Vote.UNGUIDED
    if migration.phase == Phase.FAILED:
        return Vote.BAD
    if migration.outcome == Outcome.BACK_ON_SOURCE:
        return Vote.RETURNED
    missed = misses and migration.outcome == Outcome.ELSEWHERE
    return Vote.MISSED if missed else Vote.GOOD


def workload_of(migration: MigrationRecord) -> Workload:
    """Return which workload a move votes for."""
    return migration.workload_id or migration.pod_uid


def workload_of_pod(pod: PodRecord, snapshot: Snapshot) -> Workload:
    """Return which workload a move of a pod would vote for."""
    top = snapshot.top_workload(pod)
    return (top.controller_id if top is not None else pod.controller_id) or pod.uid


def tries(migration: MigrationRecord, scope: str) -> bool:
    """Tell whether a move began while the breaker of a scope, or a wider one, was half-open."""
    found = migration.condition(Step.BUDGET_CHECKED)
    reason = found.reason if found is not None else ""
    return reason in SCOPES and SCOPES.index(reason) <= SCOPES.index(scope)


def ended_s(migration: MigrationRecord) -> float:
    return migration.created_s if migration.finished_s is None else migration.finished_s


class Votes:
    """The latest votes, one for each workload.

    As many are kept of each namespace as are counted. So a namespace with many workloads does
    not push the votes of others out: without its own, theirs are as many as before.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._votes: dict[tuple[str, Workload], Vote] = {}
        self._spaces: dict[str, dict[Workload, None]] = {}
        self._wrong: set[tuple[str, Workload]] = set()

    @property
    def all_well(self) -> bool:
        """Tell whether so few votes are not good that they open nothing, however counted."""
        return len(self._wrong) < FEWEST_BAD

    def add(self, migration: MigrationRecord, vote: Vote) -> None:
        space, workload = migration.namespace, workload_of(migration)
        mine = self._spaces.setdefault(space, {})
        mine.pop(workload, None)
        self._votes.pop((space, workload), None)
        mine[workload] = None
        self._votes[space, workload] = vote
        self._wrong.discard((space, workload))
        if vote is not Vote.GOOD:
            self._wrong.add((space, workload))
        if len(mine) > self._most:
            oldest = next(iter(mine))
            del mine[oldest], self._votes[space, oldest]
            self._wrong.discard((space, oldest))

    def clear(self) -> None:
        self._votes.clear()
        self._spaces.clear()
        self._wrong.clear()

    def namespaces(self, *wanted: Vote) -> set[str]:
        """Return where these votes come from; without any, where all of them do."""
        return {space for space, vote in self._latest() if not wanted or vote in wanted}

    def bad(self, *, without: str = "") -> tuple[int, int]:
        """Return how many are bad and how many there are, without those of one namespace."""
        counts = Counter(vote for _, vote in self._latest(without))
        missed = counts[Vote.MISSED] if counts[Vote.MISSED] >= FEWEST_BAD else 0
        wrong = counts[Vote.BAD] + counts[Vote.UNGUIDED] + counts[Vote.RETURNED]
        return wrong + missed, counts.total()

    def _latest(self, without: str = "") -> Iterator[tuple[str, Vote]]:
        found = ((key[0], self._votes[key]) for key in reversed(self._votes) if key[0] != without)
        return islice(found, self._most)
