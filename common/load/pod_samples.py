# SPDX-License-Identifier: Apache-2.0
"""One round of samples beside the pods of a roster: which are possible, and what they explain.

The same rules as for a single sample (`freshness`), applied to all pods at once. Sums are made
in the order of the pods, one after the other, so that they do not depend on how many pods
there are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import sub

import numpy as np

from common.checkpoint import Checkpoint
from common.cluster.records import NodeName
from common.load.freshness import STAMP_PRECISION_S, Limits
from common.load.histories import Measured
from common.load.overhead import LAG_S
from common.load.roster import ABSENT, Figures, Mask, Roster, Rows, find_rows
from common.load.values import Load
from common.usage.columns import UsageColumns
from common.usage.source import Usage


class PodSamples:
    """What a round says about the pods of a roster, and nodes without them."""

    def __init__(
        self,
        usages: UsageColumns,
        roster: Roster,
        limits: Sequence[Limits],
        checkpoint: Checkpoint,
    ) -> None:
        """`limits` are those of the roster's nodes, in its order."""
        rows = find_rows(usages.rows, roster.keys, checkpoint)
        self._roster = roster
        self._cpu_milli = _take(usages.cpu_milli, rows)
        self._mem_bytes = _take(usages.mem_bytes, rows)
        self._end_s = _take(usages.end_s, rows)
        self._window_s = _take(usages.window_s, rows)
        with np.errstate(invalid="ignore"):
            self._possible = (rows != ABSENT) & self._within(limits)

    def measured(self) -> Measured:
        """Return the samples that tell what a pod uses: possible, and from after its start."""
        with np.errstate(invalid="ignore"):
            start_s = self._end_s - self._window_s
            covers = start_s >= self._roster.scheduled_s + STAMP_PRECISION_S
        return Measured(self._possible & covers, self._cpu_milli, self._mem_bytes, self._end_s)

    def residuals(self, nodes: Mapping[NodeName, Usage]) -> Residuals:
        """Return what pods do not explain of the samples of these nodes."""
        found = [nodes.get(name) for name in self._roster.blocks]
        start_s = self._per_pod([np.nan if each is None else each.start_s for each in found])
        end_s = self._per_pod([np.nan if each is None else each.end_s for each in found])
        idle = end_s > self._roster.until_s
        told = self._possible & (self._end_s >= start_s - LAG_S)
        told &= self._roster.began_s + STAMP_PRECISION_S <= start_s
        return Residuals(
            self._roster,
            idle | told,
            np.where(idle, 0.0, self._cpu_milli),
            np.where(idle, 0.0, self._mem_bytes),
        )

    def _within(self, limits: Sequence[Limits]) -> Mask:
        """Tell which samples can be measurements, as `Limits.refuse` does."""
        found: Mask = (self._cpu_milli >= 0.0) & (self._mem_bytes >= 0.0)
        found &= self._cpu_milli <= self._per_pod([each.cpu_milli for each in limits])
        found &= self._mem_bytes <= self._per_pod([each.mem_bytes for each in limits])
        found &= (self._window_s >= 0.0) & (self._window_s < self._end_s)
        found &= (self._end_s < np.inf) & (
            self._end_s <= self._per_pod([each.latest_s for each in limits])
        )
        return found

    def _per_pod(self, values: Sequence[float]) -> Figures:
        return np.repeat(np.array(values, np.float64), self._roster.sizes)


class Residuals:
    """What is left of a node's sample without its pods."""

    def __init__(self, roster: Roster, told: Mask, cpu_milli: Figures, mem_bytes: Figures) -> None:
        """`told` says of which pods the samples tell; those that use nothing are among them."""
        self._ends = roster.ends()
        untold = np.concatenate(([0], np.cumsum(~told)))
        self._untold: list[int] = untold.tolist()
        self._cpu_milli: list[float] = cpu_milli.tolist()
        self._mem_bytes: list[float] = mem_bytes.tolist()
        self._sizes: list[int] = roster.sizes.tolist()

    def of(self, place: int, node: Usage) -> Load | None:
        """Return the residual of the node at this place; None where that cannot be told."""
        end = self._ends[place]
        start = end - self._sizes[place]
        if self._untold[end] != self._untold[start]:
            return None
        return Load(
            reduce(sub, self._cpu_milli[start:end], node.cpu_milli),
            reduce(sub, self._mem_bytes[start:end], node.mem_bytes),
        )


def _take(column: Figures, rows: Rows) -> Figures:
    if not column.size:
        return np.full(rows.size, np.nan)
    return column.take(rows, mode="wrap")
