# SPDX-License-Identifier: Apache-2.0
"""Random numbers that do not depend on the order of events.

Every draw has a name. The same seed and name give the same number, however many other
draws came before; so two runs agree although their tasks ran in a different order.
"""

from __future__ import annotations

import hashlib
import random
from typing import Final

_STEPS: Final = 1 << 64


class Rng:
    """Named draws from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._prefix = f"{seed}/".encode()

    def share(self, *names: str) -> float:
        """Return a number from 0 up to, but not including, 1."""
        digest = hashlib.blake2b(self._prefix + "/".join(names).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / _STEPS

    def between(self, low: float, high: float, *names: str) -> float:
        """Return a number from `low` to `high`."""
        return low + (high - low) * self.share(*names)

    def stream(self, *names: str) -> random.Random:
        """Return a generator for a name."""
        return random.Random(f"{self.seed}/{'/'.join(names)}")
