"""What the extenders' Leases say: who is alive, what each knows, which schedulers ask.

Whether an extender lives is judged by when we saw its Lease change, on our own clock: the
time that it writes comes from another machine, and a frozen watch must not look like a
living extender. A Lease that says something unreadable knows nothing: then we wait.

A first sight counts as a renewal. That errs on the safe side, for a dead extender cannot
have acknowledged a Migration that is younger than its last word.

An extender may live and no longer hear: its Lease is renewed, and what it knows stays behind.
That one is waited for only as long as news may take; then it is left out, by name. What its
scheduler places is not steered, so load moves of schedulers that ask it rest; others go on.

Whether one was asked about a certain pod is another question: an extender that could not
renew its Lease has been asked all the same. So the last word of each is remembered, also of
those that are gone, and only who was there before the pod and has spoken since it got its
node can say no.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.storage import LeaseRecord
from common.contract import EXTENDER_LEASE_PREFIX, FILTER_CALLS, LOAD_SETTINGS, SEEN_MIGRATIONS
from common.kube.timestamps import parse_time
from common.null_json import UNDECODABLE
from rebalancer.reasons import Refusal

LIVE_S: Final = 15.0
"""An extender whose renewal we have not seen for this long is not waited for."""
ENOUGH_SHOWN: Final = 0.95
"""Below this share of the nodes, targets are missed too often."""
DEAD_S: Final = 600.0
"""Whoever was silent for so long was asked by nobody; other extenders remove its Lease."""

DEAF_S: Final = 60.0
"""News reach an extender within a second; one that is so far behind does not hear."""

_REMEMBERED_S: Final = 3600.0
_DEAF: Final = f"is alive but has not heard of new Migrations for {DEAF_S:g} s: restart it"
_NO_EXTENDER: Final = Refusal(
    "NoExtender", "no extender is alive, so nobody would steer the replacement", for_good=False
)


class Asked(StrEnum):
    """Whether an extender was asked about a pod before it got its node."""

    YES = "yes"
    NO = "no"
    UNTOLD = "untold"
    """Who may have been asked has not spoken since, and still can."""
    NEVER_TOLD = "never told"
    """Nobody is left who could tell."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that got its node: the question is whether an extender was asked about it."""

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
    """How many of the nodes that fit it showed, from 0 to 1; None while nobody could tell."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One extender, as its Lease tells it."""

    name: str
    seen: int | None
    """The resourceVersion up to which it knows all Migrations; None if it does not say."""
    callers: Mapping[str, Caller]
    settings: str
    since_s: float
    """When its Lease was made, on the API server's clock."""
    told_s: float
    """When it wrote all this, on its own clock."""

    def called_since(self, scheduler: str, since_s: float) -> bool:
        """Tell whether a scheduler is known to have asked it since then."""
        found = self.callers.get(scheduler)
        return found is not None and found.last_s >= since_s


class ExtenderView(msgspec.Struct, frozen=True):
    """The living extenders at one moment."""

    live: tuple[Replica, ...] = ()
    """Those that hear of Migrations."""
    deaf: tuple[Replica, ...] = ()
    """Those that renew their Leases and have not heard of Migrations for `DEAF_S`."""

    def acknowledged(self, resource_version: int) -> Refusal | None:
        """Return who does not know a Migration yet; None if every living extender does."""
        if not self.live:
            return _NO_EXTENDER
        slowest = min(self.live, key=lambda replica: (_known(replica), replica.name))
        if _known(slowest) >= resource_version:
            return None
        known = f"knows Migrations up to {slowest.seen}" if slowest.seen else "knows none yet"
        words = f"extender {slowest.name} {known}, and this one is {resource_version}"
        return Refusal("NotAcknowledged", words, for_good=False)

    def guided(self, scheduler: str) -> float | None:
        """Return when the scheduler last asked any of them; None if it never did."""
        return max((found.last_s for found in self._callers(scheduler)), default=None)

    def share(self, scheduler: str) -> float | None:
        """Return how many of the nodes the scheduler shows; None if nobody can tell yet."""
        shares = [found.share for found in self._callers(scheduler) if found.share is not None]
        return max(shares, default=None)

    def differing(self, settings: str) -> tuple[str, ...]:
        """Return, in words, which extenders take something else for load than we do."""
        return tuple(
            f"extender {replica.name} has other load settings than the rebalancer: "
            "one may attract what the other moves away"
            for replica in self.live
            if replica.settings != settings
        )

    def left_out(self) -> tuple[str, ...]:
        """Return, in words, which extenders are not waited for."""
        return tuple(f"extender {replica.name} {_DEAF}" for replica in self.deaf)

    def asked_in_vain(self, scheduler: str, now_s: float) -> Replica | None:
        """Return the extender that the scheduler asks and that does not hear, if it does."""
        asked = [r for r in self.deaf if r.called_since(scheduler, now_s - DEAD_S)]
        last = max(asked, key=lambda r: r.callers[scheduler].last_s, default=None)
        heard_s = self.guided(scheduler)
        if last is None or heard_s is None:
            return last
        # Behind one address several may be asked in turn.
        return last if last.callers[scheduler].last_s > heard_s - DEAF_S else None

    def _callers(self, scheduler: str) -> list[Caller]:
        return [r.callers[scheduler] for r in self.live if scheduler in r.callers]


