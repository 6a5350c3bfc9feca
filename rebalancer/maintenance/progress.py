# SPDX-License-Identifier: Apache-2.0
"""How far a node under maintenance is drained, in numbers and in a sentence.

`14 of 18 pods moved; 2 wait for PDB web; 2 stay: local storage`. Pods that belong to the
node (of DaemonSets, static pods) are not counted, as `kubectl drain` does not count them. How many
there were at the beginning is recorded on the node, because finished Migrations are removed after
an hour and a drain may take longer. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from common.api.contract import MAINTENANCE_PODS, TEMPORARY_PDB_LABEL, under_maintenance
from common.api.migrations import Phase
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord, PodUid
from rebalancer.evictability import Budgets
from rebalancer.evictability.deadline import after_deadline
from rebalancer.planner import Plan
from rebalancer.planner.plan import NodePlan
from rebalancer.refusals import Reason, Refusal

CLAUSES: Final = 6
"""Reasons that are listed one by one, the most frequent first; the rest is summed up."""

_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BUDGET: Final = re.compile(r"Pdb|Budget")
_TURN: Final = " for a turn"
_TURNS: Final = frozenset(
    {
        Reason.MAINTENANCE_PARALLELISM,
        Reason.MAX_INBOUND_PER_NODE,
        Reason.STATEFUL_SET_ONE_AT_A_TIME,
        Reason.WAITS_FOR_ROOM,
        Reason.WORKLOAD_AT_ONCE,
    }
)
"""Reasons that go away as moves under way end."""


class Kind(StrEnum):
    """The state of a pod that is still on the node."""

    MOVING = "moving"
    NEXT = "next"
    """Nothing keeps it from being moved."""
    WAITING = "waiting"
    STAYING = "staying"


class RemainingPod(msgspec.Struct, frozen=True):
    """A pod that is still on the node."""

    pod: str
    uid: PodUid
    kind: Kind
    why: str
    """The text that follows `wait` or `stay`."""
    until_deadline: bool = False
    """All that keeps it there holds only until the deadline of the maintenance."""

    @property
    def text(self) -> str:
        """Return the pod and what it does: `shop/web-1 waits for PDB web`."""
        verb = f"{_VERBS[self.kind]}s" if self.kind in _VERBS else f"is {self.kind.value}"
        return f"{self.pod} {verb}{self.why}"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one node is drained."""

    total: int
    remaining: tuple[RemainingPod, ...] = ()
    """By kind and name."""

    @property
    def counts(self) -> Mapping[tuple[Kind, str], int]:
        """How many pods remain by kind and the text that follows `wait` or `stay`."""
        return Counter((pod.kind, pod.why) for pod in self.remaining)

    @property
    def moved(self) -> int:
        return self.total - len(self.remaining)

    @property
    def done(self) -> bool:
        """Tell whether no pod remains but those that belong to the node."""
        return not self.remaining

    @property
    def stuck(self) -> bool:
        """Tell whether pods remain and none of them will leave unless something changes."""
        return bool(self.remaining) and not any(
            pod.kind in (Kind.MOVING, Kind.NEXT) or pod.why == _TURN for pod in self.remaining
        )

    @property
    def stays(self) -> bool:
        """Tell whether every pod that remains has a reason that will not go away by itself."""
        return bool(self.remaining) and self.of(Kind.STAYING) == len(self.remaining)

    def of(self, kind: Kind) -> int:
        return sum(pod.kind is kind for pod in self.remaining)

    @property
    def text(self) -> str:
        """Return the progress in one sentence."""
        if not self.total:
            return "no pods to move"
        return "; ".join((f"{self.moved} of {self.total} pods moved", *self._clauses()))

    def named(self, most: int) -> str:
        """Return the pods that remain, each with what it does; of very many only the first."""
        names = [pod.text for pod in self.remaining[:most]]
        more = len(self.remaining) - most
        return ", ".join(names) + (f" and {more} more" if more > 0 else "")

    def _clauses(self) -> Iterator[str]:
        for kind, ending in ((Kind.MOVING, "moving"), (Kind.NEXT, "next")):
            if count := self.of(kind):
                yield f"{count} {'is' if count == 1 else 'are'} {ending}"
        listed = [item for item in self.counts.items() if item[0][0] in _VERBS]
        listed.sort(key=lambda item: (item[0][0] is Kind.STAYING, -item[1], item[0][1]))
        for (kind, why), count in listed[:CLAUSES]:
            yield f"{count} {_VERBS[kind]}{'s' if count == 1 else ''}{why}"
        if rest := sum(count for _, count in listed[CLAUSES:]):
            yield f"{rest} more for other reasons"


_ORDER: Final = (Kind.STAYING, Kind.WAITING, Kind.NEXT, Kind.MOVING)
"""Those that a reader has to do something about come first."""
_VERBS: Final = {Kind.WAITING: "wait", Kind.STAYING: "stay"}


