"""How far a node under maintenance is emptied, in numbers and in a sentence.

`14 of 18 pods moved; 2 wait for PDB web; 2 stay: local storage`. Pods that belong to the
node (of DaemonSets, static ones) are not counted, as `kubectl drain` does not. How many
there were at the beginning is remembered on the node, for Migrations are forgotten after an
hour and a drain may take longer. Pure: from a look at the cluster to a value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from common.cluster.migrations import MigrationRecord, Phase
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.snapshot import NodeView, Snapshot
from common.contract import MAINTENANCE_PODS, TEMPORARY_PDB_LABEL, under_maintenance
from rebalancer.evictability import Budgets
from rebalancer.planner import Plan
from rebalancer.reasons import Refusal

CLAUSES: Final = 6
"""Reasons that are told one by one, the most frequent ones; the rest is summed up."""

_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BUDGET: Final = re.compile(r"Pdb|Budget")
_TURN: Final = " for a turn"
_TURNS: Final = frozenset(
    {
        "MaintenanceParallelism",
        "MaxInboundPerNode",
        "StatefulSetOneAtATime",
        "WaitsForRoom",
        "WorkloadAtOnce",
    }
)
"""Reasons that pass with moves that are under way."""


class Kind(StrEnum):
    """What holds for a pod that is still on the node."""

    MOVING = "moving"
    NEXT = "next"
    """Nothing is known against it."""
    WAITING = "waiting"
    STAYING = "staying"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One node's emptying, so far."""

    total: int
    counts: Mapping[tuple[Kind, str], int]
    """By kind and the words that follow `wait` or `stay`."""

    @property
    def moved(self) -> int:
        return self.total - sum(self.counts.values())

    @property
    def done(self) -> bool:
        """Tell whether whoever may leave has left."""
        return all(kind is Kind.STAYING for kind, _ in self.counts)

    def of(self, kind: Kind) -> int:
        return sum(count for (found, _), count in self.counts.items() if found is kind)

    @property
    def words(self) -> str:
        """Say it in one sentence."""
        if not self.total:
            return "no pods to move"
        return "; ".join((f"{self.moved} of {self.total} pods moved", *self._clauses()))

    def _clauses(self) -> Iterator[str]:
        for kind, ending in ((Kind.MOVING, "moving"), (Kind.NEXT, "next")):
            if count := self.of(kind):
                yield f"{count} {'is' if count == 1 else 'are'} {ending}"
        told = [item for item in self.counts.items() if item[0][0] in _VERBS]
        told.sort(key=lambda item: (item[0][0] is Kind.STAYING, -item[1], item[0][1]))
        for (kind, why), count in told[:CLAUSES]:
            yield f"{count} {_VERBS[kind]}{'s' if count == 1 else ''}{why}"
        if rest := sum(count for _, count in told[CLAUSES:]):
            yield f"{rest} more for other reasons"


_VERBS: Final = {Kind.WAITING: "wait", Kind.STAYING: "stay"}


def progress(node: NodeView, snapshot: Snapshot, plan: Plan | None) -> Progress:
    """Return how far a node is emptied, by the last plan and what has become of it."""
    look = _Look(node, snapshot, plan)
    counts = Counter(look.standing(pod) for pod in node.pods.values() if not _belongs(pod))
    return Progress(total=max(_remembered(node), sum(counts.values())), counts=dict(counts))


def predicted_peak(plan: Plan, snapshot: Snapshot) -> str | None:
    """Say how full the other nodes will be; None if nothing is known of them."""
    others = [n for n in plan.nodes if not _labelled(snapshot, n.name) and not n.unknown]
    if not others:
        return None
    cpu = max(others, key=lambda node: node.after.cpu)
    memory = max(others, key=lambda node: node.after.memory)
    return (
        f"the other nodes will use at most {cpu.after.cpu:.0f} % of their CPU ({cpu.name}) "
        f"and {memory.after.memory:.0f} % of their memory ({memory.name})"
    )


class _Look:
    """What the pods of one node are judged by."""

    def __init__(self, node: NodeView, snapshot: Snapshot, plan: Plan | None) -> None:
        self._migrations = snapshot.migrations
        spaces = {pod.namespace for pod in node.pods.values()}
        near = (b for b in snapshot.budgets.values() if b.namespace in spaces)
        self._budgets = Budgets(near)
        refused = plan.refused if plan is not None else ()
        self._reasons = {found.uid: found.reasons for found in refused}
        moves = plan.moves if plan is not None else ()
        self._deferred: dict[PodUid, str] = {m.uid: m.deferred_by for m in moves}

    def standing(self, pod: PodRecord) -> tuple[Kind, str]:
        """Return what holds for a pod, and why."""
        migration = self._migrations.get(pod.uid)
        if pod.terminating:
            return Kind.MOVING, ""
        if migration is not None and migration.open:
            return self._under_way(pod, migration)
        limit = self._deferred.get(pod.uid)
        if limit is not None:
            return self._deferred_by(pod, limit)
        return self._refused(pod, self._reasons.get(pod.uid, ()))

    def _under_way(self, pod: PodRecord, migration: MigrationRecord) -> tuple[Kind, str]:
        missing = [c.reason for c in migration.conditions if c.status != "True"]
        if any(map(_BUDGET.search, missing)):
            return Kind.WAITING, self._for_budget(pod)
        if migration.phase == Phase.PENDING and missing:
            return Kind.WAITING, _TURN if missing[0] in _TURNS else f": {_spelt(missing[0])}"
        return Kind.MOVING, ""

    def _deferred_by(self, pod: PodRecord, limit: str) -> tuple[Kind, str]:
        if not limit:
            return Kind.NEXT, ""
        return Kind.WAITING, self._for_budget(pod) if _BUDGET.search(limit) else _TURN

    def _refused(self, pod: PodRecord, reasons: tuple[Refusal, ...]) -> tuple[Kind, str]:
        if not reasons:
            return Kind.NEXT, ""
        budget = any(_BUDGET.search(reason.name) for reason in reasons)
        for_good = [reason.name for reason in reasons if reason.for_good]
        if not for_good:
            words = self._for_budget(pod) if budget else f": {_spelt(reasons[0].name)}"
            return Kind.WAITING, words
        others = [name for name in for_good if not _BUDGET.search(name)]
        return Kind.STAYING, f": {_spelt(others[0])}" if others else self._for_budget(pod)

    def _for_budget(self, pod: PodRecord) -> str:
        """Name the budget; one of ours, which gives way, only if there is no other."""
        found = sorted(self._budgets.matching(pod), key=lambda b: TEMPORARY_PDB_LABEL in b.labels)
        return f" for PDB {found[0].name}" if found else _TURN


def _belongs(pod: PodRecord) -> bool:
    return pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet")


def _remembered(node: NodeView) -> int:
    text = node.node.annotations.get(MAINTENANCE_PODS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _labelled(snapshot: Snapshot, name: NodeName) -> bool:
    view = snapshot.nodes.get(name)
    return view is not None and under_maintenance(view.node.labels)


def _spelt(name: str) -> str:
    """Return `LocalStorage` as `local storage`."""
    return _BOUNDARY.sub(" ", name).lower()