class Extenders:
    """Remembers the Leases and when each was seen to be renewed."""

    def __init__(self, clock: Clock) -> None:
        """Listen to Leases; those of one namespace only are read (`lease_reading`)."""
        self._clock = clock
        self._replicas: dict[str, Replica] = {}
        self._gone: dict[str, Replica] = {}
        self._renewed_s: dict[str, float] = {}
        self._advanced_s: dict[str, float] = {}
        self._news: deque[tuple[float, int]] = deque()
        self._old_news = 0
        """The version of the last Migration that everyone who hears knows by now."""

    def heard_of(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        """Take note of a Migration that came; a listener of the table."""
        if new is not None and (old is None or old.uid != new.uid):
            self._news.append((self._clock.monotonic(), new.resource_version))

    def told(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        """Take note of a Lease that came, changed or went; a listener of the table."""
        lease = new or old
        if lease is None or not lease.name.startswith(EXTENDER_LEASE_PREFIX):
            return
        if new is None:
            self._bury(lease)
            return
        before, found = self._replicas.get(new.key), _replica(new)
        self._replicas[new.key] = found
        if old is None or old.renewed_s != new.renewed_s:
            self._renewed_s[new.key] = self._clock.monotonic()
        if before is None or before.seen != found.seen:
            self._advanced_s[new.key] = self._clock.monotonic()
        if before is not None and _known(found) < _known(before) and found.seen is not None:
            # What an extender knows goes back only where etcd was restored from a backup, and
            # versions of before say nothing any more. No load move would make new ones.
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
        """Tell whether it is far behind; one that was seen first, or knew more, just now is not."""
        since_s = self._clock.monotonic() - DEAF_S
        while self._news and self._news[0][0] <= since_s:
            # The last, not the highest: versions begin again where etcd was restored.
            self._old_news = self._news.popleft()[1]
        behind = _known(self._replicas[key]) < self._old_news
        return behind and self._advanced_s[key] <= since_s

    def asked(self, binding: Binding) -> Asked:
        """Tell whether any of them was asked about a pod."""
        since_s = binding.created_s - binding.skew_s
        known = (*self._replicas.values(), *self._gone.values())
        if any(replica.called_since(binding.scheduler, since_s) for replica in known):
            return Asked.YES
        if any(_keeps_silent(replica, binding) for replica in self._replicas.values()):
            return Asked.UNTOLD
        told = any(_was_there(replica, binding) for replica in self._replicas.values())
        silent = any(_keeps_silent(replica, binding) for replica in self._gone.values())
        return Asked.NO if told and not silent else Asked.NEVER_TOLD

    def _bury(self, lease: LeaseRecord) -> None:
        """Remember the last word of one that is gone, as long as anybody may ask for it."""
        self._renewed_s.pop(lease.key, None)
        self._advanced_s.pop(lease.key, None)
        since_s = self._clock.now() - _REMEMBERED_S
        self._gone = {key: each for key, each in self._gone.items() if each.told_s >= since_s}
        if (found := self._replicas.pop(lease.key, None)) is not None:
            self._gone[lease.key] = found


class Guidance(msgspec.Struct, frozen=True, kw_only=True):
    """The question whether a replacement would be steered."""

    view: ExtenderView
    scheduler: str
    allow_sampling: bool
    now_s: float


def an_extender_is_alive(asked: Guidance) -> Refusal | None:
    return None if asked.view.live or asked.view.deaf else _NO_EXTENDER


def the_asked_extender_hears(asked: Guidance) -> Refusal | None:
    """What an extender does not know of it does not steer, and it may be the one that is asked."""
    found = asked.view.asked_in_vain(asked.scheduler, asked.now_s)
    if found is not None:
        words = f"{asked.scheduler} asks extender {found.name}, which {_DEAF}"
        return Refusal("DeafExtender", words, for_good=False)
    if asked.view.live or not asked.view.deaf:
        return None
    return Refusal("DeafExtender", "; ".join(asked.view.left_out()), for_good=False)


def enough_nodes_are_shown(asked: Guidance) -> Refusal | None:
    share = asked.view.share(asked.scheduler)
    if share is None or share >= ENOUGH_SHOWN or asked.allow_sampling:
        return None
    words = f"{sampling(asked.scheduler, share)}, and allowSampling is false"
    return Refusal("Sampling", words, for_good=False)


GUIDANCE: Final[tuple[Callable[[Guidance], Refusal | None], ...]] = (
    an_extender_is_alive,
    the_asked_extender_hears,
    enough_nodes_are_shown,
)
"""What moves for load need of the extenders; emptying a node needs nothing of them."""


def unsteered(asked: Guidance) -> Refusal | None:
    """Return why a replacement would not be steered reliably, if so."""
    return next((found for rule in GUIDANCE if (found := rule(asked)) is not None), None)


def sampling(scheduler: str, share: float) -> str:
    """Return in words what it means that a scheduler shows only a part of the nodes."""
    return (
        f"{scheduler} shows the extender {share:.0%} of the nodes, so about {share:.0%} of "
        "replacements can land on their target"
    )


def _was_there(replica: Replica, binding: Binding) -> bool:
    """Tell whether it may have been asked; who came later has nothing to tell."""
    came_first = replica.since_s <= binding.created_s
    return came_first and replica.told_s >= binding.bound_s - DEAD_S


def _keeps_silent(replica: Replica, binding: Binding) -> bool:
    told = replica.told_s >= binding.bound_s + binding.skew_s
    return _was_there(replica, binding) and not told


def _known(replica: Replica) -> int:
    return replica.seen if replica.seen is not None else -1


def _replica(lease: LeaseRecord) -> Replica:
    said = lease.annotations
    return Replica(
        name=lease.name.removeprefix(EXTENDER_LEASE_PREFIX),
        seen=_version(said.get(SEEN_MIGRATIONS, "")),
        callers=_callers(said.get(FILTER_CALLS, "")),
        settings=said.get(LOAD_SETTINGS, ""),
        since_s=lease.created_s or 0.0,
        told_s=lease.renewed_s or 0.0,
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
