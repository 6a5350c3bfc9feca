# SPDX-License-Identifier: Apache-2.0
"""How few evictions could bring a pool together.

Take any plan after which the highest and the lowest of the nodes differ by at most T, and
let x be its lowest level. Then no node is above x + T, so each node that is above it now has
lost at least as many pods as it takes when its largest leave first; and no node is below x,
so each node that is below it now has received at least as many as it takes when the largest
that may run there come first. Every eviction leaves one node and reaches one node: the plan
has at least max(out(x + T), in(x)) evictions. As x is the plan's choice, the least value over
all x is a bound for every plan. All arrivals together also have to carry what all low nodes
lack, and no pod arrives twice; that is a second count for in(x).

Where only the high end counts, no node may be more than T above the mean of the others. A
plan with k evictions raises the sum of the levels by at most its k best gains, which limits
the mean and with it every node's level; the least k that is not refuted is the bound.

Of a node whose pods were not judged it is assumed that one eviction could carry all that it
uses, anywhere: no pods of it could do more.

`out` is a step function that falls, `in` one that rises. Both are kept as sorted ladders of
levels with one step per eviction, so a count is a binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.cluster.records import NodeName
from rebalancer.goals import PRECISION, Spread
from rebalancer.planner.instance import (
    TOLERANCE,
    Flags,
    Floats,
    Instance,
    Ints,
    largest_first,
    ranks,
    sums_before,
    unlisted,
)

# Of the largest pods so many are asked whether they may run on a low node; what even these
# do not fill is left out of the count, which only lowers the bound.
_FIRST, _GROWTH, _MOST = 32, 4, 512
_CELLS: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What holds whatever level the pool settles at."""

    needs: Ints
    """[N] pods that each node loses for its own goals."""
    movable: Flags
    """[P]"""


def spread_evictions(instance: Instance, goal: Spread, axis: int, known: Known) -> int:
    """Return how many evictions every plan needs that meets this goal and the nodes' own."""
    row = {name: number for number, name in enumerate(instance.nodes)}
    if len(goal.nodes) < 2 or not all(name in row for name in goal.nodes):
        return 0
    pool = _pool(instance, goal.nodes, axis, known)
    points = goal.points + PRECISION
    return _both_ends(pool, points) if goal.fill_low else _high_end(pool, points)


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The nodes that take part, and all pods that could be moved, in one resource."""

    instance: Instance
    needs: Ints
    """[N]"""
    rows: Ints
    level: Floats
    """[N] percent, of all nodes."""
    capacity: Floats
    """[N]"""
    at: Ints
    """[P + U] where pods are; behind those of the instance one for each unlisted node."""
    load: Floats
    """[P + U]"""
    pods: Ints
    """Those of them that can be moved."""

    def inside(self, at: Ints) -> Flags:
        """Tell which of these nodes take part."""
        found = np.zeros(len(self.capacity), dtype=np.bool_)
        found[self.rows] = True
        return np.asarray(found[at])


def _pool(instance: Instance, names: tuple[NodeName, ...], axis: int, known: Known) -> _Pool:
    row = {name: number for number, name in enumerate(instance.nodes)}
    unknown = np.flatnonzero(unlisted(instance))
    can_move = np.append(known.movable, np.ones(len(unknown), dtype=np.bool_))
    return _Pool(
        instance=instance,
        needs=known.needs,
        rows=np.array(sorted(row[name] for name in names), dtype=np.int64),
        level=instance.percent[:, axis],
        capacity=instance.capacity[:, axis],
        at=np.append(instance.at, unknown),
        load=np.append(instance.pod_load[:, axis], instance.load[unknown, axis]),
        pods=np.flatnonzero(can_move),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Departures:
    """The falling ladder: how many pods have to leave so that no node is above a level."""

    always: int
    """Evictions that the nodes' own goals need whatever the level."""
    steps: Floats
    """Sorted levels; each that is above the wanted one costs another eviction."""
    lowest: float
    """No plan brings all nodes below this."""

    def down_to(self, levels: Floats) -> Ints:
        below = np.searchsorted(self.steps, levels + TOLERANCE, side="right")
        return np.asarray(self.always + len(self.steps) - below)


def _departures(pool: _Pool) -> _Departures:
    pods = pool.pods[pool.inside(pool.at[pool.pods])]
    pods = pods[largest_first(pool.at[pods], pool.load[pods])]
    at = pool.at[pods]
    share = 100.0 * pool.load[pods] / pool.capacity[at]
    before = pool.level[at] - sums_before(at, share)
    gone = np.bincount(at, weights=share, minlength=len(pool.level))
    return _Departures(
        always=int(pool.needs.sum()),
        steps=np.sort(before[ranks(at) >= pool.needs[at]]),
        lowest=float((pool.level - gone)[pool.rows].max()),
    )


