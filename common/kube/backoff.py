# SPDX-License-Identifier: Apache-2.0
"""How long to wait before trying again.

The ceiling doubles with every failure; the wait is drawn evenly between the floor and the
ceiling, so that clients which failed together do not come back together, and none comes
back at once.
"""

from __future__ import annotations

import random


class Backoff:
    """Exponential, jittered waits between `floor_s` and `cap_s`."""

    def __init__(self, *, floor_s: float, cap_s: float, rng: random.Random) -> None:
        self._floor_s = floor_s
        self._cap_s = max(floor_s, cap_s)
        self._rng = rng
        self._ceiling_s = floor_s

    def next_s(self) -> float:
        """Return the next wait."""
        self._ceiling_s = min(self._ceiling_s * 2, self._cap_s)
        return self._rng.uniform(self._floor_s, self._ceiling_s)

    def reset(self) -> None:
        """Start again from the floor after a success."""
        self._ceiling_s = self._floor_s
