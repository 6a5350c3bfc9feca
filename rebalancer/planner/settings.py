"""How hard the planner tries, and how much of a plan may run at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from common.config import RebalancerConfiguration

EVALUATIONS: Final = 20_000
"""Calibrated to five seconds for 5,000 nodes and 150,000 pods on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """The part of the configuration that decides over plans, and the effort."""

    min_gain: float = 1.0
    """Points of utilisation that each eviction of a chain must gain."""
    evaluations: int = EVALUATIONS
    """How many times a pod may be judged against all nodes."""
    relieve_in_part: bool = True
    """Relieve a node as far as possible where its goal is out of reach."""
    alternatives: int = 5
    """Next best targets that a move names."""
    max_moves: int = 10
    """For load, in one cycle."""
    max_per_namespace: int | None = None
    """For load, in one cycle and under way; no limit by default."""
    max_in_flight_per_node: int = 2
    max_inbound_per_node: int = 5
    maintenance_parallelism: int = 5

    @classmethod
    def of(cls, config: RebalancerConfiguration) -> Self:
        """Take the values from the configuration."""
        return cls(
            min_gain=config.min_gain,
            max_moves=config.max_reschedule_pods,
            max_per_namespace=config.max_per_namespace,
            max_in_flight_per_node=config.max_in_flight_per_node,
            max_inbound_per_node=config.max_inbound_per_node,
            maintenance_parallelism=config.maintenance_parallelism,
        )
