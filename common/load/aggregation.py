# SPDX-License-Identifier: Apache-2.0
"""What the pods that are on a node now have used over a while.

A node's own past says nothing once its pods have moved: a node that was relieved would look
hot for as long as the window reaches back, and be relieved again. So the past is kept by pod.
A node's figure over a window is made of the pods that it has now, each with what it used at the
time, wherever that was, and of what pods do not explain. A pod that has left takes its past
along at once; one that has just come counts with what it uses now until it has a past.

Time is cut into at most `MOST_SLOTS` slots, each with the mean of its samples, so that memory
does not depend on how often usage is read. Every figure is a weighting of slots: the mean
weights all alike, a percentile the one or two that it falls on. The same weights say how much
of the figure is due to each pod, so what a plan takes off a node is what its figure loses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, floor
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from common.cluster.records import PodRecord, PodUid
from common.config import Aggregation, Aggregations
from common.load.freshness import uses_until_s
from common.load.roster import ABSENT, Figures, Mask, Roster, Rows
from common.load.values import Load

MOST_SLOTS: Final = 30
SHORTEST_SLOT_S: Final = 10.0
_NEVER: Final = -1
_RESOURCES: Final = 2
"""CPU and memory, the first axis of all arrays."""

Slots = npt.NDArray[np.float32]
"""[resource, slot, pod or node]; NaN where nothing was measured."""


class Shares(NamedTuple):
    """How much of its node's figure is due to each pod."""

    row_of: Mapping[PodUid, int]
    first: int
    loads: Figures
    """[resource, pod], from the row `first` on."""

    def of(self, uid: PodUid) -> Load | None:
        """Return the share of a pod; None if it has none."""
        row = self.row_of.get(uid, ABSENT) - self.first
        if not 0 <= row < self.loads.shape[1]:
            return None
        cpu_milli, mem_bytes = self.loads[:, row].tolist()
        return Load(cpu_milli, mem_bytes) if cpu_milli == cpu_milli else None


class Shifts(NamedTuple):
    """By how much a node's figures differ from what it uses now."""

    ceilings: Load
    targets: Load
    shares: Shares


class Present(NamedTuple):
    """What a node is now, for its figures to be measured against."""

    pods: Mapping[PodUid, PodRecord]
    base: Load
    """What it uses now without the pods that have no past yet."""
    leaving: Load
    """What of that terminating pods use."""
    left_out: Collection[PodUid] = ()
    """The terminating pods: goals are judged without them."""


class _Summary(NamedTuple):
    """The figures of all nodes as they were observed."""

    base: Figures
    ceilings: Figures
    targets: Figures
    shares: Figures


