# SPDX-License-Identifier: Apache-2.0
"""What every simulated component uses."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.api import Store
from simulator.events import EventRecorder
from simulator.rng import Rng
from simulator.time_scale import Timers, TimeScale


@dataclass(frozen=True, slots=True)
class Context:
    """The objects, time, randomness and Events of one cluster."""

    store: Store
    time_scale: TimeScale
    timers: Timers
    rng: Rng
    recorder: EventRecorder

    @classmethod
    def of(cls, store: Store, *, seed: int, speed: float = 1.0) -> Context:
        """Return the context for a store."""
        time_scale = TimeScale(store.clock, speed=speed)
        return cls(store, time_scale, Timers(time_scale), Rng(seed), EventRecorder(store))
