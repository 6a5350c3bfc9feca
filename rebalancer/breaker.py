"""Stops moving when moves go wrong, and lets one try again after a while.

There is a breaker for each workload, for each namespace and for the cluster. A workload that
does not come up again after a move is quarantined at once. A namespace stops when too many
of its workloads went wrong. So does the cluster, but there no namespace decides alone: the
votes must be enough also without those of any one namespace. Each workload has one vote,
that of its latest move. Every tenant can make moves of its own pods go wrong; it stops its
own pods with that, and no others.

Breakers have no state of their own: they are worked out from finished Migrations, in the
order in which these ended, so that a restart changes nothing. One is closed, open until a
time, or half-open from then on: one move may try. A good try closes it and the count starts
again; a bad one opens it for twice as long, an hour at most. What ends while it is open was
under way before and says nothing new.

Migrations are removed some time after their end, and what is left has to lead to the same
state. So a move that tries says so itself, and for which breaker: it ends whatever came
before, also if that is forgotten. And no Migration is removed while the others alone would
open a closed breaker.

A Migration that failed before anything was moved counts for nothing: its pod still runs.
Nor does one that was called off, even if a copy of its pod had been made.
Load and maintenance have breakers of their own. Placing without guidance is the end of
moving for load; a node may be emptied without it. One replacement that missed its target is
chance, more are a sign.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from math import inf
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord, Outcome, Phase, Step
from common.cluster.records import ControllerId, PodRecord, PodUid
from common.cluster.snapshot import Snapshot
from common.config import Breaker, RebalancerConfiguration
from rebalancer.evictability import Purpose, took_place
from rebalancer.limits import called_off, purpose_of
from rebalancer.reasons import Refusal

FEWEST_BAD: Final = 2
"""A single bad vote opens nothing, however few there were."""
LONGEST_S: Final = 3600.0
"""Between two tries, unless `halfOpenAfter` is longer."""
MOVED_LATELY_S: Final = 600.0
FEW_STRANDED: Final = 2
"""So many unschedulable pods of moved workloads are nothing out of the ordinary."""

_FINISHED: Final = frozenset({Phase.COMPLETED, Phase.FAILED})

Workload = ControllerId | PodUid
"""Whose moves are counted together; a bare pod is its own workload."""


class Mark(StrEnum):
    """What one finished move says."""

    GOOD = "good"
    BAD = "bad"
    UNGUIDED = "unguided"
    RETURNED = "returned"
    """It runs again, but where it came from."""
    MISSED = "missed"
    """It went well, but not where it was planned."""
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
"""What the condition `BudgetChecked` gives as its reason where a move tries for all."""
TRYING_NAMESPACE: Final = "TryingNamespace"
"""The same where it tries for its namespace."""
TRYING_WORKLOAD: Final = "TryingWorkload"
"""The same where it tries for its workload."""

_TRIES: Final = (TRYING, TRYING_NAMESPACE, TRYING_WORKLOAD)
"""The wider first; who tries for many tries for itself too."""


def mark_of(migration: MigrationRecord, *, guidance: bool, misses: bool = False) -> Mark:
    """Return what a finished Migration says.

    `guidance` tells whether moves need any, `misses` whether they should reach their target.
    """
    if not took_place(migration) or migration.outcome == Outcome.NOT_REPLACED:
        return Mark.NOTHING
    if called_off(migration):
        return Mark.NOTHING
    if guidance and migration.outcome == Outcome.UNGUIDED:
        return Mark.UNGUIDED
    if migration.phase == Phase.FAILED:
        return Mark.BAD
    if migration.outcome == Outcome.BACK_ON_SOURCE:
        return Mark.RETURNED
    missed = misses and migration.outcome == Outcome.ELSEWHERE
    return Mark.MISSED if missed else Mark.GOOD


def workload_of(migration: MigrationRecord) -> Workload:
    """Return whose vote a move is."""
    return migration.workload_id or migration.pod_uid


def workload_of_pod(pod: PodRecord, snapshot: Snapshot) -> Workload:
    """Return the same of a pod that may be moved."""
    top = snapshot.top_workload(pod)
    return (top.controller_id if top is not None else pod.controller_id) or pod.uid


def _tries(migration: MigrationRecord, scope: str) -> bool:
    """Tell whether a move began while the breaker of a scope, or a wider one, was half-open."""
    found = migration.condition(Step.BUDGET_CHECKED)
    reason = found.reason if found is not None else ""
    return reason in _TRIES and _TRIES.index(reason) <= _TRIES.index(scope)


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

    def at(self, now_s: float) -> BreakerState:
        """Return whether anything may move: the cluster's state, or that of all namespaces."""
        if self.cluster.until_s is not None:
            return self.cluster.at(now_s)
        return _of_all([found.at(now_s) for found in self.namespaces.values()])

    def rest_on(self, migration: MigrationRecord, now_s: float) -> bool:
        """Tell whether a breaker that is not closed rests on a finished move."""
        wide = (self.cluster, self.namespace(migration.namespace))
        if any(found.at(now_s).rests_on_the_past(now_s) for found in wide):
            return True
        # What was tried of one workload may be forgotten once another move may try.
        return self.workload(workload_of(migration)).at(now_s).open

    def closed_for(self, migration: MigrationRecord, now_s: float) -> bool:
        """Tell whether no breaker, of those that a move counts for, stops or slows moves."""
        wide = (self.cluster, self.namespace(migration.namespace))
        mine = self.workload(workload_of(migration)).at(now_s)
        return not mine.open and all(found.at(now_s) is CLOSED for found in wide)


