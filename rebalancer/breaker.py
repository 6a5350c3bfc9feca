"""Stops moving when moves go wrong, and lets one try again after a while.

The breaker has no state of its own: it is worked out from finished Migrations, in the order
in which they ended, so that a restart changes nothing. It is closed, open until a time, or
half-open from then on: one move may try. A good try closes it and the count starts anew; a
bad one opens it for twice as long, an hour at most. What ends while it is open was under
way before and says nothing new.

Migrations are removed some time after their end, and what is left has to lead to the same
state. So a move that tries says so itself: it ends whatever came before, also if that is
forgotten. And no Migration is removed while the others alone would open a closed breaker.

A Migration that failed before anything was moved counts for nothing: its pod still runs.
Nor does one that was called off, even if a copy of its pod had been made.
Load and maintenance have a breaker each. Placing without guidance is the end of moving for
load; a node may be emptied without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord, Outcome, Phase, Step
from common.cluster.records import ControllerId, PodRecord
from common.cluster.snapshot import Snapshot
from common.config import Breaker
from rebalancer.evictability import Purpose, took_place
from rebalancer.limits import called_off, purpose_of
from rebalancer.reasons import Refusal

FEWEST_BAD: Final = 2
"""A single bad move opens nothing, however few there were."""
LONGEST_S: Final = 3600.0
"""Between two tries, unless `halfOpenAfter` is longer."""
MOVED_LATELY_S: Final = 600.0
FEW_STRANDED: Final = 2
"""So many unschedulable pods of moved workloads are nothing out of the ordinary."""

_FINISHED: Final = frozenset({Phase.COMPLETED, Phase.FAILED})


class Mark(StrEnum):
    """What one finished move says."""

    GOOD = "good"
    BAD = "bad"
    UNGUIDED = "unguided"
    NOTHING = "nothing"
    """Nothing was moved, or nothing was to be replaced."""


class BreakerState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether moves may begin."""

    open: bool = False
    half_open: bool = False
    """One move may try."""
    until_s: float | None = None
    """When one may try; None if it is closed, or ends with its cause."""
    words: str = ""

    def rests_on_the_past(self, now_s: float) -> bool:
        """Tell whether it would change if finished Migrations were removed.

        When nothing was moved for long, what once went wrong may be forgotten.
        """
        return self.until_s is not None and now_s < self.until_s + LONGEST_S


CLOSED: Final = BreakerState()
TRYING: Final = "Trying"
"""What the condition `BudgetChecked` gives as its reason where a move tries."""


def mark_of(migration: MigrationRecord, *, guidance: bool) -> Mark:
    """Return what a finished Migration says; `guidance` tells whether moves need any."""
    if not took_place(migration) or migration.outcome == Outcome.NOT_REPLACED:
        return Mark.NOTHING
    if called_off(migration):
        return Mark.NOTHING
    if guidance and migration.outcome == Outcome.UNGUIDED:
        return Mark.UNGUIDED
    bad = migration.phase == Phase.FAILED or migration.outcome == Outcome.BACK_ON_SOURCE
    return Mark.BAD if bad else Mark.GOOD


