"""How patient the migration controller is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Every wait of the controller; what the configuration says comes from there."""

    workers: int = 8
    look_again_s: float = 5.0
    """A Migration that waits is looked at after this long even if nothing changed."""
    let_go_s: float = 0.5
    """So soon after one has ended those that wait for a limit are looked at."""
    acknowledge_again_s: float = 1.0
    budget_min_s: float = 5.0
    """The least that is waited after a budget said no."""
    budget_max_s: float = 60.0
    backoff_min_s: float = 1.0
    backoff_max_s: float = 60.0
    mark_tries: int = 3
    guidance_s: float = 15.0
    """How long after the binding an extender may tell that it was asked."""
