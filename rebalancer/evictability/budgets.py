"""What PodDisruptionBudgets allow, for one pod and for many in a row.

`Budgets` says what the Eviction API would answer now; a `Ledger` also counts what a plan has
taken already, so that the second pod is not promised what the first one got. The arithmetic
is that of pkg/registry/core/pod/storage/eviction.go, through common.cluster.disruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from common.cluster.disruption import (
    ALWAYS_ALLOW,
    MAX_DISRUPTED_PODS,
    Claim,
    claim,
    needs_no_budget,
)
from common.cluster.records import PodRecord, PodUid
from common.cluster.selectors import Operator
from common.cluster.workloads import BudgetRecord
from common.contract import TEMPORARY_PDB_LABEL
from rebalancer.reasons import Refusal

_NOTHING_TAKEN: Final[Mapping[str, int]] = MappingProxyType({})
_NOBODY: Final = ""


class Budgets:
    """All budgets of a snapshot, found by namespace and label."""

    def __init__(self, budgets: Iterable[BudgetRecord]) -> None:
        self._indexes: dict[str, _Index] = {}
        self._found: dict[int, tuple[PodRecord, tuple[BudgetRecord, ...]]] = {}
        for budget in budgets:
            self._indexes.setdefault(budget.namespace, _Index()).add(budget)

    def matching(self, pod: PodRecord) -> tuple[BudgetRecord, ...]:
        """Return the budgets that cover a pod, by name."""
        known = self._found.get(id(pod.labels))
        # Pods with equal labels share one map, also across namespaces.
        if known is not None and known[0].namespace == pod.namespace:
            return known[1]
        index = self._indexes.get(pod.namespace)
        found = index.matching(pod.labels) if index is not None else ()
        self._found[id(pod.labels)] = pod, found
        return found

    def refusal(self, pod: PodRecord) -> Refusal | None:
        """Return why the pod may not be evicted now, if so."""
        answer = self.charge(pod)
        return answer if isinstance(answer, Refusal) else None

    def charge(self, pod: PodRecord, taken: Mapping[str, int] = _NOTHING_TAKEN) -> Refusal | str:
        """Return whose budget the eviction costs (empty: nobody's), or why it is refused.

        `taken` counts by budget what is spent and not yet in its status.
        """
        if needs_no_budget(pod.phase, terminating=pod.terminating):
            return _NOBODY
        found = self.matching(pod)
        if not found:
            return _NOBODY
        if len(found) > 1:
            return _several(found)
        return _ask(found[0], pod, taken.get(found[0].key, 0))


class Ledger:
    """Budgets while a plan is made: what is taken stays taken until it is given back."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._taken: Counter[str] = Counter()
        self._paid: dict[PodUid, str] = {}

    def take(self, pod: PodRecord) -> Refusal | None:
        """Charge a pod's eviction to its budget, once; nothing is charged when refused."""
        if pod.uid in self._paid:
            return None
        answer = self._budgets.charge(pod, self._taken)
        if isinstance(answer, Refusal):
            return answer
        self._paid[pod.uid] = answer
        if answer:
            self._taken[answer] += 1
        return None

    def give_back(self, pod: PodRecord) -> None:
        """Undo what was taken for a pod; nothing happens if nothing was."""
        payer = self._paid.pop(pod.uid, _NOBODY)
        if payer:
            self._taken[payer] -= 1


class _Index:
    """The budgets of a namespace; a selector that demands a label is found by that label."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[BudgetRecord]] = {}
        self._others: list[BudgetRecord] = []

    def add(self, budget: BudgetRecord) -> None:
        demands = (r for r in budget.selector.requirements if r.operator is Operator.IN)
        demand = next(demands, None)
        if demand is None:
            self._others.append(budget)
            return
        # A pod has one value for the label, so it meets the budget at most once.
        for value in demand.values:
            self._by_label.setdefault((demand.key, value), []).append(budget)

    def matching(self, labels: Mapping[str, str]) -> tuple[BudgetRecord, ...]:
        by_label = self._by_label
        near = [b for label in labels.items() for b in by_label.get(label, ())]
        found = [b for b in (*near, *self._others) if b.selector.matches(labels)]
        return tuple(sorted(found, key=_name) if len(found) > 1 else found)


def _name(budget: BudgetRecord) -> str:
    return budget.name


def _ask(budget: BudgetRecord, pod: PodRecord, taken: int) -> Refusal | str:
    wanted = claim(
        phase=pod.phase,
        terminating=pod.terminating,
        ready=pod.ready,
        policy=ALWAYS_ALLOW if budget.always_allow_unhealthy else None,
        current_healthy=budget.current_healthy - taken,
        desired_healthy=budget.desired_healthy,
    )
    if wanted is not Claim.DISRUPTION:
        return _NOBODY
    return _unsettled(budget) or _exhausted(budget, taken) or budget.key


def _several(found: tuple[BudgetRecord, ...]) -> Refusal:
    theirs = [budget for budget in found if TEMPORARY_PDB_LABEL not in budget.labels]
    names = " and ".join(budget.name for budget in found)
    if len(theirs) > 1:
        return Refusal("SeveralPdbs", f"PDBs {names} cover it, which the Eviction API refuses")
    words = f"of PDBs {names} the temporary one is about to be removed"
    return Refusal("TemporaryPdbGivesWay", words, for_good=False)


def _unsettled(budget: BudgetRecord) -> Refusal | None:
    if budget.observed_generation < budget.generation:
        words = f"PDB {budget.name} was changed and nobody has counted anew yet"
        return Refusal("PdbUnsettled", words, for_good=False)
    if len(budget.disrupted) > MAX_DISRUPTED_PODS:
        words = f"PDB {budget.name} waits for {len(budget.disrupted)} evictions to show"
        return Refusal("PdbUnsettled", words, for_good=False)
    return None


def _exhausted(budget: BudgetRecord, taken: int) -> Refusal | None:
    left = budget.disruptions_allowed - taken
    if left > 0:
        return None
    words = (
        f"PDB {budget.name} allows {max(0, left)} more disruptions: {budget.current_healthy} of "
        f"{budget.expected_pods} pods healthy, {budget.desired_healthy} needed"
    )
    if taken:
        words += f", {taken} spent by this plan"
    never = budget.desired_healthy >= budget.expected_pods > 0
    return Refusal("PdbExhausted", words, for_good=never)
