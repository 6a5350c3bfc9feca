# SPDX-License-Identifier: Apache-2.0
"""Which steps a move takes, and which of them are done.

A pod with a controller is evicted first and replaced afterwards, a bare pod the other way
round. With surge the controller creates the replacement first, and removes the pod itself.
Pure.
"""

from __future__ import annotations

from typing import Final

from common.api.migrations import Step, StepReason
from rebalancer.migration.view import MigrationView

OWNED_STEPS: Final[tuple[Step, ...]] = (
    Step.BUDGET_CHECKED,
    Step.MARKED,
    Step.ACKNOWLEDGED,
    Step.PROTECTED,
    Step.EVICTED,
    Step.REPLACED,
    Step.READY,
)
BARE_STEPS: Final[tuple[Step, ...]] = (
    Step.BUDGET_CHECKED,
    Step.MARKED,
    Step.ACKNOWLEDGED,
    Step.REPLACED,
    Step.READY,
    Step.EVICTED,
)
# No temporary PDB: a surge never takes a pod that its workload does not have in addition.
SURGE_STEPS: Final[tuple[Step, ...]] = (
    Step.BUDGET_CHECKED,
    Step.MARKED,
    Step.ACKNOWLEDGED,
    Step.COUNTED,
    Step.RAISED,
    Step.REPLACED,
    Step.READY,
    Step.RANKED,
    Step.LOWERED,
    Step.EVICTED,
)
AFTER_EVICTION: Final = (Step.REPLACED, Step.READY)


def settled(view: MigrationView, step: Step) -> bool:
    """Tell whether a step needs no more attention; marks that were refused do not."""
    found = view.migration.condition(step)
    if found is None:
        return False
    refused = step is Step.MARKED and found.reason == StepReason.MARK_REFUSED
    return found.status == "True" or refused


def missing_step(view: MigrationView) -> Step | None:
    """Return the first step that is not done; after the eviction its preparation is moot."""
    steps = _steps(view)
    # Also true if another client evicted the pod before all preparations were done.
    if settled(view, Step.EVICTED):
        steps = AFTER_EVICTION
    return next((step for step in steps if not settled(view, step)), None)


def _steps(view: MigrationView) -> tuple[Step, ...]:
    if view.bare:
        return BARE_STEPS
    return SURGE_STEPS if view.migration.surge else OWNED_STEPS


def commits(view: MigrationView) -> Step:
    """Return the step that first does something to the workload."""
    return Step.RAISED if view.migration.surge else Step.EVICTED


def committed(view: MigrationView) -> bool:
    """Tell whether that step is done: a replacement is being created."""
    return settled(view, commits(view)) or settled(view, Step.EVICTED)


def holds_raise(view: MigrationView) -> bool:
    """Tell whether the count of the workload may be raised by this move."""
    return settled(view, Step.COUNTED) and not settled(view, Step.LOWERED)