def is_try(migration: MigrationRecord) -> bool:
    """Tell whether a move began while the breaker was half-open."""
    found = migration.condition(Step.BUDGET_CHECKED)
    return found is not None and found.reason == TRYING


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What finished moves have come to, whatever time it is."""

    until_s: float | None = None
    """When one may try, or could already; None if the breaker is closed."""
    words: str = ""

    def at(self, now_s: float) -> BreakerState:
        """Return the state at a moment after the last of those moves."""
        if self.until_s is None:
            return CLOSED
        tries = now_s >= self.until_s
        return BreakerState(open=not tries, half_open=tries, until_s=self.until_s, words=self.words)


def history_of(
    migrations: Iterable[MigrationRecord],
    settings: Breaker,
    purpose: Purpose,
    *,
    guidance: bool = True,
) -> History:
    """Return what the finished ones among these Migrations have come to."""
    replay = _Replay(settings)
    needed = guidance and purpose is Purpose.LOAD
    finished = (m for m in migrations if m.phase in _FINISHED and purpose_of(m) is purpose)
    for migration in sorted(finished, key=_end):
        replay.take(migration, mark_of(migration, guidance=needed))
    return replay.history()


def breaker_of(
    migrations: Iterable[MigrationRecord],
    settings: Breaker,
    now_s: float,
    purpose: Purpose,
    *,
    guidance: bool = True,
) -> BreakerState:
    """Return the state that the finished ones among these Migrations lead to."""
    return history_of(migrations, settings, purpose, guidance=guidance).at(now_s)


def _end(migration: MigrationRecord) -> tuple[float, str]:
    return _ended_s(migration), migration.name


def _ended_s(migration: MigrationRecord) -> float:
    return migration.created_s if migration.finished_s is None else migration.finished_s


class _Replay:
    """The breaker while finished moves go by, one after the other."""

    def __init__(self, settings: Breaker) -> None:
        self._settings = settings
        self._first_s = settings.half_open_after.seconds
        self._window: deque[Mark] = deque(maxlen=settings.window)
        self._until_s: float | None = None
        self._pause_s = self._first_s
        self._words = ""

    def take(self, migration: MigrationRecord, mark: Mark) -> None:
        if mark is Mark.NOTHING:
            return
        ended_s = _ended_s(migration)
        if is_try(migration) or (self._until_s is not None and ended_s >= self._until_s):
            self._tried(migration, mark, ended_s)
        elif self._until_s is None:
            self._count(migration, mark, ended_s)

    def history(self) -> History:
        return History(until_s=self._until_s, words=self._words)

    def _count(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        self._window.append(mark)
        words = _unguided(migration) if mark is Mark.UNGUIDED else self._too_many()
        if words:
            self._open(words, ended_s)

    def _too_many(self) -> str:
        settings, count = self._settings, len(self._window)
        bad = self._window.count(Mark.BAD)
        if count < settings.minimum or bad < FEWEST_BAD or bad <= settings.bad_share * count:
            return ""
        return f"{bad} of the last {count} moves went wrong"

    def _tried(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        if mark is Mark.GOOD:
            self._until_s, self._pause_s, self._words = None, self._first_s, ""
            self._window.clear()
            return
        self._pause_s = min(2 * self._pause_s, max(LONGEST_S, self._first_s))
        wrong = f"the move of {migration.namespace}/{migration.pod_name} that tried went wrong"
        self._open(_unguided(migration) if mark is Mark.UNGUIDED else wrong, ended_s)

    def _open(self, words: str, ended_s: float) -> None:
        self._words = words
        self._until_s = ended_s + self._pause_s


def _unguided(migration: MigrationRecord) -> str:
    pod = f"{migration.namespace}/{migration.pod_name}"
    return f"the replacement of {pod} was placed without asking an extender"


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What else tells that moving does harm."""

    snapshot: Snapshot
    migrations: Sequence[MigrationRecord]
    purpose: Purpose
    now_s: float
    resting: bool
    """Too little is known of the load."""


def pods_are_stranded(signs: Signs) -> str:
    """Return how many pods of moved workloads no node takes, if there are too many."""
    moved, snapshot = _moved_lately(signs), signs.snapshot
    pods = [pod for pod in snapshot.pending.values() if pod.unschedulable] if moved else []
    count = sum(_workload(pod, snapshot) in moved for pod in pods)
    if count <= FEW_STRANDED:
        return ""
    return f"{count} pods of workloads that were moved in the last 10 minutes find no node"


def _workload(pod: PodRecord, snapshot: Snapshot) -> ControllerId | None:
    top = snapshot.top_workload(pod)
    return top.controller_id if top is not None else pod.controller_id


def _moved_lately(signs: Signs) -> set[ControllerId | None]:
    since_s = signs.now_s - MOVED_LATELY_S
    return {
        m.workload_id
        for m in signs.migrations
        if max(m.evicted_s or 0.0, m.finished_s or 0.0) >= since_s
        if m.workload_id is not None and took_place(m) and purpose_of(m) is signs.purpose
    }


def load_is_unknown(signs: Signs) -> str:
    if not signs.resting or signs.purpose is not Purpose.LOAD:
        return ""
    return "the load of too few nodes is known"


ALARMS: Final[tuple[Callable[[Signs], str], ...]] = (pods_are_stranded, load_is_unknown)
"""What opens a breaker while it lasts, whatever moves came to."""


def alarmed(signs: Signs) -> BreakerState | None:
    """Return the state while an alarm lasts; None if all is quiet."""
    words = next((found for alarm in ALARMS if (found := alarm(signs))), "")
    return BreakerState(open=True, words=words) if words else None


def blocks(state: BreakerState, now_s: float, *, another: bool) -> Refusal | None:
    """Return why no move may begin; `another` tells that one is under way already."""
    if state.half_open and another:
        words = f"{state.words}; one move at a time tries whether it is well again"
        return Refusal("BreakerHalfOpen", words, for_good=False)
    if not state.open:
        return None
    left = f"; one may try in {state.until_s - now_s:.0f}s" if state.until_s is not None else ""
    return Refusal("BreakerOpen", f"nothing is moved: {state.words}{left}", for_good=False)
