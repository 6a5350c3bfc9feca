# SPDX-License-Identifier: Apache-2.0
"""What the Leases of extenders say: which live, what each knows, which schedulers call them.

Whether an extender lives is judged by when we saw its Lease change, on our own clock: the time
that it writes comes from another machine, and a stalled watch must not look like a live
extender. A Lease that cannot be read knows nothing, so moves wait.

The first sight of a Lease counts as a renewal, which is safe: a dead extender cannot have
acknowledged a Migration that is younger than its last renewal. A live one may miss Migrations:
its Lease is renewed, and what it knows stays behind. Moves wait for it only as long as news may
take; then it is left out, by name. Its replacements are not steered, so moves for load of
schedulers that call it stop; others go on.

Whether an extender was asked about a certain pod is another question: one that could not renew
its Lease was asked all the same. So the last report of each is remembered, also of those that
are gone. Only an extender that was there before the pod and has reported since the pod got its
node can answer no.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from common.api.contract import EXTENDER_LEASE_PREFIX, FILTER_CALLS, LOAD_SETTINGS, SEEN_MIGRATIONS
from common.cache.state import ClusterState
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.storage import LeaseRecord
from common.kube.timestamps import parse_time
from common.null_json import UNDECODABLE
from rebalancer.refusals import Reason, Refusal

LIVE_S: Final = 15.0
"""Moves do not wait for an extender whose renewal was not seen for this long."""
# kube-scheduler stops searching for nodes once it has found enough of them, so an extender may
# never see the target (numFeasibleNodesToFind in pkg/scheduler/schedule_one.go).
ENOUGH_SHOWN: Final = 0.95
"""With a smaller share of the nodes, targets are missed too often."""
DEAD_S: Final = 600.0
"""No scheduler calls an extender that was silent for this long; others remove its Lease."""

DEAF_S: Final = 60.0
"""A new Migration reaches an extender within a second; one that is this far behind misses it."""

_REMEMBERED_S: Final = 3600.0
_DEAF: Final = f"is alive but has missed new Migrations for {DEAF_S:g} s: restart it"


class Asked(StrEnum):
    """Whether an extender was asked about a pod before it got its node."""

    YES = "yes"
    NO = "no"
    PENDING = "pending"
    """An extender that may have been asked has not reported since, and still can."""
    UNKNOWN = "unknown"
    """No extender is left that could report it."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that got its node; the question is whether an extender was asked about it."""

    scheduler: str
    created_s: float
    bound_s: float
    skew_s: float
    """How far the clocks of extenders may differ from the API server's."""


class Caller(msgspec.Struct, frozen=True):
    """What a scheduler asked of one extender."""

    last_s: float
    """When it last asked, on that extender's clock."""
    share: float | None
    """The share of the fitting nodes that it showed, from 0 to 1; None while that is unknown."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One extender, as its Lease describes it."""

    name: str
    seen: int | None
    """The resourceVersion up to which it knows all Migrations; None if the Lease has none."""
    callers: Mapping[str, Caller]
    settings: str
    since_s: float
    """When its Lease was made, on the API server's clock."""
    reported_s: float
    """When it last reported, on its own clock."""

    def called_since(self, scheduler: str, since_s: float) -> bool:
        """Tell whether a scheduler is known to have asked it since then."""
        found = self.callers.get(scheduler)
        return found is not None and found.last_s >= since_s


