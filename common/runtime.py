# SPDX-License-Identifier: Apache-2.0
"""What every long-running part of a program is given: time, metrics and chance.

Tests replace all three: a fake clock, a registry of their own and a seeded generator.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from common.clock import Clock
from common.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Runtime:
    """The clock, the metrics and the random numbers of a process."""

    clock: Clock
    metrics: Metrics
    rng: random.Random = field(default_factory=random.Random)
