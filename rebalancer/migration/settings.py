"""How patient the migration controller is.

What people may want otherwise is in the configuration: deadline, attempts, how long finished
Migrations stay, limits and switches. The waits here are no keys. What a watch shows wakes
Migrations at once, so most of them are only the time after which a look is taken though
nothing was heard; a budget's pauses are part of how budgets are kept. Nothing is decided
differently by other values, only sooner or later. Tests shorten them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """The waits of the controller that the configuration does not name."""

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
    """After so many failures a move goes on without marks, and cleaning up leaves them behind."""
    sweep_s: float = 30.0
    """How often marks are looked for that were left behind."""
    guidance_s: float = 60.0
    """How long after the binding extenders are waited for to tell whether they were asked."""
    guidance_emptying_s: float = 15.0
    """The same while a node is emptied: nothing is stopped there by a lack of guidance."""