def _of_all(states: Collection[BreakerState]) -> BreakerState:
    """Return the state of all namespaces together: that of the first that may try."""
    if not states or CLOSED in states:
        return CLOSED
    return min(states, key=lambda state: (state.until_s or inf, state.words))


def history_of(
    migrations: Iterable[MigrationRecord],
    settings: Breaker,
    purpose: Purpose,
    *,
    guidance: bool = True,
    misses: bool = True,
) -> Histories:
    """Return what the finished ones among these Migrations have come to.

    `guidance` tells whether moves for load need any, `misses` whether they should then reach
    their target.
    """
    replay = _Replay(settings)
    needed = guidance and purpose is Purpose.LOAD
    finished = (m for m in migrations if m.phase in _FINISHED and purpose_of(m) is purpose)
    for migration in sorted(finished, key=_end):
        replay.take(migration, mark_of(migration, guidance=needed, misses=needed and misses))
    return replay.histories()


def histories_of(
    migrations: Iterable[MigrationRecord], config: RebalancerConfiguration, purpose: Purpose
) -> Histories:
    """Return what finished moves have come to, by the settings in force."""
    return history_of(
        migrations,
        config.breaker,
        purpose,
        guidance=config.require_extender,
        # Where the scheduler may show a part of the nodes only, misses are expected.
        misses=not config.allow_sampling,
    )


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
    """All breakers while finished moves go by, one after the other."""

    def __init__(self, settings: Breaker) -> None:
        self._cluster = _Cluster(settings)
        self._namespaces: dict[str, _Namespace] = {}
        self._workloads: dict[Workload, _OneWorkload] = {}
        self._settings = settings

    def take(self, migration: MigrationRecord, mark: Mark) -> None:
        if mark is Mark.NOTHING:
            return
        workload, settings = workload_of(migration), self._settings
        mine = self._workloads.setdefault(workload, _OneWorkload(settings))
        vote = mine.vote(migration, mark)
        if vote is None:
            return
        space = self._namespaces.setdefault(migration.namespace, _Namespace(settings))
        space.take(migration, vote)
        self._cluster.take(migration, vote)

    def histories(self) -> Histories:
        return Histories(
            cluster=self._cluster.history(),
            namespaces={name: found.history() for name, found in self._namespaces.items()},
            workloads={name: found.history() for name, found in self._workloads.items()},
        )


