# SPDX-License-Identifier: Apache-2.0
"""Part of a plan as a linear problem in whole numbers: which pods go where, all rules at once.

A column stands for one pod going to one node. Rules hold for the end of the plan: loads and
requests of nodes, how many replicas a host or zone holds, siblings that repel each other,
topology spread constraints, and the goals. In which order the moves can be made is checked
afterwards, step by step; a solution without an order is excluded and the next one sought.

Everything else that decides where a pod may run is asked beforehand, in the cluster without
the pods that keep it out and may move away: that they stay apart is a rule of its own here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.cluster.records import ControllerId, PodUid
from common.cluster.shapes import HostPort, PodShape
from common.fit import Leave
from common.fit.index.ports import clash
from rebalancer.goals import PRECISION, AtMost, Relocate, Spread
from rebalancer.planner.company import Company, Repelled
from rebalancer.planner.constraints import constraints_decide
from rebalancer.planner.draft import TIED_COST, Draft
from rebalancer.planner.instance import Flags
from rebalancer.planner.movable import Movable
from rebalancer.planner.pool_levels import guards
from rebalancer.planner.program import Answer, LinearProblem, Program
from rebalancer.planner.replicas import Census
from rebalancer.strategies.evenness import Ints
from rebalancer.strategies.shares import NO_ZONE
from rebalancer.strategies.topologies import Topology

UNMET: Final = 1_000.0
"""What a ceiling costs that is not met, in evictions."""
LOST: Final = 300.0
"""What a pod costs that stays where its own goal says that it should not be."""
WISHED: Final = 3.0
"""The least of it, however little the goal matters: a move has to be cheaper."""
UNEVEN: Final = 100.0
"""What each pod costs by which a domain holds more than a goal for its pods allows."""
STUCK: Final = 100_000.0
"""What a pod costs that stays on a node that is to be emptied."""
SAFE: Final = 1e-5
"""Points that a solver's tolerance could hide."""
HIGHEST: Final = 1_000.0
"""Percent that no level of a pool reaches."""

Moves = Mapping[Movable, int]
Domain = Callable[[int], int]
"""The number of a row's domain; negative where it has none."""
Terms = list[tuple[int, float]]
"""Columns and what each of them counts."""


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """What may change: pods that may move, and rows that they may go to."""

    rows: tuple[int, ...]
    pods: tuple[Movable, ...]
    domains_aside: bool = False
    """Ask for places that hard topology spread constraints allow only after other moves."""


