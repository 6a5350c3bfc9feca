"""Which nodes of a scenario are the hot ones, and how hot: drawn, the same for the same seed."""

from __future__ import annotations

from collections.abc import Sequence

from common.config import ConfigError
from simulator.dice import Dice
from simulator.scenarios.schema import Scenario


def drawn_levels(scenario: Scenario, names: Sequence[str], dice: Dice) -> dict[str, float]:
    """Return how many percent of its CPU each node is to use."""
    levels = [level for level in scenario.load for _ in range(level.nodes)]
    if len(levels) != len(names):
        words = f"speaks of {len(levels)} nodes, but there are {len(names)}"
        raise ConfigError(f"load: {words}")
    drawn = sorted(names, key=lambda name: dice.share("hot", name))
    return {
        name: dice.between(level.least, level.most, "level", name)
        for name, level in zip(drawn, levels, strict=True)
    }