class Past:
    """What all pods used, by slot; changed by each round of samples."""

    def __init__(self, settings: Aggregations) -> None:
        wanted = [each for each in (settings.ceilings, settings.targets) if not each.is_last]
        longest_s = max(each.window.seconds for each in wanted)
        self._settings = settings
        self._slot_s = max(SHORTEST_SLOT_S, longest_s / MOST_SLOTS)
        self._numbers = np.full(ceil(longest_s / self._slot_s), _NEVER, np.int64)
        """Which slot of all time each place holds."""
        self._current = _NEVER
        self._pods = self._empty(0)
        self._pod_counts = np.zeros(0, np.float32)
        """Samples in the current slot."""
        self._residuals = self._empty(0)
        self._residual_counts = np.zeros(0, np.float32)
        self._nodes: dict[str, int] = {}
        self._roster: Roster | None = None
        self._blocks: Sequence[Mapping[PodUid, PodRecord]] = ()
        self._ends: Sequence[int] = ()
        self._last: Figures = np.empty((_RESOURCES, 0))
        self._summary: _Summary | None = None

    def take_pods(
        self, rows: Rows | None, roster: Roster, news: Mask, newest: Figures, now_s: float
    ) -> None:
        """Add a round of samples of pods; `rows` are the old ones of a roster's pods.

        `newest` [resource, pod] is the last sample of each pod, of this round or before, NaN
        where there is none; `news` says which are of this round.
        """
        if rows is not None:
            self._pods = _rearranged(self._pods, rows)
            self._pod_counts = _rearranged(self._pod_counts, rows)
        self._open(now_s)
        if roster is not self._roster:
            self._blocks = [block.pods for block in roster.blocks.values()]
            self._ends = roster.ends()
        self._roster = roster
        self._last = newest
        _average(self._pods[:, self._place], self._pod_counts, news, newest)

    def take_nodes(
        self,
        uids: Sequence[str],
        news: Sequence[bool],
        residuals: Sequence[Load | None],
        bases: Sequence[Load | None],
        now_s: float,
    ) -> None:
        """Add what pods do not explain of the nodes' samples, and summarize all nodes.

        Residuals and `bases`, the samples themselves, are None where that cannot be told.
        """
        if list(self._nodes) != list(uids):
            rows = np.array([self._nodes.get(uid, ABSENT) for uid in uids], np.intp)
            self._residuals = _rearranged(self._residuals, rows)
            self._residual_counts = _rearranged(self._residual_counts, rows)
            self._nodes = {uid: row for row, uid in enumerate(uids)}
        found = _columns(residuals)
        told = np.array(news, np.bool_) & ~np.isnan(found[0])
        _average(self._residuals[:, self._place], self._residual_counts, told, found)
        self._summarize(_columns(bases), now_s)

    def shifts(self, uid: str, present: Present, now_s: float) -> Shifts | None:
        """Return by how much the figures of a node differ from now; None without a past."""
        roster, row = self._roster, self._nodes.get(uid)
        if roster is None or row is None:
            return None
        found = self._summarized(roster, row, present)
        return found or self._judged(roster, row, present, now_s)

    def _summarized(self, roster: Roster, row: int, present: Present) -> Shifts | None:
        """Return what was computed for all nodes at once, if this node is still the same."""
        summary = self._summary
        if summary is None or present.left_out or self._blocks[row] is not present.pods:
            return None
        if present.base != _load(summary.base[:, row]):
            return None
        end = self._ends[row]
        first = end - len(present.pods)
        shares = Shares(roster.rows, first, summary.shares[:, first:end])
        return Shifts(_load(summary.ceilings[:, row]), _load(summary.targets[:, row]), shares)

    def _judged(self, roster: Roster, row: int, present: Present, now_s: float) -> Shifts:
        """Return the same for the pods that a node has now."""
        known = [
            (uid, place)
            for uid, pod in present.pods.items()
            if (place := roster.rows.get(uid)) is not None and uses_until_s(pod) >= now_s
        ]
        staying = [(uid, place) for uid, place in known if uid not in present.left_out]
        base = np.array([[present.base.cpu_milli], [present.base.mem_bytes]])
        gone = np.array([[present.leaving.cpu_milli], [present.leaving.mem_bytes]])
        ceilings, weights = self._one(staying, row, base - gone, self._settings.ceilings)
        targets, _ = self._one(known, row, base, self._settings.targets)
        index = {uid: number for number, (uid, _) in enumerate(staying)}
        return Shifts(_load(ceilings[:, 0]), _load(targets[:, 0]), Shares(index, 0, weights))

    def _one(
        self, pods: Sequence[tuple[PodUid, int]], row: int, base: Figures, wanted: Aggregation
    ) -> tuple[Figures, Figures]:
        """Return the shift of one node, and the shares of its pods."""
        rows = np.array([place for _, place in pods], np.intp)
        of = _Group(self._last[:, rows], np.array([rows.size]), np.zeros(rows.size, np.bool_))
        if wanted.is_last:
            return np.zeros_like(base), np.full((_RESOURCES, rows.size), np.nan)
        places = self._places(wanted)
        columns = [self._pods[:, place][:, rows] for place in places]
        return _weighted(columns, self._residuals[:, places][:, :, [row]], of, base, wanted)

    def _summarize(self, base: Figures, now_s: float) -> None:
        roster, settings = self._roster, self._settings
        assert roster is not None
        of = _Group(self._last, roster.sizes, roster.until_s < now_s)
        found: dict[str, tuple[Figures, Figures]] = {}
        for wanted in (settings.ceilings, settings.targets):
            if str(wanted) in found:
                continue
            if wanted.is_last:
                nothing = np.full((_RESOURCES, len(roster.uids)), np.nan)
                found[str(wanted)] = np.zeros_like(base), nothing
                continue
            places = self._places(wanted)
            columns = [self._pods[:, place] for place in places]
            residuals = self._residuals[:, places]
            shared = wanted == settings.ceilings
            found[str(wanted)] = _weighted(columns, residuals, of, base, wanted, shared=shared)
        ceilings, shares = found[str(settings.ceilings)]
        self._summary = _Summary(base, ceilings, found[str(settings.targets)][0], shares)

    @property
    def _place(self) -> int:
        return self._current % self._numbers.size

    def _places(self, wanted: Aggregation) -> list[int]:
        """Return the places of the slots in a window that samples were taken in."""
        count = max(1, round(wanted.window.seconds / self._slot_s))
        found: list[int] = np.flatnonzero(self._numbers > self._current - count).tolist()
        return found

    def _open(self, now_s: float) -> None:
        """Begin a new slot if it is time for one; forget all if our clock was set back."""
        number = floor(now_s / self._slot_s)
        if number == self._current:
            return
        if number < self._current:
            self._numbers[:] = _NEVER
        self._current = number
        self._numbers[self._place] = number
        self._pods[:, self._place] = np.nan
        self._residuals[:, self._place] = np.nan
        self._pod_counts[:] = 0.0
        self._residual_counts[:] = 0.0

    def _empty(self, size: int) -> Slots:
        return np.full((_RESOURCES, self._numbers.size, size), np.nan, np.float32)


