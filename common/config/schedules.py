# SPDX-License-Identifier: Apache-2.0
"""Windows of time: when moves may begin.

A window opens at each hit of a cron expression, read in its time zone, and stays open for its
duration, which is time that passes: a window of eight hours is open for eight hours even in a
night in which clocks change. A schedule is a list of windows and is open while one of them is;
an empty one is always open.

Clocks that change follow what cron of Debian does. A fixed time that clocks skip counts when
they have skipped it, and one that they pass twice counts once. With a `*` in the minutes or the
hours hits follow the clock on the wall: what it skips is no hit, and what it shows twice is two.

Pure: moments are seconds of Unix time that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import floor
from typing import Final, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim
from pydantic import Field, model_validator

from common.config.values import Cron, Settings, TimeZone, Wait, broken_rule

_SHIFT: Final = timedelta(hours=2)
"""No clock of today is changed by more at once."""
_FIELDS: Final = ("minute", "hour")


class Window(Settings):
    """When moves may begin: for a while after each hit of a cron expression."""

    schedule: Cron = Field(
        description="When the window opens: five fields as in cron, for example `0 22 * * *`."
    )
    duration: Wait = Field(description="For how long it stays open.")
    time_zone: TimeZone = Field(
        default="UTC", description="The time zone of `schedule`, for example `Europe/Berlin`."
    )

    @model_validator(mode="after")
    def _opens(self) -> Self:
        if next(_local_hits(self.schedule, datetime(2000, 1, 1)), None) is None:
            raise broken_rule(f"{self.schedule} never comes", "schedule")
        return self

    def __str__(self) -> str:
        return f"{self.schedule} for {self.duration} in {self.time_zone}"

    def is_open(self, now_s: float) -> bool:
        """Tell whether a hit is less than the duration ago."""
        first = self._hit_after(now_s - self.duration.seconds)
        return first is not None and first <= now_s

    def opens_s(self, now_s: float) -> float | None:
        """Return the next hit after a moment."""
        return self._hit_after(now_s)

    def _hit_after(self, at_s: float) -> float | None:
        # Hits are whole seconds, so rules that are asked within one share the answer.
        return _hit_after(self.schedule, self.time_zone, floor(at_s))


Schedule = tuple[Window, ...]


class Opening(tuple[Window, float]):
    """The window of a closed schedule that opens first, and when that is."""

    __slots__ = ()

    def __str__(self) -> str:
        window, at_s = self
        shown = datetime.fromtimestamp(at_s, ZoneInfo(window.time_zone))
        return f"{shown:%Y-%m-%d %H:%M} {window.time_zone}"


def next_opening(schedule: Sequence[Window], now_s: float) -> Opening | None:
    """Return what a closed schedule waits for; None if it is open."""
    if not schedule or any(window.is_open(now_s) for window in schedule):
        return None
    found = [(at_s, n) for n, w in enumerate(schedule) if (at_s := w.opens_s(now_s)) is not None]
    # A window is refused at the start if it never opens, so the rarest one has a next hit too.
    at_s, first = min(found, default=(now_s + schedule[0].duration, 0))
    return Opening((schedule[first], at_s))


@lru_cache(maxsize=256)
def _hit_after(expression: str, zone: str, at_s: float) -> float | None:
    """Return the first hit after a moment; windows of many rules ask the same."""
    clock = ZoneInfo(zone)
    begin = datetime.fromtimestamp(at_s, clock).replace(tzinfo=None, fold=0) - _SHIFT
    fixed = not any(field.startswith("*") for field in expression.split()[: len(_FIELDS)])
    best: datetime | None = None
    for local in _local_hits(expression, begin):
        # Hits of the clock on the wall are not quite in the order of time while it is changed.
        if best is not None and local - _SHIFT > best.astimezone(clock).replace(tzinfo=None):
            break
        later = (m for m in _moments(local, clock, fixed=fixed) if m.timestamp() > at_s)
        best = min((m for m in (best, *later) if m is not None), default=None)
    return None if best is None else best.timestamp()


def _local_hits(expression: str, after: datetime) -> Iterator[datetime]:
    """Yield what the clock on the wall shows at hits, as if it were never changed."""
    # With whole seconds as the start, a hit at the start itself would be left out.
    hits: Iterable[datetime] = CronSim(expression, after - timedelta(seconds=1))
    yield from hits


def _moments(local: datetime, clock: ZoneInfo, *, fixed: bool) -> Iterator[datetime]:
    """Yield when the clock shows a time: once, twice, or not at all."""
    first, second = (local.replace(tzinfo=clock, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first == second:
        yield first
    elif first < second:
        yield first
        if not fixed:
            yield second
    elif fixed:
        yield _change(second, first, clock)


def _change(before: datetime, after: datetime, clock: ZoneInfo) -> datetime:
    """Return the second in which the clock is changed, between two moments."""
    old = before.astimezone(clock).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        if middle.astimezone(clock).utcoffset() == old:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)
