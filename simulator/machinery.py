"""What every simulated component works with."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.api import Store
from simulator.dice import Dice
from simulator.events import Recorder
from simulator.pace import Agenda, Pace


@dataclass(frozen=True, slots=True)
class Machinery:
    """One cluster's objects, time, chance and news."""

    store: Store
    pace: Pace
    agenda: Agenda
    dice: Dice
    recorder: Recorder

    @classmethod
    def of(cls, store: Store, *, seed: int, speed: float = 1.0) -> Machinery:
        """Return the machinery around a store."""
        pace = Pace(store.clock, speed=speed)
        return cls(store, pace, Agenda(pace), Dice(seed), Recorder(store))