class ExtenderView(msgspec.Struct, frozen=True):
    """The living extenders at one moment."""

    live: tuple[Replica, ...] = ()
    """Those that keep up with Migrations."""
    deaf: tuple[Replica, ...] = ()
    """Those that renew their Leases and have missed Migrations for `DEAF_S`."""

    def acknowledged(self, resource_version: int) -> Refusal | None:
        """Return which extender does not know a Migration yet; None if every live one does."""
        if not self.live:
            return Reason.NO_EXTENDER.refusal()
        slowest = min(self.live, key=lambda replica: (_known(replica), replica.name))
        if _known(slowest) >= resource_version:
            return None
        name, version = slowest.name, resource_version
        if not slowest.seen:
            return Reason.NOT_ACKNOWLEDGED.refusal("none", extender=name, version=version)
        return Reason.NOT_ACKNOWLEDGED.refusal(extender=name, seen=slowest.seen, version=version)

    def guided(self, scheduler: str) -> float | None:
        """Return when the scheduler last asked any of them; None if it never did."""
        return max((found.last_s for found in self._callers(scheduler)), default=None)

    def share(self, scheduler: str) -> float | None:
        """Return the share of the nodes that the scheduler shows; None while it is unknown."""
        shares = [found.share for found in self._callers(scheduler) if found.share is not None]
        return max(shares, default=None)

    def differing(self, settings: str) -> tuple[str, ...]:
        """Return a text about each extender whose load settings differ from ours."""
        return tuple(
            f"extender {replica.name} has other load settings than the rebalancer: "
            "one may attract what the other moves away"
            for replica in self.live
            if replica.settings != settings
        )

    def left_out(self) -> tuple[str, ...]:
        """Return a text about each extender that moves do not wait for."""
        return tuple(f"extender {replica.name} {_DEAF}" for replica in self.deaf)

    def deaf_one_called_by(self, scheduler: str, now_s: float) -> Replica | None:
        """Return the extender that the scheduler calls although it misses Migrations."""
        asked = [r for r in self.deaf if r.called_since(scheduler, now_s - DEAD_S)]
        last = max(asked, key=lambda r: r.callers[scheduler].last_s, default=None)
        answered_s = self.guided(scheduler)
        if last is None or answered_s is None:
            return last
        # Behind one Service address several extenders may be called in turn.
        return last if last.callers[scheduler].last_s > answered_s - DEAF_S else None

    def _callers(self, scheduler: str) -> list[Caller]:
        return [r.callers[scheduler] for r in self.live if scheduler in r.callers]


