# SPDX-License-Identifier: Apache-2.0
"""What PodDisruptionBudgets allow, for one pod and for many in a row.

`Budgets` predicts what the Eviction API would answer now; a `Ledger` also counts what a plan
has spent already, so that the second pod does not get what the first one has used. The
arithmetic is that of pkg/registry/core/pod/storage/eviction.go, through
common.cluster.disruption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from common.api.contract import TEMPORARY_PDB_LABEL
from common.cluster.disruption import (
    ALWAYS_ALLOW,
    MAX_DISRUPTED_PODS,
    AmountError,
    Claim,
    claim,
    desired_healthy,
    needs_no_budget,
)
from common.cluster.records import PodRecord, PodUid
from common.cluster.selectors import Operator
from common.cluster.workloads import BudgetRecord
from rebalancer.refusals import Reason, Refusal

_NOTHING_TAKEN: Final[Mapping[str, int]] = MappingProxyType({})
_NO_PDB: Final = ""


class Budgets:
    """All PDBs of a snapshot, indexed by namespace and label."""

    def __init__(self, budgets: Iterable[BudgetRecord]) -> None:
        self._indexes: dict[str, _Index] = {}
        self._found: dict[int, tuple[PodRecord, tuple[BudgetRecord, ...]]] = {}
        for budget in budgets:
            self._indexes.setdefault(budget.namespace, _Index()).add(budget)

    def matching(self, pod: PodRecord) -> tuple[BudgetRecord, ...]:
        """Return the PDBs that cover a pod, by name."""
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

    def refusal_after_surge(self, pod: PodRecord) -> Refusal | None:
        """Return why the pod may not go even once its workload has one healthy pod more."""
        found = self.matching(pod)
        if len(found) != 1:
            return _several(found) if found else None
        return _unsettled(found[0]) or _exhausted(_with_one_more(found[0]), 0)

    def charge(self, pod: PodRecord, taken: Mapping[str, int] = _NOTHING_TAKEN) -> Refusal | str:
        """Return the PDB that the eviction is charged to (empty: none), or why it is refused.

        `taken` counts what is spent of each PDB and not yet in its status.
        """
        if needs_no_budget(pod.phase, terminating=pod.terminating):
            return _NO_PDB
        found = self.matching(pod)
        if not found:
            return _NO_PDB
        if len(found) > 1:
            return _several(found)
        return _ask(found[0], pod, taken.get(found[0].key, 0))


class Ledger:
    """PDBs while a plan is made: what is taken stays taken until it is given back."""

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._taken: Counter[str] = Counter()
        self._paid: dict[PodUid, str] = {}

    def take(self, pod: PodRecord, *, surge: bool = False) -> Refusal | None:
        """Charge a pod's eviction to its PDB, once; nothing is charged if it is refused.

        A surge brings the healthy pod that it takes.
        """
        if surge:
            return self._budgets.refusal_after_surge(pod)
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
        """Undo what was taken for a pod, if anything was."""
        payer = self._paid.pop(pod.uid, _NO_PDB)
        if payer:
            self._taken[payer] -= 1


class _Index:
    """The PDBs of a namespace; a selector that requires a label is found by that label."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], list[BudgetRecord]] = {}
        self._others: list[BudgetRecord] = []

    def add(self, budget: BudgetRecord) -> None:
        demands = (r for r in budget.selector.requirements if r.operator is Operator.IN)
        demand = next(demands, None)
        if demand is None:
            self._others.append(budget)
            return
        # A pod has one value for the label, so it finds the PDB at most once.
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
        return _NO_PDB
    return _unsettled(budget) or _exhausted(budget, taken) or budget.key


def _several(found: tuple[BudgetRecord, ...]) -> Refusal:
    theirs = [budget for budget in found if TEMPORARY_PDB_LABEL not in budget.labels]
    names = " and ".join(budget.name for budget in found)
    if len(theirs) > 1:
        return Reason.SEVERAL_PDBS.refusal(pdbs=names)
    return Reason.TEMPORARY_PDB_GIVES_WAY.refusal(pdbs=names)


def _with_one_more(budget: BudgetRecord) -> BudgetRecord:
    """Return the PDB as its status will be when the workload has one healthy pod more."""
    expected, healthy = budget.expected_pods + 1, budget.current_healthy + 1
    try:
        desired = desired_healthy(budget.min_available, budget.max_unavailable, expected)
    except AmountError:
        return budget
    return msgspec.structs.replace(
        budget,
        expected_pods=expected,
        current_healthy=healthy,
        desired_healthy=desired,
        disruptions_allowed=max(0, healthy - desired),
    )


def _unsettled(budget: BudgetRecord) -> Refusal | None:
    if budget.observed_generation < budget.generation:
        return Reason.PDB_UNSETTLED.refusal(pdb=budget.name)
    if len(budget.disrupted) > MAX_DISRUPTED_PODS:
        return Reason.PDB_UNSETTLED.refusal("pending", pdb=budget.name, count=len(budget.disrupted))
    return None


def _exhausted(budget: BudgetRecord, taken: int) -> Refusal | None:
    left = budget.disruptions_allowed - taken
    if left > 0:
        return None
    counts = {
        "healthy": budget.current_healthy,
        "expected": budget.expected_pods,
        "desired": budget.desired_healthy,
    }
    if budget.desired_healthy >= budget.expected_pods > 0:
        return Reason.PDB_EXHAUSTED.refusal("never", pdb=budget.name, **counts)
    if not taken:
        return Reason.PDB_EXHAUSTED.refusal(pdb=budget.name, left=max(0, left), **counts)
    counts |= {"left": max(0, left), "taken": taken}
    return Reason.PDB_EXHAUSTED.refusal("planned", pdb=budget.name, **counts)
