"""Where a demo is in its story, what to remember of it, and when it is over. Pure.

First the plain scheduler's work is seen and nodes get hot; then the rebalancer watches,
plans and moves; then nothing is left to do. It is over when that has held for some cycles,
for a goal is only broken once several new samples say so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from simulator.demo.sight import PlanSeen, Sight
from simulator.figures import Figures, Look, tally

SLACK: Final = 0.5
"""Points; what is measured and what is believed differ a little."""
_CALM_CYCLES: Final = 3
_STUCK_CYCLES: Final = 8


class Stage(Enum):
    """Where the story is."""

    HEATING = 1
    WATCHING = 2
    PLANNED = 3
    MOVING = 4
    LEVEL = 5


@dataclass(slots=True)
class Story:
    """Takes in one sight after the other."""

    points: float
    """Of spread, that are allowed."""
    nodes: int
    """How many there will be once all have joined."""
    sample_cycles: float = 1.0
    """How many cycles pass from one measurement to the next."""
    stage: Stage = Stage.HEATING
    furthest: Stage = Stage.HEATING
    over: bool = False
    plan: PlanSeen | None = None
    """The last one that moved something, or else the last one."""
    bound: int = 0
    _before: Look | None = None
    _last: Sight | None = None
    _busy_cycle: int = field(default=0)

    def take(self, sight: Sight) -> Stage:
        """Go on with the story."""
        self._last = sight
        self.stage = self._stage_of(sight)
        self.furthest = max(self.furthest, self.stage, key=lambda each: each.value)
        self._remember(sight)
        if not self._idle(sight):
            self._busy_cycle = sight.cycles
        calm = _CALM_CYCLES if self.level else _STUCK_CYCLES + 2 * self.sample_cycles
        self.over = sight.cycles - self._busy_cycle >= calm + self.sample_cycles
        return self.stage

    @property
    def level(self) -> bool:
        """Whether the last sight was of a level cluster."""
        return self._last is not None and self._last.look.is_level(self.points + SLACK)

    @property
    def moved(self) -> bool:
        return self._last is not None and any(m.evicted_s for m in self._last.migrations)

    def figures(self, seconds: float) -> Figures:
        """Return what it came to."""
        after = self._last.look if self._last is not None else Look({}, 0)
        return Figures(
            before=self._before or after,
            after=after,
            tally=tally(self._last.migrations if self._last is not None else ()),
            lower_bound=self.bound,
            seconds=seconds,
        )

    def _remember(self, sight: Sight) -> None:
        if sight.settled and not sight.migrations:
            self._before = sight.look
        if sight.plan is not None and (sight.plan.moves or self.plan is None or not self.moved):
            self.plan = sight.plan
        self.bound = max(self.bound, sight.lower_bound)

    def _idle(self, sight: Sight) -> bool:
        everybody = sight.settled and sight.look.nodes >= self.nodes
        return everybody and self.stage in (Stage.WATCHING, Stage.LEVEL)

    def _stage_of(self, sight: Sight) -> Stage:
        if sight.plan is None:
            return Stage.HEATING
        if any(each.open for each in sight.migrations):
            return Stage.MOVING
        if sight.plan.moves and not self._acted_on(sight):
            return Stage.PLANNED
        return Stage.LEVEL if self.level else Stage.WATCHING

    @staticmethod
    def _acted_on(sight: Sight) -> bool:
        """Whether the plan is the one whose moves are over; the next one is being made."""
        plan = sight.plan.plan_id if sight.plan is not None else ""
        return any(each.plan_id == plan for each in sight.migrations)