class Extenders:
    """Remembers the Leases, and when each was seen to be renewed."""

    def __init__(self, clock: Clock) -> None:
        """Listen to Leases; those of one namespace only are read (`lease_kind`)."""
        self._clock = clock
        self._replicas: dict[str, Replica] = {}
        self._gone: dict[str, Replica] = {}
        self._renewed_s: dict[str, float] = {}
        self._advanced_s: dict[str, float] = {}
        self._news: deque[tuple[float, int]] = deque()
        self._old_news = 0
        """The version of the last Migration that every extender should know by now."""

    def follow(self, state: ClusterState) -> None:
        """Take in what the state knows, and listen to what changes."""
        snapshot = state.snapshot()
        for lease in snapshot.leases.values():
            self.on_lease(None, lease)
        state.leases.listen(self.on_lease)
        for known in snapshot.migrations.values():
            self.on_migration(None, known)
        state.migrations.listen(self.on_migration)

    def on_migration(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        """Remember a new Migration; a listener of the table."""
        if new is not None and (old is None or old.uid != new.uid):
            self._news.append((self._clock.monotonic(), new.resource_version))

    def on_lease(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        """Remember a Lease that was added, changed or deleted; a listener of the table."""
        lease = new or old
        if lease is None or not lease.name.startswith(EXTENDER_LEASE_PREFIX):
            return
        if new is None:
            self._remember_gone(lease)
            return
        before, found = self._replicas.get(new.key), replica_of(new)
        self._replicas[new.key] = found
        if old is None or old.renewed_s != new.renewed_s:
            self._renewed_s[new.key] = self._clock.monotonic()
        if before is None or before.seen != found.seen:
            self._advanced_s[new.key] = self._clock.monotonic()
        if before is not None and _known(found) < _known(before) and found.seen is not None:
            # The version goes back only where etcd was restored from a backup, and then earlier
            # versions mean nothing. No move for load would create new ones.
            self._news.clear()
            self._old_news = 0

    def view(self) -> ExtenderView:
        """Return who is alive now."""
        since_s = self._clock.monotonic() - LIVE_S
        living = [key for key in self._replicas if self._renewed_s[key] >= since_s]
        deaf = {key for key in living if self._is_deaf(key)}
        return ExtenderView(self._named(set(living) - deaf), self._named(deaf))

    def _named(self, keys: set[str]) -> tuple[Replica, ...]:
        return tuple(sorted((self._replicas[key] for key in keys), key=lambda each: each.name))

    def _is_deaf(self, key: str) -> bool:
        """Tell whether it is far behind; one that was first seen or caught up just now is not."""
        since_s = self._clock.monotonic() - DEAF_S
        while self._news and self._news[0][0] <= since_s:
            # The last, not the highest: versions start over where etcd was restored.
            self._old_news = self._news.popleft()[1]
        behind = _known(self._replicas[key]) < self._old_news
        return behind and self._advanced_s[key] <= since_s

    def asked(self, binding: Binding) -> Asked:
        """Tell whether any of them was asked about a pod."""
        since_s = binding.created_s - binding.skew_s
        known = (*self._replicas.values(), *self._gone.values())
        if any(replica.called_since(binding.scheduler, since_s) for replica in known):
            return Asked.YES
        if any(_is_silent(replica, binding) for replica in self._replicas.values()):
            return Asked.PENDING
        reported = any(_was_there(replica, binding) for replica in self._replicas.values())
        silent = any(_is_silent(replica, binding) for replica in self._gone.values())
        return Asked.NO if reported and not silent else Asked.UNKNOWN

    def _remember_gone(self, lease: LeaseRecord) -> None:
        """Remember the last report of an extender that is gone, as long as it may be needed."""
        self._renewed_s.pop(lease.key, None)
        self._advanced_s.pop(lease.key, None)
        since_s = self._clock.now() - _REMEMBERED_S
        self._gone = {key: each for key, each in self._gone.items() if each.reported_s >= since_s}
        if (found := self._replicas.pop(lease.key, None)) is not None:
            self._gone[lease.key] = found


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a replacement would be steered."""

    view: ExtenderView
    scheduler: str
    allow_sampling: bool
    now_s: float


def extender_is_alive(asked: Guidance) -> Refusal | None:
    return None if asked.view.live or asked.view.deaf else Reason.NO_EXTENDER.refusal()


def called_extender_keeps_up(asked: Guidance) -> Refusal | None:
    """An extender does not steer what it does not know, and it may be the one that is called."""
    found = asked.view.deaf_one_called_by(asked.scheduler, asked.now_s)
    if found is not None:
        cause = f"{asked.scheduler} calls extender {found.name}, which {_DEAF}"
        return Reason.DEAF_EXTENDER.refusal(cause=cause)
    if asked.view.live or not asked.view.deaf:
        return None
    return Reason.DEAF_EXTENDER.refusal(cause="; ".join(asked.view.left_out()))


def enough_nodes_are_shown(asked: Guidance) -> Refusal | None:
    share = asked.view.share(asked.scheduler)
    if share is None or share >= ENOUGH_SHOWN or asked.allow_sampling:
        return None
    return Reason.SAMPLING.refusal(cause=sampling(asked.scheduler, share))


GUIDANCE: Final[tuple[Callable[[Guidance], Refusal | None], ...]] = (
    extender_is_alive,
    called_extender_keeps_up,
    enough_nodes_are_shown,
)
"""What moves for load need of the extenders; draining a node needs nothing of them."""


def unsteered(asked: Guidance) -> Refusal | None:
    """Return why a replacement would not be steered reliably, if so."""
    return next((found for rule in GUIDANCE if (found := rule(asked)) is not None), None)


def sampling(scheduler: str, share: float) -> str:
    """Return what it means that a scheduler shows only a part of the nodes."""
    return (
        f"{scheduler} shows the extender {share:.0%} of the nodes, so about {share:.0%} of "
        "replacements can land on their target"
    )


def _was_there(replica: Replica, binding: Binding) -> bool:
    """Tell whether an extender may have been asked; one that started later was not."""
    came_first = replica.since_s <= binding.created_s
    return came_first and replica.reported_s >= binding.bound_s - DEAD_S


def _is_silent(replica: Replica, binding: Binding) -> bool:
    reported = replica.reported_s >= binding.bound_s + binding.skew_s
    return _was_there(replica, binding) and not reported


def _known(replica: Replica) -> int:
    return replica.seen if replica.seen is not None else -1


def replica_of(lease: LeaseRecord) -> Replica:
    """Return an extender as its Lease describes it."""
    annotations = lease.annotations
    return Replica(
        name=lease.name.removeprefix(EXTENDER_LEASE_PREFIX),
        seen=_version(annotations.get(SEEN_MIGRATIONS, "")),
        callers=_callers(annotations.get(FILTER_CALLS, "")),
        settings=annotations.get(LOAD_SETTINGS, ""),
        since_s=lease.created_s or 0.0,
        reported_s=lease.renewed_s or 0.0,
    )


_DIGITS: Final = 20
"""Of a resourceVersion, which is an unsigned number of 64 bits."""


def _version(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


class _Call(msgspec.Struct):
    last: str = ""
    share: float | None = None


_CALLS: Final = msgspec.json.Decoder(dict[str, _Call])


def _callers(text: str) -> Mapping[str, Caller]:
    try:
        found = _CALLS.decode(text)
        return {name: Caller(parse_time(call.last), call.share) for name, call in found.items()}
    except UNDECODABLE:
        return {}
