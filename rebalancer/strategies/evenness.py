# SPDX-License-Identifier: Apache-2.0
"""How far pods are from being spread within a skew, in numbers only.

A topology spread constraint asks that no domain holds more than `skew` pods above the emptiest.
With fewer domains than it wants (`short`), a missing one is the emptiest.

Whatever moves bring n domains within the skew, in the end all of them hold from L to L + skew
pods for some L. What is above has to leave and what is below has to arrive, and a move is both
at best: so it takes the larger of the two sums, for the L where that is smallest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def width(held: Ints, *, short: bool) -> int:
    """Return by how much the fullest domain is above the emptiest."""
    if not held.size:
        return 0
    return int(held.max()) - (0 if short else int(held.min()))


def distance(held: Ints, skew: int, *, short: bool) -> int:
    """Return how many pods have to move at least, if all of them may move anywhere."""
    if width(held, short=short) <= skew:
        return 0
    if short:
        return _above(held, skew)
    low, high = int(held.min()), int(held.sum()) // held.size
    # The larger L is, the fewer are above and the more below: sought is where they cross.
    while low < high:
        middle = (low + high) // 2
        if _below(held, middle) >= _above(held, middle + skew):
            high = middle
        else:
            low = middle + 1
    found = max(_below(held, low), _above(held, low + skew))
    return min(found, _above(held, low - 1 + skew)) if low > held.min() else found


def fewest(held: Ints, movable: Ints, skew: int, *, short: bool, outside: int = 0) -> int | None:
    """Return the same if of each domain only so many may leave; None if those are too few.

    `outside` pods are in no domain and may come to one.
    """
    if width(held, short=short) <= skew:
        return 0
    lowest = 0 if short else int(held.min())
    highest = 0 if short else (int(held.sum()) + outside) // held.size
    found = (_at(held, movable, level, skew, outside) for level in range(lowest, highest + 1))
    return min((moves for moves in found if moves is not None), default=None)


def _at(held: Ints, movable: Ints, level: int, skew: int, outside: int) -> int | None:
    above = np.maximum(held - level - skew, 0)
    below = int(np.maximum(level - held, 0).sum())
    given = np.minimum(np.maximum(held - level, 0), movable)
    if (above > movable).any() or int(given.sum()) + outside < below:
        return None
    return max(int(above.sum()), below)


def arrivals(held: Ints, source: int, skew: int, *, short: bool) -> tuple[Ints, Ints]:
    """Return the distance and the width once a pod is in each domain; the last: in none.

    `source` is the domain that it leaves, negative if it was in none.
    """
    left = held.copy()
    if source >= 0:
        left[source] -= 1
    distances, widths = np.empty((2, held.size + 1), dtype=np.int64)
    # Domains with as many pods are alike.
    for value in np.unique(left).tolist():
        alike = left == value
        after = left.copy()
        after[np.argmax(alike)] += 1
        distances[:-1][alike] = distance(after, skew, short=short)
        widths[:-1][alike] = width(after, short=short)
    distances[-1], widths[-1] = distance(left, skew, short=short), width(left, short=short)
    return distances, widths


def widths_after(held: Ints, source: int, *, short: bool) -> Ints:
    """Return only the widths of `arrivals`, which takes much less time."""
    left = held.copy()
    if source >= 0:
        left[source] -= 1
    highest = np.append(np.maximum(left + 1, left.max()), left.max())
    if short:
        return highest
    least = int(left.min())
    lowest = np.full(left.size + 1, least)
    emptiest = np.flatnonzero(left == least)
    if emptiest.size == 1:
        # Only a single emptiest domain lifts the low end.
        others = np.delete(left, emptiest)
        lowest[emptiest] = min(least + 1, int(others.min(initial=least + 1)))
    return np.asarray(highest - lowest)


def _above(held: Ints, level: int) -> int:
    return int(np.maximum(held - level, 0).sum())


def _below(held: Ints, level: int) -> int:
    return int(np.maximum(level - held, 0).sum())
