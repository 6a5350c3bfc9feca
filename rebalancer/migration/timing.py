# SPDX-License-Identifier: Apache-2.0
"""How long a move may take, and how long the controller waits before it tries again.

Users set deadlines and attempts in the configuration. The waits in `Timing` are no
configuration keys: watches enqueue Migrations at once, so most of them are only the time after
which a Migration is reconciled although nothing changed. Other values decide nothing
differently, only sooner or later; tests shorten them.

A Migration has one deadline until the eviction and a new one from then on, so that its
replacement gets its whole time whatever the move waited for before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, NamedTuple

from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from common.cluster.workloads import BudgetRecord
from common.config import RebalancerConfiguration
from common.kube.backoff import Backoff
from rebalancer.migration.budgets import budgets_of
from rebalancer.migration.verdicts import Wait
from rebalancer.migration.view import MigrationView

RECORDED_WITHIN_S: Final = 30.0
"""An eviction is recorded this soon, even if another leader has to do it: a Lease expires
after 15 s by default, and the new leader reconciles every open Migration first."""
LONGEST_GRACE_S: Final = 7 * 86_400.0
"""The API server accepts any terminationGracePeriodSeconds; no move waits longer than this."""
_RECORDING_SHARE: Final = 0.25
"""A move with a short deadline reserves at most this share of it for recording the eviction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The waits and attempts of the controller that the configuration does not name."""

    workers: int = 8
    resync_s: float = 5.0
    """A Migration that waits is reconciled after this time even if nothing changed."""
    limit_recheck_s: float = 0.5
    """After a Migration ends, those that wait for a limit are reconciled this soon."""
    recheck_s: float = 1.0
    """How often a step asks for what is expected soon, such as an acknowledgement."""
    pdb_backoff_min_s: float = 5.0
    """The shortest wait after a PodDisruptionBudget did not allow an eviction."""
    pdb_backoff_max_s: float = 60.0
    backoff_min_s: float = 1.0
    backoff_max_s: float = 60.0
    mark_attempts: int = 3
    """After this many failures a move goes on without marks, and cleanup leaves them behind."""
    sweep_s: float = 30.0
    """How often the controller searches for marks that were left behind."""
    guide_s: float = 2.0
    """How long API servers may take to learn that a Migration guides."""
    guidance_s: float = 60.0
    """How long after the binding extenders may take to report whether they were asked."""
    guidance_maintenance_s: float = 15.0
    """The same for maintenance, where missing guidance stops nothing."""


def deadline_s(pod: PodRecord | None, config: RebalancerConfiguration, now_s: float) -> float:
    """Return when a move of the pod has to be done; a long grace period extends it.

    None is a pod that is gone, whose grace period is over.
    """
    grace_s = 0.0
    if pod is not None:
        lengthened = config.eviction_grace_period
        grace_s = max(pod.shape.grace_s, lengthened.seconds if lengthened is not None else 0.0)
        grace_s = min(grace_s, LONGEST_GRACE_S)
    return now_s + config.migration_deadline.seconds + grace_s


def evict_before_s(migration: MigrationRecord) -> float:
    """Return until when an eviction may be sent.

    Extenders drop an intent at the deadline. An eviction that is recorded later would leave
    its replacement without guidance, so a late move ends with its pod where it was.
    """
    span_s = migration.deadline_s - migration.created_s
    # The API server's clock set the creation time; beside ours the span may make no sense.
    share_s = _RECORDING_SHARE * span_s
    kept_s = min(RECORDED_WITHIN_S, share_s) if span_s > 0 else RECORDED_WITHIN_S
    return migration.deadline_s - kept_s


class _Pause(NamedTuple):
    """A pause after an eviction that was not accepted."""

    wait: Wait
    due_s: float
    early_s: float
    """When the next attempt is due if the PodDisruptionBudgets have changed by then."""
    budgets: tuple[BudgetRecord, ...]


class EvictionBackoff:
    """When the Eviction API is asked again after an attempt that was not accepted.

    Reconciling may happen at any time for any reason; the API is asked only when an attempt is
    due. After a PodDisruptionBudget refused, that is when the watch shows a changed budget, but
    not at once; if nothing changes, after growing pauses. Pauses are kept in memory only: a
    restart costs one attempt, not correctness.
    """

    def __init__(self, timing: Timing, clock: Clock, rng: random.Random) -> None:
        self._timing = timing
        self._clock = clock
        self._rng = rng
        self._pauses: dict[str, _Pause] = {}
        self._pdb_backoffs: dict[str, Backoff] = {}

    def remaining(self, view: MigrationView) -> Wait | None:
        """Return what is still to be waited for; None if an attempt is due."""
        pause = self._pauses.get(view.migration.name)
        if pause is None:
            return None
        changed = pause.budgets != budgets_of(view)
        left_s = (pause.early_s if changed else pause.due_s) - self._clock.monotonic()
        return Wait(pause.wait.reason, left_s) if left_s > 0 else None

    def pause(self, view: MigrationView, wait: Wait, early_after_s: float | None = None) -> None:
        """Wait as `wait` demands; only `early_after_s` if a budget changes in the meantime."""
        if wait.retry_s is None:
            return
        now_s = self._clock.monotonic()
        least_s = wait.retry_s if early_after_s is None else min(early_after_s, wait.retry_s)
        name = view.migration.name
        self._pauses[name] = _Pause(wait, now_s + wait.retry_s, now_s + least_s, budgets_of(view))

    def after_pdb_refusal_s(self, migration: MigrationRecord) -> float:
        """Return how long to wait for a budget that does not change."""
        timing = self._timing
        backoff = self._pdb_backoffs.setdefault(
            migration.name,
            Backoff(
                floor_s=timing.pdb_backoff_min_s, cap_s=timing.pdb_backoff_max_s, rng=self._rng
            ),
        )
        return backoff.next_s()

    def after_failure_s(self, migration: MigrationRecord) -> float:
        """Return how long to wait after an attempt that failed."""
        timing = self._timing
        # Jitter: many moves fail at once when the API server restarts.
        ceiling_s = timing.backoff_min_s * 2.0 ** (migration.attempts + 1)
        return self._rng.uniform(timing.backoff_min_s, min(ceiling_s, timing.backoff_max_s))

    def forget(self, migration: MigrationRecord) -> None:
        """Drop the pauses of a Migration that has ended."""
        self._pauses.pop(migration.name, None)
        self._pdb_backoffs.pop(migration.name, None)
