# SPDX-License-Identifier: Apache-2.0
"""Which part of a plan runs in this cycle, and what puts off the rest.

The plan is always whole. Its chains are gone through in their order, worst node first: a chain
of which every move keeps every limit and every PodDisruptionBudget belongs to this cycle;
another one is put off, and names what puts it off. What is under way already counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from common.api.migrations import Purpose
from common.cluster.records import ControllerId
from rebalancer.evictability import Ledger
from rebalancer.limits import LimitedMove, Running, Tally, replicas_of
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step
from rebalancer.planner.problem import Problem
from rebalancer.refusals import Reason, Refusal

PDB: Final = "PodDisruptionBudget"
_NEW: Final = Running.THIS_CYCLE | Running.UNDER_WAY


class Cycle:
    """What runs in this cycle so far."""

    def __init__(self, problem: Problem, *, alone: bool = False) -> None:
        """With `alone`, as if no Migration were under way."""
        self.problem = problem
        rules = self._rules = problem.demand.cluster.rules
        self.tally = Tally(rules)
        self.ledger = Ledger(problem.demand.budgets)
        for record in () if alone else problem.snapshot.migrations.values():
            if record.open:
                # Pacing holds the next pod of a StatefulSet until this one has moved; the plan
                # may name it already.
                move = LimitedMove.of(record, rules)._replace(stateful_set=None)
                self.tally.add(move, Running.UNDER_WAY)

    def count(self, step: Step, *, sign: int = +1) -> None:
        """Let a move run; with `sign` -1, not after all."""
        self.tally.add(self.limited(step), _NEW, sign=sign)

    def end(self, step: Step, *, sign: int = +1) -> None:
        """Let a move be over, which still belongs to the cycle; with `sign` -1, not after all."""
        self.tally.add(self.limited(step), _NEW, sign=-sign)
        self.tally.add(self.limited(step), Running.THIS_CYCLE, sign=sign)

    def limited(self, step: Step) -> LimitedMove:
        """Return a move as limits count it."""
        m, nodes = step.m, self.problem.nodes
        workload = self._workload(m)
        return LimitedMove(
            purpose=Purpose.MAINTENANCE if m.maintenance else Purpose.LOAD,
            namespace=m.pod.namespace,
            source=nodes[m.row],
            target=nodes[step.row],
            workload=workload,
            stateful_set=m.group if m.stateful else None,
            surging=workload if m.surges else None,
            pod_group=self._rules.pod_groups.key_of(m.pod.uid),
        )

    def _workload(self, m: Movable) -> ControllerId | None:
        found = self.problem.snapshot.top_workload(m.pod)
        return found.controller_id if found is not None else m.group


def within_limits(cycle: Cycle, step: Step) -> str:
    replicas = replicas_of(step.m.pod, cycle.problem.snapshot)
    broken = next(cycle.tally.broken_by(cycle.limited(step), replicas), None)
    return broken[0].name if broken is not None else ""


def within_budgets(cycle: Cycle, step: Step) -> str:
    return "" if cycle.ledger.take(step.m.pod, surge=step.m.surges) is None else PDB


Check = Callable[[Cycle, Step], str]
"""Returns what puts a move off; empty if it may run."""
CHECKS: Final[tuple[Check, ...]] = (within_limits, within_budgets)


Held = Callable[[Movable], Refusal | None]
"""Returns which rule of a pool, a namespace or a schedule puts a move off."""


def cut(problem: Problem, found: Sequence[Sequence[Step]], held: Held) -> dict[Movable, str]:
    """Return what puts each move off; empty for those of this cycle.

    A chain that a rule puts off takes no place in the limits: others may start instead.
    """
    cycle = Cycle(problem)
    verdicts: dict[Movable, str] = {}
    for chain in found:
        rule = next((why for step in chain if (why := held(step.m)) is not None), None)
        verdict = _start(cycle, chain) if rule is None else rule.message
        verdicts.update({step.m: verdict for step in chain})
    return verdicts


def startable(problem: Problem, chain: Sequence[Step]) -> Refusal | None:
    """Return why a chain could never be started whole, even if nothing else ran."""
    broken = _start(Cycle(problem, alone=True), chain) if len(chain) > 1 else ""
    return Reason.CHAIN_TOO_LONG.refusal(moves=len(chain), limit=broken) if broken else None


def in_turn(problem: Problem, chain: Sequence[Step]) -> list[Step]:
    """Let moves of a chain wait for earlier ones where limits let only some run at once.

    As few of them as possible; where waiting does not help, the chain stays as it is.
    """
    cycle, started, awaited = Cycle(problem, alone=True), list[Step](), _Awaited()
    for step in chain:
        waits = _waits_for(cycle, step, started, awaited)
        if waits is None:
            return list(chain)
        found = replace(step, needs=(*step.needs, *waits)) if waits else step
        awaited.add(found)
        cycle.count(found)
        started.append(found)
    return started


def _waits_for(
    cycle: Cycle, step: Step, started: Sequence[Step], awaited: _Awaited
) -> tuple[Movable, ...] | None:
    """Return the earlier moves that one has to wait for too; None if even all are too few."""

    def is_broken(more: Sequence[Movable]) -> bool:
        before = awaited.before((*step.needs, *more))
        over = [other for other in started if other.m in before]
        return bool(_broken(cycle, step, over, (within_limits,)))

    waits: list[Movable] = []
    for other in started:
        if not is_broken(waits):
            break
        waits.append(other.m)
    if is_broken(waits):
        return None
    for m in waits[:-1]:
        rest = [other for other in waits if other is not m]
        waits = waits if is_broken(rest) else rest
    return tuple(waits)


class _Awaited:
    """What the moves of a chain wait for, directly or not."""

    def __init__(self) -> None:
        self._before: dict[Movable, set[Movable]] = {}

    def add(self, step: Step) -> None:
        self._before[step.m] = self.before(step.needs)

    def before(self, needs: Collection[Movable]) -> set[Movable]:
        """Return these with all that they wait for."""
        return set(needs).union(*(self._before.get(m, ()) for m in needs))


def _broken(cycle: Cycle, step: Step, over: Sequence[Step], checks: Sequence[Check]) -> str:
    """Return what keeps a move from running once others are over; empty if nothing does."""
    for other in over:
        cycle.end(other)
    found = next((found for check in checks if (found := check(cycle, step))), "")
    for other in over:
        cycle.end(other, sign=-1)
    return found


def _start(cycle: Cycle, chain: Sequence[Step]) -> str:
    """Let a chain run whole, or return what puts it off."""
    started: list[Step] = []
    awaited = _Awaited()
    for step in chain:
        # What a move waits for, directly or not, never runs at the same time.
        awaited.add(step)
        before = awaited.before((step.m,))
        over = [other for other in started if other.m in before]
        broken = _broken(cycle, step, over, CHECKS)
        if broken:
            cycle.ledger.give_back(step.m.pod)
            for other in started:
                cycle.count(other, sign=-1)
                cycle.ledger.give_back(other.m.pod)
            return broken
        cycle.count(step)
        started.append(step)
    return ""
