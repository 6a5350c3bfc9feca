"""Whether the budget lets a pod go, counting what other moves have been promised already.

A budget's status knows nothing of an eviction that is about to come. Two moves that read it
at the same time would both believe in its last disruption. Pure.
"""

from __future__ import annotations

from collections import Counter

from common.cluster.migrations import MigrationRecord, Phase, Step
from common.cluster.workloads import BudgetRecord
from rebalancer.evictability import Budgets
from rebalancer.migration.guarding import is_ours
from rebalancer.migration.scene import Scene
from rebalancer.reasons import Refusal


def budget_refusal(scene: Scene) -> Refusal | None:
    """Return why the budget does not let the pod go now."""
    pod = scene.pod
    if pod is None:
        return None
    budgets = _near(scene)
    answer = budgets.charge(pod, _promised(scene, budgets))
    return answer if isinstance(answer, Refusal) else None


def budgets_of(scene: Scene) -> tuple[BudgetRecord, ...]:
    """Return the budgets that cover the pod, as they are known now."""
    return _near(scene).matching(scene.pod) if scene.pod is not None else ()


def guard_stands(scene: Scene) -> bool:
    """Tell whether a budget of ours covers the pod; it gives way to any other."""
    return any(map(is_ours, budgets_of(scene)))


def _near(scene: Scene) -> Budgets:
    space = scene.migration.namespace
    return Budgets(b for b in scene.snapshot.budgets.values() if b.namespace == space)


def _goes_first(other: MigrationRecord, mine: MigrationRecord) -> bool:
    """Of two that were allowed at once the older goes; otherwise each waits for the other."""
    if other.name == mine.name or other.phase != Phase.IN_PROGRESS:
        return False
    older = (other.created_s, other.name) < (mine.created_s, mine.name)
    return older or not mine.done(Step.BUDGET_CHECKED)


def _promised(scene: Scene, budgets: Budgets) -> Counter[str]:
    """Count by budget the evictions that were allowed and have not come yet."""
    promised: Counter[str] = Counter()
    for other in scene.snapshot.migrations.values():
        if not _goes_first(other, scene.migration):
            continue
        pod = scene.snapshot.pods.get(other.pod_uid)
        if pod is None or pod.terminating or other.namespace != scene.migration.namespace:
            continue
        if other.done(Step.BUDGET_CHECKED) and not other.done(Step.EVICTED):
            answer = budgets.charge(pod)
            promised.update([answer] if isinstance(answer, str) and answer else [])
    return promised
