# SPDX-License-Identifier: Apache-2.0
"""Derives the state of each breaker from finished Migrations.

Breakers have no state of their own. They are derived from finished Migrations, in the order in
which these ended, so that a restart changes nothing. A good try closes a breaker and the count
starts again; a bad one opens it for twice as long, an hour at most. A move that ends while the
breaker is open was under way before and says nothing new.

Migrations are removed some time after their end, and those that are left have to lead to the
same state. So a move that tries says so itself, and for which breaker: it ends whatever came
before, even if that is forgotten. And no Migration is removed while the others alone would open
a closed breaker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from common.api.migrations import Phase, Purpose
from common.cluster.migrations import MigrationRecord
from common.config import Breaker, Guide, RebalancerConfiguration
from rebalancer.pacing.history import LONGEST_S, Histories, History
from rebalancer.pacing.votes import (
    FEWEST_BAD,
    TRYING,
    TRYING_NAMESPACE,
    TRYING_WORKLOAD,
    Vote,
    Votes,
    Workload,
    ended_s,
    tries,
    vote_of,
    workload_of,
)

_FINISHED: Final = frozenset({Phase.COMPLETED, Phase.FAILED})


def history_of(
    migrations: Iterable[MigrationRecord],
    settings: Breaker,
    purpose: Purpose,
    *,
    guidance: bool = True,
    misses: bool = True,
) -> Histories:
    """Return what the finished ones among these Migrations have come to.

    `guidance` means that moves for load need an extender, `misses` that they should then reach
    their target.
    """
    replay = _Replay(settings)
    needed = guidance and purpose is Purpose.LOAD
    finished = (m for m in migrations if m.phase in _FINISHED and m.purpose is purpose)
    for migration in sorted(finished, key=_end):
        replay.take(migration, vote_of(migration, guidance=needed, misses=needed and misses))
    return replay.histories()


def histories_of(
    migrations: Iterable[MigrationRecord], config: RebalancerConfiguration, purpose: Purpose
) -> Histories:
    """Return what finished moves have come to, by the configuration in force."""
    return history_of(
        migrations,
        config.breaker,
        purpose,
        guidance=config.needs_guidance,
        # Where a scheduler may show only a part of the nodes, misses are expected.
        misses=not config.allow_sampling or config.guide is Guide.ADMISSION,
    )


def _end(migration: MigrationRecord) -> tuple[float, str]:
    return ended_s(migration), migration.name


class _Replay:
    """All breakers while finished moves are replayed, one after the other."""

    def __init__(self, settings: Breaker) -> None:
        self._cluster = _ClusterReplay(settings)
        self._namespaces: dict[str, _NamespaceReplay] = {}
        self._workloads: dict[Workload, _WorkloadReplay] = {}
        self._settings = settings

    def take(self, migration: MigrationRecord, vote: Vote) -> None:
        if vote is Vote.NOTHING:
            return
        workload, settings = workload_of(migration), self._settings
        mine = self._workloads.setdefault(workload, _WorkloadReplay(settings))
        counted = mine.vote(migration, vote)
        if counted is None:
            return
        space = self._namespaces.setdefault(migration.namespace, _NamespaceReplay(settings))
        space.take(migration, counted)
        self._cluster.take(migration, counted)

    def histories(self) -> Histories:
        return Histories(
            cluster=self._cluster.history(),
            namespaces={name: found.history() for name, found in self._namespaces.items()},
            workloads={name: found.history() for name, found in self._workloads.items()},
        )


class _BreakerReplay:
    """One breaker during the replay."""

    scope = TRYING

    def __init__(self, settings: Breaker) -> None:
        self.settings = settings
        self._first_s = settings.half_open_after.seconds
        self._until_s: float | None = None
        self._pause_s = self._first_s
        self._cause = ""

    def history(self) -> History:
        return History(until_s=self._until_s, cause=self._cause)

    def take(self, migration: MigrationRecord, vote: Vote) -> bool:
        """Count a move; tell whether it says anything new."""
        end_s = ended_s(migration)
        over = self._until_s is not None and end_s >= self._until_s
        if over or tries(migration, self.scope):
            self._tried(migration, vote, end_s)
        elif self._until_s is None:
            self._count(migration, vote, end_s)
        else:
            return False
        return True

    def _count(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        """Count a move while the breaker is closed, and open it if that is too much."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Start to count again."""
        raise NotImplementedError

    def _tried(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        # A try that missed its target has shown that moving works; the count shows misses.
        if vote in (Vote.GOOD, Vote.MISSED):
            self._until_s, self._pause_s, self._cause = None, self._first_s, ""
            self._forget()
            return
        self._open_again(migration, vote, end_s)

    def _open_again(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        self._pause_s = min(2 * self._pause_s, max(LONGEST_S, self._first_s))
        wrong = f"the move of {migration.namespace}/{migration.pod_name} that tried failed"
        self._open(_unguided(migration) if vote is Vote.UNGUIDED else wrong, end_s)

    def _open(self, cause: str, end_s: float) -> None:
        self._cause = cause
        self._until_s = end_s + self._pause_s


class _WorkloadReplay(_BreakerReplay):
    """The quarantine of one workload.

    A failed move begins it. A replacement that runs on another node than planned is not the
    workload's fault, but the second one in a row begins it too.
    """

    scope = TRYING_WORKLOAD

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self._astray = False

    def vote(self, migration: MigrationRecord, vote: Vote) -> Vote | None:
        """Count a move; return the workload's vote, None if the move says nothing new."""
        astray = vote in (Vote.MISSED, Vote.RETURNED)
        repeated, self._astray = astray and self._astray, astray
        counted = Vote.BAD if repeated else vote
        return counted if self.take(migration, counted) else None

    def _count(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        pod = f"{migration.namespace}/{migration.pod_name}"
        if vote is Vote.UNGUIDED:
            self._open(_unguided(migration), end_s)
        elif vote is Vote.BAD and self._astray:
            cause = f"its last two replacements, including that of {pod}, missed their target"
            self._open(cause, end_s)
        elif vote is Vote.BAD:
            self._open(f"the move of {pod} failed", end_s)

    def _forget(self) -> None:
        self._astray = False


class _CountingReplay(_BreakerReplay):
    """A breaker that opens by a share of bad votes."""

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self.votes = Votes(settings.window)

    def _count(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        self.votes.add(migration, vote)
        if vote is not Vote.UNGUIDED and self.votes.all_well:
            return
        cause = self._cause_to_open(migration, vote)
        if cause:
            self._open(cause, end_s)

    def _cause_to_open(self, migration: MigrationRecord, vote: Vote) -> str:
        """Return why the votes are enough to open it; empty if they are not."""
        raise NotImplementedError

    def _too_many(self, bad: int, count: int) -> bool:
        enough = count >= self.settings.minimum and bad >= FEWEST_BAD
        return enough and bad > self.settings.bad_share * count

    def _forget(self) -> None:
        self.votes.clear()


class _NamespaceReplay(_CountingReplay):
    """The breaker of one namespace; one replacement that no extender steered opens it."""

    scope = TRYING_NAMESPACE

    def _cause_to_open(self, migration: MigrationRecord, vote: Vote) -> str:
        if vote is Vote.UNGUIDED:
            return _unguided(migration)
        bad, count = self.votes.bad()
        return f"{bad} of the last {count} moves went wrong" if self._too_many(bad, count) else ""


class _ClusterReplay(_CountingReplay):
    """The breaker of the cluster, which no namespace opens or keeps open alone."""

    scope = TRYING

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self._tried_badly: set[str] = set()

    def _cause_to_open(self, migration: MigrationRecord, vote: Vote) -> str:
        others = self.votes.namespaces(Vote.UNGUIDED) - {migration.namespace}
        # Anyone who may write a Migration can forge one, and one more is chance.
        if vote is Vote.UNGUIDED and len(others) >= FEWEST_BAD:
            return f"{_unguided(migration)}, like some in {len(others)} other namespaces"
        bad, count = self.votes.bad()
        # Leaving out a namespace without votes changes nothing, so only those with votes count.
        spaces = self.votes.namespaces()
        if not all(self._too_many(*self.votes.bad(without=name)) for name in spaces):
            return ""
        return f"{bad} of the last {count} moves went wrong, in several namespaces"

    def _open_again(self, migration: MigrationRecord, vote: Vote, end_s: float) -> None:
        """Stop the namespace whose try failed; one of another namespace may try next."""
        if self._until_s is None:
            # The Migrations it tried for are removed, so it is a vote like others.
            self._count(migration, vote, end_s)
            return
        self._tried_badly.add(migration.namespace)
        if len(self._tried_badly) >= FEWEST_BAD:
            self._tried_badly.clear()
            super()._open_again(migration, vote, end_s)

    def _forget(self) -> None:
        super()._forget()
        self._tried_badly.clear()


def _unguided(migration: MigrationRecord) -> str:
    pod = f"{migration.namespace}/{migration.pod_name}"
    return f"the replacement of {pod} was placed without guidance"
