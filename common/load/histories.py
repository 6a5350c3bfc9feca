# SPDX-License-Identifier: Apache-2.0
"""The histories of all pods, in columns, by the rows of a roster.

What a round adds to 150,000 histories is computed column by column, and gives the same to the
bit as `common.usage.history` does for each pod; for everyone who asks for one pod this is a
mapping of its uid to a `PodHistory`. It never changes: views of different times keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp
from typing import Final, NamedTuple

import numpy as np

from common.cluster.records import PodUid
from common.load.roster import ABSENT, Figures, Mask, Roster, Rows
from common.usage.history import STEP, PodHistory


class Columns(NamedTuple):
    """The fields of `PodHistory`, one row per pod; `end_s` is NaN where there is no history."""

    cpu_milli: Figures
    mem_bytes: Figures
    cpu_last_milli: Figures
    mem_last_bytes: Figures
    end_s: Figures


class Measured(NamedTuple):
    """What a round says about each pod of a roster."""

    taken: Mask
    """Which samples are possible and cover their pod; the figures of others mean nothing."""
    cpu_milli: Figures
    mem_bytes: Figures
    end_s: Figures


class Histories(Mapping[PodUid, PodHistory]):
    """The histories of the pods of a roster."""

    __slots__ = ("_columns", "_rows", "_views")

    def __init__(self, rows: Mapping[PodUid, int], columns: Columns) -> None:
        self._rows: Final = rows
        self._columns: Final = columns
        # Items of a memoryview are floats already; those of an array have to be converted.
        self._views: Final = tuple(column.data for column in columns)

    def __getitem__(self, uid: PodUid) -> PodHistory:
        row = self._rows[uid]
        cpu, mem, cpu_last, mem_last, end = self._views
        end_s = end[row]
        if end_s != end_s:  # NaN: no history
            raise KeyError(uid)
        return PodHistory(cpu[row], mem[row], cpu_last[row], mem_last[row], end_s)

    def __iter__(self) -> Iterator[PodUid]:
        return (uid for uid in self._rows if uid in self)

    def __len__(self) -> int:
        return int(np.count_nonzero(~np.isnan(self._columns.end_s)))

    def before(self, rows: Rows | None, latest_s: float) -> Columns:
        """Return what is known about the pods of a roster.

        `rows` are those of its pods here, None if they are the same. A history that ends in
        the future is forgotten: our clock was set back (see `LoadTracker`).
        """
        found = self._columns if rows is None else _take(self._columns, rows)
        end_s = np.where(found.end_s > latest_s, np.nan, found.end_s)
        return found._replace(end_s=end_s)

    def newest(self) -> Figures:
        """[resource, pod] the last sample of each pod; NaN where there is none."""
        columns = self._columns
        found = np.stack((columns.cpu_last_milli, columns.mem_last_bytes))
        found[:, np.isnan(columns.end_s)] = np.nan
        return found

    def rows_of(self, roster: Roster) -> Mapping[PodUid, int] | None:
        """Return the index in which to find the pods of a roster; None if it is the same."""
        return None if roster.rows is self._rows else self._rows


def _take(columns: Columns, rows: Rows) -> Columns:
    if not columns.end_s.size:
        return Columns(*(np.full(rows.size, np.nan) for _ in columns))
    taken = Columns(*(column.take(rows, mode="wrap") for column in columns))
    return taken._replace(end_s=np.where(rows == ABSENT, np.nan, taken.end_s))


def no_histories() -> Histories:
    """Return the histories of no pods."""
    return Histories({}, Columns(*(np.empty(0) for _ in Columns._fields)))


def followed(
    old: Columns, measured: Measured, roster: Roster, smoothing_s: float
) -> tuple[Histories, Mask]:
    """Return the histories with one more round, and for which pods it said anything new."""
    first = measured.taken & np.isnan(old.end_s)
    again = measured.taken & (measured.end_s > old.end_s)  # no comparison holds for NaN
    with np.errstate(invalid="ignore", over="ignore"):  # in figures that are not taken
        weight = _weights(measured.end_s - old.end_s, again, smoothing_s)
        cpu = _smoothed(old.cpu_milli, old.cpu_last_milli, measured.cpu_milli, weight)
        mem = _smoothed(old.mem_bytes, old.mem_last_bytes, measured.mem_bytes, weight)
    new = Columns(cpu, mem, measured.cpu_milli, measured.mem_bytes, measured.end_s)
    start = Columns(
        measured.cpu_milli, measured.mem_bytes,
        measured.cpu_milli, measured.mem_bytes, measured.end_s,
    )  # fmt: skip
    columns = (
        np.where(again, later, np.where(first, begun, before))
        for later, begun, before in zip(new, start, old, strict=True)
    )
    return Histories(roster.rows, Columns(*columns)), first | again


def _weights(elapsed_s: Figures, of: Mask, smoothing_s: float) -> Figures:
    """Return the weight of each new sample, as `history.follow` computes it.

    numpy's own exponential differs in the last bit. Samples of one round are a few distinct
    times apart, so each of them is computed once.
    """
    weight = np.zeros(elapsed_s.size)
    times, places = np.unique(elapsed_s[of], return_inverse=True)
    found = np.array([1.0 - exp(-elapsed / smoothing_s) for elapsed in times.tolist()])
    weight[of] = found[places] if times.size else 0.0
    return weight


def _smoothed(before: Figures, last: Figures, new: Figures, weight: Figures) -> Figures:
    off = STEP * before
    above = (last > before + off) & (new > before + off)
    below = (last < before - off) & (new < before - off)
    return np.where(above | below, (last + new) / 2.0, before + weight * (new - before))
