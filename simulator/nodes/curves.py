# SPDX-License-Identifier: Apache-2.0
"""How usage changes over time: factors on the annotated usage of a pod.

A curve is one line, the value of an annotation:

    constant
    wave period=10m depth=50%
    spike after=2m for=30s times=3 every=10m
    leak per=1m by=10% until=300%

A measured rate is an average over its window, so every curve has an exact mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from common.config.durations import Duration


class CurveError(ValueError):
    """A text that is not a valid curve."""


class Curve(Protocol):
    """A factor over time, in seconds."""

    by_age: ClassVar[bool]
    """Time counts from the start of the pod; otherwise from the start of the cluster."""

    def at(self, moment_s: float) -> float:
        """Return the factor at a moment."""
        ...

    def mean(self, begin_s: float, end_s: float) -> float:
        """Return the average factor between two moments."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    by_age: ClassVar[bool] = False

    def at(self, moment_s: float) -> float:
        return 1.0

    def mean(self, begin_s: float, end_s: float) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class Wave:
    """Up and down, as with the time of day."""

    period_s: float
    depth: float
    phase: float = 0.0
    """Where in the period it begins, 0 to 1."""

    by_age: ClassVar[bool] = False

    def at(self, moment_s: float) -> float:
        return 1.0 + self.depth * math.sin(self._angle(moment_s))

    def mean(self, begin_s: float, end_s: float) -> float:
        if end_s <= begin_s:
            return self.at(end_s)
        first, last = self._angle(begin_s), self._angle(end_s)
        return 1.0 + self.depth * (math.cos(first) - math.cos(last)) / (last - first)

    def _angle(self, moment_s: float) -> float:
        return 2 * math.pi * (moment_s / self.period_s + self.phase)


@dataclass(frozen=True, slots=True)
class Spike:
    """A multiple for a while, once or periodically."""

    after_s: float
    for_s: float
    times: float
    every_s: float = 0.0

    by_age: ClassVar[bool] = True

    def at(self, moment_s: float) -> float:
        since = moment_s - self.after_s
        if self.every_s and since >= 0:
            since %= self.every_s
        return self.times if 0 <= since < self.for_s else 1.0

    def mean(self, begin_s: float, end_s: float) -> float:
        if end_s <= begin_s:
            return self.at(end_s)
        high_s = self._high_until(end_s) - self._high_until(begin_s)
        return 1.0 + (self.times - 1.0) * high_s / (end_s - begin_s)

    def _high_until(self, moment_s: float) -> float:
        since = max(0.0, moment_s - self.after_s)
        if not self.every_s:
            return min(since, self.for_s)
        rounds, rest = divmod(since, self.every_s)
        return rounds * min(self.for_s, self.every_s) + min(rest, self.for_s)


@dataclass(frozen=True, slots=True)
class Leak:
    """More and more, up to a limit."""

    per_s: float
    by: float
    until: float

    by_age: ClassVar[bool] = True

    def at(self, moment_s: float) -> float:
        return min(1.0 + self.by * max(0.0, moment_s) / self.per_s, self.until)

    def mean(self, begin_s: float, end_s: float) -> float:
        if end_s <= begin_s:
            return self.at(end_s)
        return (self._sum(end_s) - self._sum(begin_s)) / (end_s - begin_s)

    def _sum(self, moment_s: float) -> float:
        moment_s = max(0.0, moment_s)
        full_s = (self.until - 1.0) * self.per_s / self.by
        rising_s = min(moment_s, full_s)
        rising = rising_s + self.by * rising_s * rising_s / (2 * self.per_s)
        return rising + self.until * (moment_s - rising_s)


CONSTANT: Final = Constant()


def parse(text: str, *, phase: float = 0.0) -> Curve:
    """Return the curve that a text describes; `phase` shifts waves."""
    shape, *words = text.split()
    if shape not in _SHAPES:
        raise CurveError(f"{shape} is not a curve: use {', '.join(_SHAPES)}")
    needed, optional, make = _SHAPES[shape]
    values = dict(word.partition("=")[::2] for word in words)
    for key in values:
        if key not in needed + optional:
            raise CurveError(f"{shape} has no {key}: use {', '.join(needed + optional)}")
    missing = [key for key in needed if key not in values]
    if missing:
        raise CurveError(f"{shape} needs {', '.join(missing)}")
    return make({key: _number(key, value) for key, value in values.items()}, phase)


def _number(key: str, text: str) -> float:
    try:
        if key in _DURATIONS:
            value = Duration(text).seconds
        elif text.endswith("%"):
            value = float(text[:-1]) / 100
        else:
            value = float(text)
    except ValueError:
        raise CurveError(f"{key}={text} is not valid") from None
    if not 0 <= value < math.inf or (value == 0 and key in ("period", "per", "by")):
        raise CurveError(f"{key}={text} is out of range")
    return value


_Numbers = Mapping[str, float]
_DURATIONS: Final = frozenset({"period", "after", "for", "every", "per"})
_SHAPES: Final[
    Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[_Numbers, float], Curve]]]
] = {
    "constant": ((), (), lambda _, __: CONSTANT),
    "wave": (("period", "depth"), (), lambda n, phase: Wave(n["period"], n["depth"], phase)),
    "spike": (
        ("after", "for", "times"),
        ("every",),
        lambda n, _: Spike(n["after"], n["for"], n["times"], n.get("every", 0.0)),
    ),
    "leak": (("per", "by", "until"), (), lambda n, _: Leak(n["per"], n["by"], n["until"])),
}