class _Group(NamedTuple):
    """Pods, one node after the other."""

    last: Figures
    """[resource, pod] what counts where a slot has no sample of a pod; NaN where there is none."""
    sizes: Rows
    gone: Mask
    """Pods that use nothing any more."""

    def filled(self, column: Slots) -> Figures:
        """[resource, pod] what pods used in a slot."""
        found = np.where(np.isnan(column), self.last, column.astype(np.float64))
        found[:, self.gone] = 0.0
        return np.nan_to_num(found, copy=False, nan=0.0)

    def by_node(self, values: Figures) -> Figures:
        """[resource, node] the sums of what their pods used."""
        ends = self.sizes.cumsum()
        sums = np.concatenate((np.zeros((_RESOURCES, 1)), values.cumsum(axis=1)), axis=1)
        found: Figures = sums[:, ends] - sums[:, ends - self.sizes]
        return found


def _weighted(
    columns: Sequence[Slots],
    residuals: Slots,
    of: _Group,
    base: Figures,
    wanted: Aggregation,
    *,
    shared: bool = True,
) -> tuple[Figures, Figures]:
    """Return [resource, node] by how much figures differ from `base`, and the shares of pods.

    Slots are worked on one by one, because all of them together take much memory.
    """
    now = of.by_node(of.filled(np.full(of.last.shape, np.nan, np.float32)))
    past = np.stack([of.by_node(of.filled(column)) for column in columns], axis=1)
    past += _explained(residuals, base - now)
    weights = _weights(past, wanted)
    shift = (weights * past).sum(axis=1) - base
    shares = np.zeros(of.last.shape if shared else (_RESOURCES, 0))
    if shared:
        for number, column in enumerate(columns):
            shares += np.repeat(weights[:, number], of.sizes, axis=1) * of.filled(column)
        shares[:, np.isnan(of.last[0])] = np.nan
    return np.nan_to_num(shift, copy=False, nan=0.0), shares


def _explained(residuals: Slots, now: Figures) -> Figures:
    """Return [resource, slot, node] what pods do not explain of a node.

    A slot in which that could not be told has the mean of the others; if there is none, what
    they do not explain now.
    """
    known = ~np.isnan(residuals)
    counts = known.sum(axis=1)
    sums = np.where(known, residuals, 0.0).sum(axis=1, dtype=np.float64)
    mean = np.where(counts > 0, sums / np.maximum(counts, 1), now)
    return np.where(known, residuals, mean[:, np.newaxis])


def _weights(past: Figures, wanted: Aggregation) -> Figures:
    """Return [resource, slot, node] how much each slot counts; together they are 1."""
    count = past.shape[1]
    percentile = wanted.type.percentile
    if percentile is None:
        return np.full(past.shape, 1.0 / count)
    position = percentile / 100.0 * (count - 1)
    low = floor(position)
    order = np.argsort(past, axis=1, kind="stable")
    weights = np.zeros(past.shape)
    np.put_along_axis(weights, order[:, low : low + 1], 1.0 - (position - low), axis=1)
    if position > low:
        np.put_along_axis(weights, order[:, low + 1 : low + 2], position - low, axis=1)
    return weights


def _average(slot: Slots, counts: npt.NDArray[np.float32], news: Mask, values: Figures) -> None:
    """Take new values into the means of a slot."""
    counts[news] += 1.0
    before = np.where(counts[news] > 1.0, slot[:, news], 0.0)
    slot[:, news] = before + (values[:, news] - before) / counts[news]


def _rearranged(values: npt.NDArray[np.float32], rows: Rows) -> npt.NDArray[np.float32]:
    """Return values in the order of their old rows; NaN, or no samples, where there is none."""
    nothing = 0.0 if values.ndim == 1 else np.nan
    if not values.shape[-1]:
        return np.full((*values.shape[:-1], rows.size), nothing, np.float32)
    found = values.take(rows, axis=-1, mode="wrap")
    found[..., rows == ABSENT] = nothing
    return found


def _columns(loads: Sequence[Load | None]) -> Figures:
    found = [
        (np.nan, np.nan) if each is None else (each.cpu_milli, each.mem_bytes) for each in loads
    ]
    return np.array(found, np.float64).reshape(len(found), _RESOURCES).T


def _load(values: Figures) -> Load:
    cpu_milli, mem_bytes = values.tolist()
    return Load(cpu_milli, mem_bytes)
