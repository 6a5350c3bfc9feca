"""How much of a plan may run at once: the registry of limits.

The plan is always whole. Its chains are gone through in their order, worst node first; a
chain of which every move keeps every limit belongs to this cycle, another is put off, and
says by which limit. What is under way already counts. Moves from nodes that are to be
emptied have a limit of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId
from rebalancer.evictability import Ledger, Purpose
from rebalancer.limits import at_once, purpose_of, replicas_of
from rebalancer.planner.movable import Movable
from rebalancer.planner.ordering import Step
from rebalancer.planner.problem import Problem
from rebalancer.planner.settings import PlannerSettings
from rebalancer.reasons import Refusal


class Running:
    """What runs in this cycle so far."""

    def __init__(self, problem: Problem, *, alone: bool = False) -> None:
        self.problem = problem
        self.settings: PlannerSettings = problem.demand.settings
        self.ledger = Ledger(problem.demand.budgets)
        self.for_load = 0
        self.namespaces: Counter[str] = Counter()
        """Moves for load, as those under way and those of this cycle."""
        self.sources: Counter[int] = Counter()
        self.targets: Counter[int] = Counter()
        self.workloads: Counter[ControllerId] = Counter()
        self.sets: Counter[ControllerId] = Counter()
        for record in () if alone else problem.snapshot.migrations.values():
            if record.open:
                self._count_open(record)

    def count(self, step: Step, sign: int) -> None:
        """Let a move run, or not after all."""
        m = step.m
        if not m.maintenance:
            self.for_load += sign
            self.namespaces[m.pod.namespace] += sign
        self.sources[m.row] += sign
        self.targets[step.row] += sign
        workload = self.workload(m)
        if workload is not None:
            self.workloads[workload] += sign
        if m.stateful and m.group is not None:
            self.sets[m.group] += sign

    def workload(self, m: Movable) -> ControllerId | None:
        """Return what a person would name as the owner."""
        found = self.problem.snapshot.top_workload(m.pod)
        return found.controller_id if found is not None else m.group

    def replicas(self, m: Movable) -> int:
        return replicas_of(m.pod, self.problem.snapshot)

    def _count_open(self, record: MigrationRecord) -> None:
        rows = self.problem.row_of
        if record.source in rows:
            self.sources[rows[record.source]] += 1
        if record.target in rows:
            self.targets[rows[record.target]] += 1
        if record.workload_id is not None:
            self.workloads[record.workload_id] += 1
        if purpose_of(record) is Purpose.LOAD:
            self.namespaces[record.namespace] += 1


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: tells whether a move is within it, counting what runs."""

    name: str
    keeps: Callable[[Running, Step], bool]


def _per_cycle(running: Running, step: Step) -> bool:
    return step.m.maintenance or running.for_load < running.settings.max_moves


def _per_namespace(running: Running, step: Step) -> bool:
    limit, namespace = running.settings.max_per_namespace, step.m.pod.namespace
    return step.m.maintenance or limit is None or running.namespaces[namespace] < limit


def _per_source(running: Running, step: Step) -> bool:
    return step.m.maintenance or (
        running.sources[step.m.row] < running.settings.max_in_flight_per_node
    )


def _per_emptied_source(running: Running, step: Step) -> bool:
    return not step.m.maintenance or (
        running.sources[step.m.row] < running.settings.maintenance_parallelism
    )


def _per_target(running: Running, step: Step) -> bool:
    return running.targets[step.row] < running.settings.max_inbound_per_node


def _per_workload(running: Running, step: Step) -> bool:
    workload = running.workload(step.m)
    return workload is None or running.workloads[workload] < at_once(running.replicas(step.m))


def _per_stateful_set(running: Running, step: Step) -> bool:
    m = step.m
    return not m.stateful or m.group is None or running.sets[m.group] == 0


def _within_budget(running: Running, step: Step) -> bool:
    return running.ledger.take(step.m.pod) is None


LIMITS: tuple[Limit, ...] = (
    Limit("maxReschedulePods", _per_cycle),
    Limit("maxPerNamespace", _per_namespace),
    Limit("maxInFlightPerNode", _per_source),
    Limit("maintenanceParallelism", _per_emptied_source),
    Limit("maxInboundPerNode", _per_target),
    Limit("StatefulSetOneAtATime", _per_stateful_set),
    Limit("workload", _per_workload),
    Limit("PodDisruptionBudget", _within_budget),
)


def cut(problem: Problem, found: Sequence[Sequence[Step]]) -> dict[Movable, str]:
    """Return by which limit each move is put off; empty for those of this cycle."""
    running = Running(problem)
    verdicts: dict[Movable, str] = {}
    for chain in found:
        verdict = _start(running, chain)
        verdicts.update({step.m: verdict for step in chain})
    return verdicts


def startable(problem: Problem, chain: Sequence[Step]) -> Refusal | None:
    """Return why a chain could never be started whole, even if nothing else ran."""
    broken = _start(Running(problem, alone=True), chain) if len(chain) > 1 else ""
    if not broken:
        return None
    words = f"its {len(chain)} moves belong together, and {broken} never lets all of them start"
    return Refusal("ChainTooLong", words, for_good=False)


def _start(running: Running, chain: Sequence[Step]) -> str:
    """Let a chain run whole, or return the limit that it breaks."""
    started: list[Step] = []
    for step in chain:
        broken = next((limit.name for limit in LIMITS if not limit.keeps(running, step)), "")
        if broken:
            running.ledger.give_back(step.m.pod)
            for other in started:
                running.count(other, -1)
                running.ledger.give_back(other.m.pod)
            return broken
        running.count(step, +1)
        started.append(step)
    return ""
