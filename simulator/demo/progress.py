# SPDX-License-Identifier: Apache-2.0
"""How far a demo is, what to remember of it, and when it is over. Pure.

First the scheduler places pods and nodes get hot; then the rebalancer observes, plans and
moves; then nothing is left to do. The demo is over when that has held for some cycles,
because a goal counts as broken only after several new samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from simulator.demo.client import Observation, ReportedPlan
from simulator.figures import Figures, Utilization, tally

SLACK: Final = 0.5
"""Points by which measured and expected utilization may differ."""
_CALM_CYCLES: Final = 3
_STUCK_CYCLES: Final = 8


class Stage(Enum):
    """How far the demo is."""

    HEATING = 1
    WATCHING = 2
    PLANNED = 3
    MOVING = 4
    LEVEL = 5


@dataclass(slots=True)
class Progress:
    """Follows one observation after the other."""

    points: float
    """Allowed difference between the most and the least utilized node."""
    nodes: int
    """How many nodes there will be once all have joined."""
    sample_cycles: float = 1.0
    """How many cycles pass from one measurement to the next."""
    stage: Stage = field(default=Stage.HEATING, init=False)
    furthest: Stage = field(default=Stage.HEATING, init=False)
    over: bool = field(default=False, init=False)
    plan: ReportedPlan | None = field(default=None, init=False)
    """The last plan with moves, or else the last plan."""
    bound: int = field(default=0, init=False)
    _before: Utilization | None = field(default=None, init=False)
    _last: Observation | None = field(default=None, init=False)
    _busy_cycle: int = field(default=0, init=False)

    def update(self, observation: Observation) -> Stage:
        """Take in an observation."""
        self._last = observation
        self.stage = self._stage_of(observation)
        self.furthest = max(self.furthest, self.stage, key=lambda each: each.value)
        self._remember(observation)
        if not self._idle(observation):
            self._busy_cycle = observation.cycles
        calm = _CALM_CYCLES if self.level else _STUCK_CYCLES + 2 * self.sample_cycles
        self.over = observation.cycles - self._busy_cycle >= calm + self.sample_cycles
        return self.stage

    @property
    def level(self) -> bool:
        """Whether the cluster was level at the last observation."""
        return self._last is not None and self._last.utilization.is_level(self.points + SLACK)

    @property
    def moved(self) -> bool:
        return self._last is not None and any(m.evicted_s for m in self._last.migrations)

    def figures(self, seconds: float) -> Figures:
        """Return the results."""
        after = self._last.utilization if self._last is not None else Utilization({}, 0)
        return Figures(
            before=self._before or after,
            after=after,
            tally=tally(self._last.migrations if self._last is not None else ()),
            lower_bound=self.bound,
            seconds=seconds,
        )

    def _remember(self, observation: Observation) -> None:
        if observation.settled and not observation.migrations:
            self._before = observation.utilization
        if observation.plan is not None and (
            observation.plan.moves or self.plan is None or not self.moved
        ):
            self.plan = observation.plan
        self.bound = max(self.bound, observation.lower_bound)

    def _idle(self, observation: Observation) -> bool:
        complete = observation.settled and observation.utilization.nodes >= self.nodes
        return complete and self.stage in (Stage.WATCHING, Stage.LEVEL)

    def _stage_of(self, observation: Observation) -> Stage:
        if observation.plan is None:
            return Stage.HEATING
        if any(each.open for each in observation.migrations):
            return Stage.MOVING
        if observation.plan.moves and not self._acted_on(observation):
            return Stage.PLANNED
        return Stage.LEVEL if self.level else Stage.WATCHING

    @staticmethod
    def _acted_on(observation: Observation) -> bool:
        """Whether the moves of this plan are over; the next plan is being made."""
        plan = observation.plan.plan_id if observation.plan is not None else ""
        return any(each.plan_id == plan for each in observation.migrations)