def progress(node: NodeView, snapshot: Snapshot, plan: Plan | None) -> Progress:
    """Return how far a node is drained, by the last plan and what has become of it."""
    judgment = _Judgment(node, snapshot, plan)
    pods = (pod for pod in node.pods.values() if not _belongs(pod))
    found = [
        RemainingPod(pod.key, pod.uid, *judgment.of(pod), judgment.until_deadline(pod))
        for pod in pods
    ]
    found.sort(key=lambda each: (_ORDER.index(each.kind), each.pod))
    return Progress(total=max(_remembered(node), len(found)), remaining=tuple(found))


def predicted_peak(plan: Plan, snapshot: Snapshot) -> str:
    """Return how full the other nodes will be; where load is not known, by requests."""
    nodes = [n for n in plan.nodes if not _labeled(snapshot, n.name)]
    others = [n for n in nodes if not n.unknown]
    if others:
        return _peak(others, "will use at most")
    # NaN, which equals nothing, stands for a node that does not say how much it has.
    asked = [n for n in nodes if n.after.cpu == n.after.cpu and n.after.memory == n.after.memory]
    return _peak(asked, "have, by requests, at most") if asked else "no other node is known"


def _peak(others: Sequence[NodePlan], use: str) -> str:
    cpu = max(others, key=lambda node: node.after.cpu)
    memory = max(others, key=lambda node: node.after.memory)
    return (
        f"the other nodes {use} {cpu.after.cpu:.0f} % of their CPU ({cpu.name}) "
        f"and {memory.after.memory:.0f} % of their memory ({memory.name})"
    )


class _Judgment:
    """Tells the state of each pod of one node."""

    def __init__(self, node: NodeView, snapshot: Snapshot, plan: Plan | None) -> None:
        self._migrations = snapshot.migrations
        spaces = {pod.namespace for pod in node.pods.values()}
        near = (b for b in snapshot.budgets.values() if b.namespace in spaces)
        self._budgets = Budgets(near)
        refused = plan.refused if plan is not None else ()
        self._reasons = {found.uid: found.reasons for found in refused}
        moves = plan.moves if plan is not None else ()
        self._deferred: dict[PodUid, str] = {m.uid: m.deferred_by for m in moves}

    def of(self, pod: PodRecord) -> tuple[Kind, str]:
        """Return the state of a pod, and why."""
        migration = self._migrations.get(pod.uid)
        if pod.terminating:
            return Kind.MOVING, ""
        if migration is not None and migration.open:
            return self._under_way(pod, migration)
        limit = self._deferred.get(pod.uid)
        if limit is not None:
            return self._deferred_by(pod, limit)
        return self._refused(pod, self._reasons.get(pod.uid, ()))

    def until_deadline(self, pod: PodRecord) -> bool:
        """Tell whether a pod stays only until the deadline of the maintenance."""
        for_good = [each for each in self._reasons.get(pod.uid, ()) if each.permanent]
        return bool(for_good) and not after_deadline(for_good, pod)

    def _under_way(self, pod: PodRecord, migration: MigrationRecord) -> tuple[Kind, str]:
        missing = [c.reason for c in migration.conditions if c.status != "True"]
        if any(map(_BUDGET.search, missing)):
            return Kind.WAITING, self._for_budget(pod)
        if migration.phase == Phase.PENDING and missing:
            return Kind.WAITING, _TURN if missing[0] in _TURNS else f": {_spelled(missing[0])}"
        return Kind.MOVING, ""

    def _deferred_by(self, pod: PodRecord, limit: str) -> tuple[Kind, str]:
        if not limit:
            return Kind.NEXT, ""
        return Kind.WAITING, self._for_budget(pod) if _BUDGET.search(limit) else _TURN

    def _refused(self, pod: PodRecord, reasons: tuple[Refusal, ...]) -> tuple[Kind, str]:
        if not reasons:
            return Kind.NEXT, ""
        budget = any(_BUDGET.search(reason.name) for reason in reasons)
        for_good = [reason.name for reason in reasons if reason.permanent]
        if not for_good:
            why = self._for_budget(pod) if budget else f": {_spelled(reasons[0].name)}"
            return Kind.WAITING, why
        others = [name for name in for_good if not _BUDGET.search(name)]
        return Kind.STAYING, f": {_spelled(others[0])}" if others else self._for_budget(pod)

    def _for_budget(self, pod: PodRecord) -> str:
        """Name the PDB; a temporary one, which gives way, only if there is no other."""
        found = sorted(self._budgets.matching(pod), key=lambda b: TEMPORARY_PDB_LABEL in b.labels)
        return f" for PDB {found[0].name}" if found else _TURN


def _belongs(pod: PodRecord) -> bool:
    return pod.mirror or (pod.owner is not None and pod.owner.kind == "DaemonSet")


def _remembered(node: NodeView) -> int:
    text = node.node.annotations.get(MAINTENANCE_PODS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _labeled(snapshot: Snapshot, name: NodeName) -> bool:
    view = snapshot.nodes.get(name)
    return view is not None and under_maintenance(view.node.labels)


def _spelled(name: str) -> str:
    """Return `LocalStorage` as `local storage`."""
    return _BOUNDARY.sub(" ", name).lower()