class _OneBreaker:
    """One breaker while finished moves go by."""

    scope = TRYING

    def __init__(self, settings: Breaker) -> None:
        self.settings = settings
        self._first_s = settings.half_open_after.seconds
        self._until_s: float | None = None
        self._pause_s = self._first_s
        self._words = ""

    def history(self) -> History:
        return History(until_s=self._until_s, words=self._words)

    def take(self, migration: MigrationRecord, mark: Mark) -> bool:
        """Count a move; tell whether it says anything."""
        ended_s = _ended_s(migration)
        over = self._until_s is not None and ended_s >= self._until_s
        if over or _tries(migration, self.scope):
            self._tried(migration, mark, ended_s)
        elif self._until_s is None:
            self._count(migration, mark, ended_s)
        else:
            return False
        return True

    def _count(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        """Count a move while the breaker is closed, and open it if that is too much."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Begin to count again."""
        raise NotImplementedError

    def _tried(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        # A try that missed has shown that moving works; whether it hits shows in the count.
        if mark in (Mark.GOOD, Mark.MISSED):
            self._until_s, self._pause_s, self._words = None, self._first_s, ""
            self._forget()
            return
        self._open_again(migration, mark, ended_s)

    def _open_again(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        self._pause_s = min(2 * self._pause_s, max(LONGEST_S, self._first_s))
        wrong = f"the move of {migration.namespace}/{migration.pod_name} that tried went wrong"
        self._open(_unguided(migration) if mark is Mark.UNGUIDED else wrong, ended_s)

    def _open(self, words: str, ended_s: float) -> None:
        self._words = words
        self._until_s = ended_s + self._pause_s


class _OneWorkload(_OneBreaker):
    """The quarantine of one workload.

    A move that failed begins it. A replacement that runs elsewhere than planned is not the
    workload's fault; the second one in a row begins it too.
    """

    scope = TRYING_WORKLOAD

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self._astray = False

    def vote(self, migration: MigrationRecord, mark: Mark) -> Mark | None:
        """Count a move; return the workload's vote, None if the move says nothing new."""
        astray = mark in (Mark.MISSED, Mark.RETURNED)
        repeated, self._astray = astray and self._astray, astray
        vote = Mark.BAD if repeated else mark
        return vote if self.take(migration, vote) else None

    def _count(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        pod = f"{migration.namespace}/{migration.pod_name}"
        if mark is Mark.UNGUIDED:
            self._open(_unguided(migration), ended_s)
        elif mark is Mark.BAD and self._astray:
            words = (
                f"its last two replacements, that of {pod} too, came to other nodes than planned"
            )
            self._open(words, ended_s)
        elif mark is Mark.BAD:
            self._open(f"the move of {pod} went wrong", ended_s)

    def _forget(self) -> None:
        self._astray = False


class _Votes:
    """The latest votes, one for each workload.

    Of each namespace so many are kept as are looked at. One with many workloads does not push
    the votes of others out of sight: without its own, theirs are as many as ever.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._votes: dict[tuple[str, Workload], Mark] = {}
        self._spaces: dict[str, dict[Workload, None]] = {}

    def add(self, migration: MigrationRecord, mark: Mark) -> None:
        space, workload = migration.namespace, workload_of(migration)
        mine = self._spaces.setdefault(space, {})
        mine.pop(workload, None)
        self._votes.pop((space, workload), None)
        mine[workload] = None
        self._votes[space, workload] = mark
        if len(mine) > self._most:
            oldest = next(iter(mine))
            del mine[oldest], self._votes[space, oldest]

    def clear(self) -> None:
        self._votes.clear()
        self._spaces.clear()

    def namespaces(self, *marks: Mark) -> set[str]:
        """Return where these votes come from; without marks, where all of them do."""
        return {space for space, mark in self._latest() if not marks or mark in marks}

    def bad(self, *, without: str = "") -> tuple[int, int]:
        """Return how many are bad and how many there are, without those of one namespace."""
        counts = Counter(mark for _, mark in self._latest(without))
        missed = counts[Mark.MISSED] if counts[Mark.MISSED] >= FEWEST_BAD else 0
        wrong = counts[Mark.BAD] + counts[Mark.UNGUIDED] + counts[Mark.RETURNED]
        return wrong + missed, counts.total()

    def _latest(self, without: str = "") -> Iterator[tuple[str, Mark]]:
        found = ((key[0], self._votes[key]) for key in reversed(self._votes) if key[0] != without)
        return islice(found, self._most)


class _Counting(_OneBreaker):
    """A breaker that opens by a share of bad votes."""

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self.votes = _Votes(settings.window)

    def _count(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        self.votes.add(migration, mark)
        words = self._why(migration, mark)
        if words:
            self._open(words, ended_s)

    def _why(self, migration: MigrationRecord, mark: Mark) -> str:
        """Return why it is enough now; empty if it is not."""
        raise NotImplementedError

    def _too_many(self, bad: int, count: int) -> bool:
        enough = count >= self.settings.minimum and bad >= FEWEST_BAD
        return enough and bad > self.settings.bad_share * count

    def _forget(self) -> None:
        self.votes.clear()


class _Namespace(_Counting):
    """The breaker of one namespace; one replacement that no extender steered opens it."""

    scope = TRYING_NAMESPACE

    def _why(self, migration: MigrationRecord, mark: Mark) -> str:
        if mark is Mark.UNGUIDED:
            return _unguided(migration)
        bad, count = self.votes.bad()
        return f"{bad} of the last {count} moves went wrong" if self._too_many(bad, count) else ""


class _Cluster(_Counting):
    """The breaker of everything, which no namespace opens or keeps open alone."""

    scope = TRYING

    def __init__(self, settings: Breaker) -> None:
        super().__init__(settings)
        self._tried_badly: set[str] = set()

    def _why(self, migration: MigrationRecord, mark: Mark) -> str:
        others = self.votes.namespaces(Mark.UNGUIDED) - {migration.namespace}
        # One may be forged and one chance.
        if mark is Mark.UNGUIDED and len(others) >= FEWEST_BAD:
            return f"{_unguided(migration)}, like some in {len(others)} other namespaces"
        bad, count = self.votes.bad()
        # Without any other namespace the latest votes are the same.
        spaces = self.votes.namespaces()
        if not all(self._too_many(*self.votes.bad(without=name)) for name in spaces):
            return ""
        return f"{bad} of the last {count} moves went wrong, in several namespaces"

    def _open_again(self, migration: MigrationRecord, mark: Mark, ended_s: float) -> None:
        """A namespace whose try went wrong is stopped itself; the next one may try."""
        if self._until_s is None:
            # What it tried for is forgotten, so it is a vote like others.
            self._count(migration, mark, ended_s)
            return
        self._tried_badly.add(migration.namespace)
        if len(self._tried_badly) >= FEWEST_BAD:
            self._tried_badly.clear()
            super()._open_again(migration, mark, ended_s)

    def _forget(self) -> None:
        super()._forget()
        self._tried_badly.clear()


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


def stranded(signs: Signs) -> Mapping[str, int]:
    """Return by namespace how many replacements of moved pods no node takes.

    A pod that is older than the moves of its workload was not made because of one, and a
    workload has lost no more pods than were moved: more that wait are its own.
    """
    moved, snapshot = _moved_lately(signs), signs.snapshot
    waiting: Counter[ControllerId] = Counter()
    for pod in snapshot.pending.values() if moved else ():
        if not pod.unschedulable:
            continue
        workload = workload_of_pod(pod, snapshot)
        if isinstance(workload, ControllerId) and any(
            # Pods are stamped in whole seconds.
            pod.created_s >= float(int(since_s))
            for since_s in moved.get(workload, ())
        ):
            waiting[workload] += 1
    counts: Counter[str] = Counter()
    for workload, count in waiting.items():
        counts[workload.namespace] += min(count, len(moved[workload]))
    return counts


def _moved_lately(signs: Signs) -> Mapping[ControllerId, Sequence[float]]:
    """Return by workload when pods were evicted in the last minutes."""
    since_s = signs.now_s - MOVED_LATELY_S
    found: dict[ControllerId, list[float]] = defaultdict(list)
    for m in signs.migrations:
        lately = max(m.evicted_s or 0.0, m.finished_s or 0.0) >= since_s
        counts = lately and took_place(m) and purpose_of(m) is signs.purpose
        if counts and m.workload_id is not None:
            found[m.workload_id].append(m.created_s if m.evicted_s is None else m.evicted_s)
    return found


def pods_are_stranded(signs: Signs) -> str:
    """Return how many pods of moved workloads no node takes, if there are too many.

    Without those of any one namespace there must still be too many.
    """
    counts = stranded(signs)
    total = sum(counts.values())
    if total - max(counts.values(), default=0) <= FEW_STRANDED:
        return ""
    return _stranded_words(total)


def _stranded_words(count: int) -> str:
    return f"{count} pods of workloads that were moved in the last 10 minutes find no node"


def load_is_unknown(signs: Signs) -> str:
    if not signs.resting or signs.purpose is not Purpose.LOAD:
        return ""
    return "the load of too few nodes is known"


ALARMS: Final[tuple[Callable[[Signs], str], ...]] = (pods_are_stranded, load_is_unknown)
"""What opens the breaker of the cluster while it lasts, whatever moves came to."""


def alarmed(signs: Signs) -> BreakerState | None:
    """Return the state while an alarm lasts; None if all is quiet."""
    words = next((found for alarm in ALARMS if (found := alarm(signs))), "")
    return BreakerState(open=True, words=words) if words else None


class Breakers(msgspec.Struct, frozen=True, kw_only=True):
    """All breakers of one purpose at one moment."""

    past: Histories
    alarm: BreakerState | None = None
    stranded: Mapping[str, int] = msgspec.field(default_factory=dict)
    now_s: float
    try_s: float
    """How long a move that tries keeps others from trying: a slow one does not hold up the rest."""

    @classmethod
    def of(cls, past: Histories, signs: Signs, settings: Breaker) -> Breakers:
        """Put together what moves came to and what shows now."""
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
            return BreakerState(open=True, words=_stranded_words(count))
        return self.past.namespace(name).at(self.now_s)

    def workload(self, found: Workload) -> BreakerState:
        return self.past.workload(found).at(self.now_s)

    def shown(self, movable: Callable[[], Iterable[str]]) -> BreakerState:
        """Return whether anything may move at all; `movable` names where pods to move are."""
        if self.alarm is not None or self.past.cluster.until_s is not None:
            return self.cluster()
        states = {n: self.namespace(n) for n in (*self.past.namespaces, *self.stranded)}
        state = _of_all(states.values())
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
        """Return for what a move tries that begins now; empty if for nothing."""
        states = {
            TRYING: self.cluster(),
            TRYING_NAMESPACE: self.namespace(migration.namespace),
            TRYING_WORKLOAD: self.workload(workload_of(migration)),
        }
        return next((scope for scope in _TRIES if states[scope].half_open), "")

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
        """Yield why moves of a pod need not be planned while those of others may."""
        space, now_s = pod.namespace, self.now_s
        if stopped := blocks(self.namespace(space), now_s, another=False, namespace=space):
            yield stopped
        state = self.workload(workload_of_pod(pod, snapshot))
        if isolated := quarantine(state, now_s, another=False):
            yield isolated


def blocks(
    state: BreakerState, now_s: float, *, another: bool, namespace: str = ""
) -> Refusal | None:
    """Return why no move may begin; `another` tells that one is under way already."""
    where = f" in namespace {namespace}" if namespace else ""
    if state.half_open and another:
        words = f"{state.words}; one move at a time{where} tries whether it is well again"
        return Refusal("BreakerHalfOpen", words, for_good=False)
    if not state.open:
        return None
    words = f"nothing is moved{where}: {state.words}{_left(state, now_s)}"
    return Refusal("BreakerOpen", words, for_good=False)


def quarantine(state: BreakerState, now_s: float, *, another: bool) -> Refusal | None:
    """Return why no move of a workload may begin; `another` of it is under way already."""
    if state.half_open and another:
        words = f"{state.words}; one pod of its workload at a time tries whether it is well again"
        return Refusal("WorkloadQuarantined", words, for_good=False)
    if not state.open:
        return None
    words = f"its workload is not moved: {state.words}{_left(state, now_s)}"
    return Refusal("WorkloadQuarantined", words, for_good=False)


def _left(state: BreakerState, now_s: float) -> str:
    return f"; one may try in {state.until_s - now_s:.0f}s" if state.until_s is not None else ""
