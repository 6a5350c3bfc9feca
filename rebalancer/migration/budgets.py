# SPDX-License-Identifier: Apache-2.0
"""Whether PodDisruptionBudgets allow an eviction, counting what other moves were promised.

A budget's status does not know about an eviction that is about to be sent. Two moves that
read `disruptionsAllowed: 1` at the same time would both count on it. Pure.
"""

from __future__ import annotations

from collections import Counter

from common.api.migrations import Phase, Step
from common.cluster.migrations import MigrationRecord
from common.cluster.workloads import BudgetRecord
from rebalancer.evictability import Budgets
from rebalancer.migration.temporary_pdb.rules import is_ours
from rebalancer.migration.view import MigrationView
from rebalancer.refusals import Refusal


def budget_refusal(view: MigrationView) -> Refusal | None:
    """Return why the PodDisruptionBudget does not allow the eviction now."""
    pod = view.pod
    if pod is None:
        return None
    budgets = _in_namespace(view)
    if view.migration.surge and view.migration.raised_s is None:
        return budgets.refusal_after_surge(pod)
    answer = budgets.charge(pod, _promised(view, budgets))
    return answer if isinstance(answer, Refusal) else None


def budgets_of(view: MigrationView) -> tuple[BudgetRecord, ...]:
    """Return the budgets that cover the pod, as they are known now."""
    return _in_namespace(view).matching(view.pod) if view.pod is not None else ()


def has_temporary_pdb(view: MigrationView) -> bool:
    """Tell whether a temporary PDB covers the pod; it gives way to any other."""
    return any(map(is_ours, budgets_of(view)))


def _in_namespace(view: MigrationView) -> Budgets:
    namespace = view.migration.namespace
    return Budgets(b for b in view.snapshot.budgets.values() if b.namespace == namespace)


def _goes_first(other: MigrationRecord, mine: MigrationRecord) -> bool:
    """Of two that were allowed at once the older goes; otherwise each waits for the other."""
    if other.name == mine.name or other.phase != Phase.IN_PROGRESS:
        return False
    older = (other.created_s, other.name) < (mine.created_s, mine.name)
    return older or not mine.done(Step.BUDGET_CHECKED)


def _promised(view: MigrationView, budgets: Budgets) -> Counter[str]:
    """Count by budget the evictions that were allowed and have not been sent yet."""
    promised: Counter[str] = Counter()
    for other in view.snapshot.migrations.values():
        if not _goes_first(other, view.migration):
            continue
        pod = view.snapshot.pods.get(other.pod_uid)
        if pod is None or pod.terminating or other.namespace != view.migration.namespace:
            continue
        # From the eviction on the API server counts it itself: it lowers disruptionsAllowed and
        # adds the pod to disruptedPods (eviction.go, checkAndDecrement).
        if other.done(Step.BUDGET_CHECKED) and not other.done(Step.EVICTED):
            answer = budgets.charge(pod)
            promised.update([answer] if isinstance(answer, str) and answer else [])
    return promised
