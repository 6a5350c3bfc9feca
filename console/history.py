# SPDX-License-Identifier: Apache-2.0
"""The last two hours of load, in memory.

Everything is kept at first; what is older than ten minutes is thinned out, so that a cluster that
is measured every second keeps no more than a thousand moments. One moment takes four bytes a
node: 20 MB at 5,000 nodes at the most. A restart starts empty, and the page says since when it
knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from console.data import Document, LoadMoment

KEPT_S: Final = 7200.0
RECENT_S: Final = 600.0
APART_S: Final = 30.0
"""Between two moments that are older than `RECENT_S`."""
MOST: Final = 1000
_UNKNOWN: Final = -1
_TENTHS: Final = 10.0
_HIGHEST: Final = 32_000
"""3,200 %: more is shown as that."""


class Curve(Document, frozen=True, kw_only=True):
    """Highest, mean and lowest of all nodes over time, in percent; None where none is known."""

    highest: tuple[float | None, ...]
    mean: tuple[float | None, ...]
    lowest: tuple[float | None, ...]


class ClusterHistory(Document, frozen=True, kw_only=True):
    """The past of the cluster."""

    since_s: float | None
    """Since when this process knows anything; None before the first sample."""
    kept_s: float
    times: tuple[float, ...]
    cpu: Curve
    memory: Curve


class NodeHistory(Document, frozen=True, kw_only=True):
    """The past of one node."""

    since_s: float | None
    kept_s: float
    times: tuple[float, ...]
    cpu: tuple[float | None, ...]
    memory: tuple[float | None, ...]


class _Moment(msgspec.Struct, frozen=True):
    at_s: float
    names: tuple[str, ...]
    """One tuple for all moments between which no node came or went."""
    levels: NDArray[np.int16]
    """CPU and memory, a row each, in tenths of a percent."""
    ends: tuple[tuple[float | None, ...], ...]
    """Highest, mean and lowest, of CPU and of memory."""


class History:
    """Remembers load; one writer."""

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()
        self.since_s: float | None = None

    def record(self, moment: LoadMoment) -> None:
        """Remember how loaded nodes are; a moment that is known already is not kept twice."""
        at_s, names = moment.at_s, moment.names
        if self._moments and at_s <= self._moments[-1].at_s:
            return
        levels = np.array([_tenths(moment.cpu), _tenths(moment.memory)], dtype=np.int16)
        if self._moments and self._moments[-1].names == names:
            names = self._moments[-1].names
        ends = (_ends(levels[0]), _ends(levels[1]))
        self._moments.append(_Moment(at_s, names, levels, ends))
        self.since_s = at_s if self.since_s is None else self.since_s
        self._thin_out(at_s)

    def cluster(self) -> ClusterHistory:
        """Return the curves of the whole cluster."""
        found = list(self._moments)
        return ClusterHistory(
            since_s=self.since_s,
            kept_s=KEPT_S,
            times=tuple(moment.at_s for moment in found),
            cpu=_curve([moment.ends[0] for moment in found]),
            memory=_curve([moment.ends[1] for moment in found]),
        )

    def node(self, name: str) -> NodeHistory:
        """Return the curves of a node; moments at which it was not there are left out."""
        places: dict[int, int] = {}
        found: list[tuple[float, float | None, float | None]] = []
        for moment in self._moments:
            place = places.setdefault(id(moment.names), _place(moment.names, name))
            if place >= 0:
                cpu, memory = moment.levels[:, place].tolist()
                found.append((moment.at_s, _percent(cpu), _percent(memory)))
        return NodeHistory(
            since_s=self.since_s,
            kept_s=KEPT_S,
            times=tuple(each[0] for each in found),
            cpu=tuple(each[1] for each in found),
            memory=tuple(each[2] for each in found),
        )

    def _thin_out(self, now_s: float) -> None:
        while self._moments and now_s - self._moments[0].at_s > KEPT_S:
            self._moments.popleft()
        if len(self._moments) <= MOST:
            return
        kept: deque[_Moment] = deque()
        for moment in self._moments:
            recent = now_s - moment.at_s <= RECENT_S
            if recent or not kept or moment.at_s - kept[-1].at_s >= APART_S:
                kept.append(moment)
        while len(kept) > MOST:
            kept.popleft()
        self._moments = kept


def _tenths(levels: Sequence[float | None]) -> list[int]:
    return [
        _UNKNOWN if percent is None else min(_HIGHEST, round(percent * _TENTHS))
        for percent in levels
    ]


def _percent(tenths: int) -> float | None:
    return None if tenths < 0 else tenths / _TENTHS


def _place(names: tuple[str, ...], name: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        return -1


def _ends(levels: NDArray[np.int16]) -> tuple[float | None, ...]:
    known = levels[levels >= 0]
    if not known.size:
        return (None, None, None)
    found = (float(known.max()), float(known.mean()), float(known.min()))
    return tuple(round(each / _TENTHS, 1) for each in found)


def _curve(ends: Sequence[tuple[float | None, ...]]) -> Curve:
    highest, mean, lowest = zip(*ends, strict=True) if ends else ((), (), ())
    return Curve(highest=highest, mean=mean, lowest=lowest)