class Formulation:
    """One neighborhood as a linear problem."""

    def __init__(self, base: Draft, census: Census, hood: Neighborhood, *, strict: bool) -> None:
        """The base has the moves that stay; with `strict`, all goals have to be met."""
        self._base = base
        self._problem = base.problem
        self._census = census
        self._hood = hood
        self._strict = strict
        self._program = Program()
        self._moves: list[tuple[Movable, int]] = []
        """By column."""
        self._arriving: dict[int, list[int]] = defaultdict(list)
        self._leaving: dict[int, list[int]] = defaultdict(list)
        self._of: dict[Movable, list[int]] = defaultdict(list)
        self._unmet: dict[int, int] = {}
        self._kept: set[Topology] = set()
        """Constraints that are rules already."""
        self._groups: dict[ControllerId | PodUid, list[Movable]] = defaultdict(list)
        for m in hood.pods:
            self._groups[m.group or m.pod.uid].append(m)
        self._company = Company(base.fitting, self._groups)
        self._choices()
        self._each_once()
        self._loads()
        self._room()
        for pods in self._groups.values():
            self._replicas(pods)
            self._repelled(pods)
            self._topology(pods)
        for pair in self._company.repelled:
            self._keep_apart(pair)
            self._unswapped(
                self._groups[pair.one], self._groups[pair.other], self._domains(pair.key)
            )
        for port in self._company.ports:
            self._capped_port(port)
        self._pools()

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to choose."""
        return not self._moves

    def problem(self, *, nodes: int) -> LinearProblem:
        return self._program.problem(nodes=nodes)

    def moves(self, answer: Answer) -> dict[Movable, int] | None:
        """Return where pods go by an answer; None if it has no solution."""
        values = answer.column_values()
        if values is None:
            return None
        chosen = np.flatnonzero(values[: len(self._moves)] > 0.5)
        return dict(self._moves[column] for column in chosen.tolist())

    def exclude(self, moves: Moves) -> None:
        """Forbid that all of these moves are made."""
        columns = [c for c, (m, row) in enumerate(self._moves) if moves.get(m) == row]
        self._program.row([(column, 1.0) for column in columns], most=len(columns) - 1.0)

    def fewer(self, moves: Moves) -> None:
        """Ask for fewer moves than these."""
        columns = range(len(self._moves))
        self._program.row([(column, 1.0) for column in columns], most=len(moves) - 1.0)

    def _choices(self) -> None:
        rows = np.array(self._hood.rows, dtype=np.int64)
        for m in self._hood.pods:
            goal = self._problem.relocations.get(m.pod.uid)
            mask = self._base.targets(m, modeled_aside=True)
            if self._base.fitting.has_ties(m):
                mask &= self._without_company(m)
            for row in rows[mask[rows]].tolist():
                column = self._program.column(1.0 + self._lost(goal, m, row))
                self._moves.append((m, row))
                self._arriving[row].append(column)
                self._leaving[m.row].append(column)
                self._of[m].append(column)

    def _without_company(self, m: Movable) -> Flags:
        """Return where a pod fits once those are gone that may keep it out and may move."""
        base = self._base
        base.evaluations.spend(TIED_COST)
        gone = tuple(Leave(q.pod.uid) for q in self._company.of(m) if q not in base.moves)
        changes = (*base.changes(), *gone)
        if self._hood.domains_aside:
            return base.fitting.domains_aside(m, changes)
        fits = base.fitting.now(m, changes)[0]
        if base.fitting.is_in_its_own_way(m):
            # With its company, its own domain may be the only one, and without it is taken.
            fits = fits | base.fitting.now(m, base.changes())[0]
        return fits

    def _lost(self, goal: Relocate | None, m: Movable, row: int | None) -> float:
        """Return what it costs that a pod is not where its own goal asks for, in evictions."""
        lost = self._problem.lost(goal, m, row) if goal is not None else 0.0
        return max(LOST * lost, WISHED) if lost and row is None else LOST * lost

    def _each_once(self) -> None:
        for m in self._hood.pods:
            terms: Terms = [(column, 1.0) for column in self._of[m]]
            goal = self._problem.relocations.get(m.pod.uid)
            must = m.has_to_leave or goal is not None
            if must and not self._strict:
                most = self._lost(goal, m, None) if goal is not None else STUCK
                terms.append((self._program.column(most), 1.0))
            self._program.row(terms, least=float(must), most=1.0)

    def _flow(self, row: int, weight: Callable[[Movable], float]) -> Terms:
        """Return what a node gains by moves: arrivals less departures."""
        found = [(c, weight(self._moves[c][0])) for c in self._arriving[row]]
        return [*found, *((c, -weight(self._moves[c][0])) for c in self._leaving[row])]

    def _loads(self) -> None:
        problem = self._problem
        touched = sorted({m.row for m in self._hood.pods} | set(self._hood.rows))
        for axis in range(problem.capacity.shape[1]):
            for row in touched:
                flow, level = self._points(row, axis)
                unit = float(problem.capacity[row, axis]) / 100.0
                room = self._most(row, axis) / unit - level - SAFE
                if room < 0.0 and isinstance(problem.goal_of(row), AtMost):
                    # Above a ceiling that has to be met; or it is paid for.
                    escape = [] if self._strict else [(self._unmet_at(row), room)]
                    self._program.row([*flow, *escape], most=room)
                elif not problem.empty[row]:
                    self._program.row(flow, most=max(room, 0.0))

    def _points(self, row: int, axis: int) -> tuple[Terms, float]:
        """Return the points that moves bring to a node, and its level without them."""
        unit = float(self._problem.capacity[row, axis]) / 100.0
        flow = self._flow(row, lambda m: float(m.load[axis]) / unit)
        return flow, float(self._base.load[row, axis]) / unit

    def _most(self, row: int, axis: int) -> float:
        """Return what a node may use in the end."""
        problem = self._problem
        if isinstance(problem.goal_of(row), AtMost):
            return float(problem.enough[row, axis])
        most = float(problem.roof[row, axis])
        free = problem.emptied or problem.relocations or problem.distributions
        if problem.worst < problem.highest_ceiling and not free:
            most = min(most, problem.worst * float(problem.capacity[row, axis]) / 100.0)
        return most

    def _unmet_at(self, row: int) -> int:
        if row not in self._unmet:
            self._unmet[row] = self._program.column(UNMET)
        return self._unmet[row]

    def _room(self) -> None:
        base = self._base
        for row in self._hood.rows:
            arriving = [self._moves[column][0] for column in self._arriving[row]]
            if not arriving:
                continue
            self._program.row(
                self._flow(row, lambda _: 1.0), most=max(0.0, float(base.places[row]))
            )
            for line in range(base.free.shape[0]):
                self._room_for(row, line)

    def _room_for(self, row: int, line: int) -> None:
        """Let the requests of one resource fit on a node, where they might not."""
        base = self._base
        free = max(0.0, float(base.free[line, row]))
        more = [
            (c, float(dict(base.lines(self._moves[c][0])).get(line, 0)))
            for c in self._arriving[row]
        ]
        if sum(amount for _, amount in more) <= free:
            return
        held = base.fitting.held
        less = [(c, -float(dict(held(self._moves[c][0])).get(line, 0))) for c in self._leaving[row]]
        # In shares of what there is: a solver's tolerance is absolute.
        unit = max(free, max(amount for _, amount in more))
        self._program.row([(c, amount / unit) for c, amount in (*more, *less)], most=free / unit)

    def _replicas(self, pods: Sequence[Movable]) -> None:
        """Let no host and no zone hold more replicas than it may, or does."""
        counts = self._census.of(pods[0])
        if counts is not None and not constraints_decide(self._problem, pods[0]):
            self._capped(pods, lambda row: row, counts.per_host)
            zones = self._census.zone
            self._capped(pods, lambda row: int(zones[row]), counts.per_zone)

    def _repelled(self, pods: Sequence[Movable]) -> None:
        """Keep siblings apart that repel each other by required anti-affinity."""
        candidate = self._base.fitting.candidate(pods[0])
        for term in candidate.shape.anti_affinity:
            if term.selects(candidate.namespace, candidate.labels):
                domain = self._domains(term.topology_key)
                self._capped(pods, domain, 1)
                self._unswapped(pods, pods, domain)
                self._undisturbed(pods, pods, domain, most=1)

    def _keep_apart(self, pair: Repelled) -> None:
        """Let a domain hold pods of one of two workloads, unless it holds both already."""
        domain = self._domains(pair.key)
        sides = [self._groups[pair.one], self._groups[pair.other]]
        self._undisturbed(sides[0], sides[1], domain)
        self._undisturbed(sides[1], sides[0], domain)
        now = [self._siblings_in(pods[0], domain) for pods in sides]
        change = [self._exchanged(pods, domain) for pods in sides]
        for number in sorted(set(change[0]) | set(change[1])):
            there = [counts[number] for counts in now]
            terms = [found.get(number, []) for found in change]
            coming = [(column, value) for each in terms for column, value in each if value > 0]
            if number < 0 or not coming:
                continue
            if all(there):
                self._program.row(coming, most=0.0)
                continue
            side = self._program.column()
            for each, count, sign in zip(terms, there, (-1.0, 1.0), strict=True):
                most = float(count + len(each))
                limit = most if sign > 0 else 0.0
                self._program.row([*each, (side, sign * most)], most=limit - count)

    def _undisturbed(
        self, pods: Sequence[Movable], others: Sequence[Movable], domain: Domain, *, most: int = 0
    ) -> None:
        """Let a pod go to another node of its domain only if pods that repel it are gone there.

        It breaks no more rules there than before, but the scheduler would not place it.
        """
        now, change = self._siblings_in(others[0], domain), self._exchanged(others, domain)
        for column in (column for m in pods for column in self._of[m]):
            m, row = self._moves[column]
            number = domain(row)
            if number >= 0 and domain(m.row) == number and now[number] > most:
                there = change.get(number, [])
                free = float(now[number] - most + sum(value > 0 for _, value in there))
                self._program.row([*there, (column, free)], most=free + most - now[number])

    def _capped_port(self, port: HostPort) -> None:
        """Let no more than one pod of a node have a port, or as many as have it now."""
        users = list(self._company.users(port))
        self._unswapped(users, users, lambda row: row)
        change = self._exchanged(users, lambda row: row)
        for row, terms in change.items():
            taken = sum(
                any(clash(port, other) for other in shape.host_ports) for shape in self._at(row)
            )
            self._program.row(terms, most=max(0.0, 1.0 - taken))

    def _unswapped(
        self, pods: Sequence[Movable], others: Sequence[Movable], domain: Domain
    ) -> None:
        """Exclude that two pods take each other's place that cannot be in one at a time."""
        into: dict[tuple[int, int], list[int]] = defaultdict(list)
        for column in (column for m in others for column in self._of[m]):
            m, row = self._moves[column]
            into[domain(m.row), domain(row)].append(column)
        for column in (column for m in pods for column in self._of[m]):
            m, row = self._moves[column]
            here, there = domain(m.row), domain(row)
            back = into.get((there, here), ()) if here != there else ()
            for other in back:
                if other > column or pods is not others:
                    self._program.row([(column, 1.0), (other, 1.0)], most=1.0)

    def _at(self, row: int) -> Iterator[PodShape]:
        """Return the pods of a node with the moves that stay."""
        problem, moved = self._problem, {m.pod.uid for m in self._base.moves}
        for uid, pod in problem.snapshot.nodes[problem.nodes[row]].pods.items():
            if uid not in moved and not (pod.terminating or pod.finished):
                yield pod.shape
        yield from (m.pod.shape for m, target in self._base.moves.items() if target == row)

    def _capped(self, pods: Sequence[Movable], domain: Domain, most: int) -> None:
        now = self._siblings_in(pods[0], domain)
        for number, terms in self._exchanged(pods, domain).items():
            highest = max(most, now[number]) - now[number]
            if number >= 0 and sum(value > 0 for _, value in terms) > highest:
                self._program.row(terms, most=float(highest))

    def _exchanged(self, pods: Iterable[Movable], domain: Domain) -> dict[int, Terms]:
        """Return what each domain gains by moves of these pods."""
        found: dict[int, Terms] = defaultdict(list)
        for column in (column for m in pods for column in self._of[m]):
            m, row = self._moves[column]
            here, there = domain(m.row), domain(row)
            if here != there:
                found[there].append((column, 1.0))
                found[here].append((column, -1.0))
        return found

    def _siblings_in(self, m: Movable, domain: Domain) -> Counter[int]:
        """Count the replicas of a pod's workload by domain, with the moves that stay."""
        rows = self._problem.row_of
        siblings = self._problem.snapshot.siblings(m.pod).values()
        there = (p for p in siblings if not (p.terminating or p.finished) and p.node in rows)
        found = Counter(domain(rows[pod.node]) for pod in there)
        for other, row in self._base.moves.items():
            if other.group is not None and other.group == m.group:
                found[domain(other.row)] -= 1
                found[domain(row)] += 1
        return found

    def _domains(self, key: str) -> Domain:
        """Return the domains of a topology key."""
        snapshot, nodes = self._problem.snapshot, self._problem.nodes
        labels = [snapshot.nodes[name].node.labels.get(key, "") for name in nodes]
        numbers = {value: number for number, value in enumerate(sorted(set(labels) - {""}))}
        return lambda row: numbers.get(labels[row], NO_ZONE)

    def _topology(self, pods: Sequence[Movable]) -> None:
        """Keep to topology spread constraints, meet the goals, and let others get no worse."""
        counts = self._base.domains
        domains, bound = counts.domains, counts.domains.binding(pods[0])
        goals = {domains.of_goal[goal] for goal in domains.goals_of(pods[0])}
        for topology in bound:
            self._skew(topology, counts.held(topology), goal=topology in goals)
        known = {(topology.constraint, topology.selector) for topology in bound}
        for topology in self._base.fitting.topologies(pods[0], self._base.changes()):
            if (topology.constraint, topology.selector) not in known:
                self._skew(topology, topology.held, goal=False)

    def _skew(self, topology: Topology, held: Ints, *, goal: bool) -> None:
        others = (m for m in self._hood.pods if m.pod.namespace == topology.namespace)
        counted = [m for m in others if topology.selector.matches(m.pod.labels)]
        change = self._exchanged(counted, lambda row: int(topology.ids[row]))
        if topology in self._kept or not held.size or not change:
            return
        self._kept.add(topology)
        most = topology.skew if goal else max(topology.skew, topology.width(held))
        escape = [(self._program.column(UNEVEN, upper=float(held.sum())), -1.0)] if goal else []
        # With fewer domains than wanted, the missing ones count as empty.
        lowest = self._program.column(upper=0.0 if topology.short else float(held.sum()))
        for domain, count in enumerate(held.tolist()):
            terms: Terms = [*change.get(domain, ()), (lowest, -1.0)]
            self._program.row(terms, least=-float(count))
            self._program.row([*terms, *escape], most=most - float(count))

    def _pools(self) -> None:
        problem = self._problem
        for goal in (*problem.spreads, *guards(problem)):
            self._together(goal) if goal.fill_low else self._below_the_mean(goal)

    def _levels(self, goal: Spread) -> Iterator[tuple[Terms, float]]:
        axis = goal.dimension.axis
        for row in self._problem.rows(goal).tolist():
            yield self._points(row, axis)

    def _together(self, goal: Spread) -> None:
        """Keep all nodes of a pool within so many points above the lowest."""
        lowest = self._program.column(upper=HIGHEST, whole=False)
        allowed = goal.points + PRECISION - SAFE
        for flow, level in self._levels(goal):
            self._program.row([*flow, (lowest, -1.0)], least=-level, most=allowed - level)

    def _below_the_mean(self, goal: Spread) -> None:
        """Let no node be more than so many points above the mean of the others."""
        found = list(self._levels(goal))
        if len(found) < 2:
            return
        count, total = float(len(found)), sum(level for _, level in found)
        mean = self._program.column(upper=HIGHEST, whole=False)
        changes = [term for flow, _ in found for term in flow]
        self._program.row([*changes, (mean, -count)], least=-total, most=-total)
        # What is d above the mean of all is d · count / (count - 1) above that of the others.
        allowed = (goal.points + PRECISION) * (count - 1.0) / count - SAFE
        for flow, level in found:
            self._program.row([*flow, (mean, -1.0)], most=allowed - level)