def _both_ends(pool: _Pool, points: float) -> int:
    out = _departures(pool)
    top = float(pool.level[pool.rows].max()) - points
    come = _arrivals(pool, top)
    least = out.lowest - points - TOLERANCE
    if least > come.highest:
        return 0  # no plan can meet it
    # Between two steps of the falling ladder the lower level is never worse.
    levels = np.append(out.steps - points, least)
    levels = levels[(levels >= least) & (levels <= come.highest)]
    return int(np.maximum(out.down_to(levels + points), come.up_to(levels)).min())


def _high_end(pool: _Pool, points: float) -> int:
    out = _departures(pool)
    count = len(pool.rows)
    total = pool.level[pool.rows].sum() + np.append(0.0, np.cumsum(_gains(pool)))
    highest = (points * (count - 1) + total) / count
    possible = (out.down_to(highest) <= np.arange(len(highest))) & (
        out.lowest <= highest + TOLERANCE
    )
    return int(possible.argmax())


def _gains(pool: _Pool) -> Floats:
    """Return by how much each move could raise the sum of the pool's levels, the best first."""
    at = pool.at[pool.pods]
    lost = np.where(pool.inside(at), 1.0 / pool.capacity[at], 0.0)
    gained = 1.0 / pool.capacity[pool.rows].min() - lost
    gains = 100.0 * pool.load[pool.pods] * np.maximum(gained, 0.0)
    return np.asarray(-np.sort(-gains))


@dataclass(frozen=True, slots=True, eq=False)
class _Arrivals:
    """The rising ladder: how many pods have to come so that no node is below a level."""

    steps: Floats
    """Sorted levels; each that is below the wanted one costs another eviction."""
    highest: float
    """No plan brings all nodes above this."""
    low: Floats
    """Sorted levels of the low nodes now."""
    capacity: Floats
    """Their capacities added up, from none to all of them."""
    used: Floats
    """The same of what they use."""
    carried: Floats
    """What the largest pods carry together, from one to all of them."""

    def up_to(self, levels: Floats) -> Ints:
        one_by_one = np.searchsorted(self.steps, levels - TOLERANCE, side="left")
        below = np.searchsorted(self.low, levels, side="left")
        lack = (levels - TOLERANCE) / 100.0 * self.capacity[below] - self.used[below]
        together = np.searchsorted(self.carried, lack, side="left") + (lack > 0.0)
        return np.maximum(one_by_one, together)


def _arrivals(pool: _Pool, top: float) -> _Arrivals:
    """Return the ladder up to a level."""
    low = pool.rows[pool.level[pool.rows] < top]
    low = low[np.argsort(pool.level[low], kind="stable")]
    pods = pool.pods[pool.load[pool.pods] > 0.0]
    pods = pods[np.argsort(-pool.load[pods], kind="stable")]
    steps, highest = _climb(pool, low, pods, top)
    capacity = pool.capacity[low]
    return _Arrivals(
        steps=np.sort(steps),
        highest=highest + TOLERANCE,
        low=pool.level[low],
        capacity=np.append(0.0, np.cumsum(capacity)),
        used=np.append(0.0, np.cumsum(capacity * pool.level[low] / 100.0)),
        carried=np.cumsum(pool.load[pods]),
    )


def _climb(pool: _Pool, low: Ints, pods: Ints, top: float) -> tuple[Floats, float]:
    """Return every level from which a low node still needs a pod, and the height all reach."""
    found, height = [np.empty(0)], np.inf
    asked, waiting = _FIRST, low
    while waiting.size:
        later = []
        for rows in _parts(waiting, asked):
            steps, reached = _fill(pool, rows, pods[:asked])
            done = (reached >= top) | (asked >= min(len(pods), _MOST))
            found.append(steps[:, done].ravel())
            if asked >= len(pods):
                height = min(height, reached.min())
            later.append(rows[~done])
        waiting, asked = np.concatenate(later), asked * _GROWTH
    steps = np.concatenate(found)
    return steps[steps < top], height


def _parts(rows: Ints, asked: int) -> list[Ints]:
    return np.array_split(rows, -(-len(rows) * asked // _CELLS))


def _fill(pool: _Pool, rows: Ints, pods: Ints) -> tuple[Floats, Floats]:
    """Return per pod and node the level before it comes (infinite: it may not), and after all."""
    may = (pool.at[pods][:, None] != rows) & pool.instance.takes[rows]
    listed = pods < len(pool.instance.pods)
    may[listed] &= pool.instance.may_run(pods[listed], rows)
    gain = 100.0 * np.where(may, pool.load[pods][:, None], 0.0) / pool.capacity[rows]
    after = pool.level[rows] + np.cumsum(gain, axis=0)
    reached = after[-1] if len(pods) else pool.level[rows]
    return np.where(may, after - gain, np.inf), reached
