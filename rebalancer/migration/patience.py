"""How long a move waits after an attempt to evict that came to nothing.

A look may be taken at any time, for whatever reason; the Eviction API is asked again only
when it is due. After a budget said no that is when the watch shows another budget than the
one that was known then, but not at once; if nothing changes, after ever longer pauses.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.workloads import BudgetRecord
from common.kube.backoff import Backoff
from rebalancer.migration.budgeting import budgets_of
from rebalancer.migration.scene import Scene
from rebalancer.migration.settings import ControllerSettings
from rebalancer.migration.verdicts import Wait


class _Held(NamedTuple):
    """What is waited for, and until when."""

    wait: Wait
    due_s: float
    early_s: float
    """When it is due if the budgets are others by then."""
    budgets: tuple[BudgetRecord, ...]


class Patience:
    """Remembers attempts by Migration; what it forgets costs an attempt, not correctness."""

    def __init__(self, settings: ControllerSettings, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._held: dict[str, _Held] = {}
        self._budget: dict[str, Backoff] = {}

    def left(self, scene: Scene) -> Wait | None:
        """Return what is still to be waited for; None if an attempt is due."""
        held = self._held.get(scene.migration.name)
        if held is None:
            return None
        changed = held.budgets != budgets_of(scene)
        left_s = (held.early_s if changed else held.due_s) - self._clock.monotonic()
        return Wait(held.wait.reason, left_s) if left_s > 0 else None

    def hold(self, scene: Scene, wait: Wait, least_s: float | None = None) -> None:
        """Wait as it says; if a budget changes meanwhile, no longer than `least_s`."""
        if wait.retry_s is None:
            return
        now_s = self._clock.monotonic()
        early_s = now_s + (wait.retry_s if least_s is None else min(least_s, wait.retry_s))
        name = scene.migration.name
        self._held[name] = _Held(wait, now_s + wait.retry_s, early_s, budgets_of(scene))

    def for_budget(self, migration: MigrationRecord) -> float:
        """Return how long to wait for a budget of which nothing is heard."""
        settings = self._settings
        backoff = self._budget.setdefault(
            migration.name,
            Backoff(floor_s=settings.budget_min_s, cap_s=settings.budget_max_s, rng=self._rng),
        )
        return backoff.next_s()

    def after_attempt(self, migration: MigrationRecord) -> float:
        """Return how long to wait after an attempt that failed."""
        settings = self._settings
        ceiling_s = settings.backoff_min_s * 2.0 ** (migration.attempts + 1)
        return self._rng.uniform(settings.backoff_min_s, min(ceiling_s, settings.backoff_max_s))

    def forget(self, migration: MigrationRecord) -> None:
        """Remember nothing of a Migration that is over."""
        self._held.pop(migration.name, None)
        self._budget.pop(migration.name, None)
