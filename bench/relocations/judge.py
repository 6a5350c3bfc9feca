# SPDX-License-Identifier: Apache-2.0
"""The best that can be done about what is wrong, by an exact solver, and plans beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.relocations.model import (
    CEILING,
    DUPLICATES,
    EPSILON,
    PREFERRED,
    TRANSIENT,
    VIOLATIONS,
    Drawn,
    Homes,
    Move,
    Pod,
)
from bench.whole import Problem, Terms

LEFT: Final = 1000.0
"""What a pod that is left wrong costs beside a move."""
RETRIES: Final = 12
"""Solutions without an order that are cut off before the judge gives up."""


class Judge:
    """The problem in whole numbers: where each pod is in the end."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn
        self._problem = Problem()
        self._goes: dict[Move, int] = {
            (pod, name): self._problem.column(self._cost(pod, name))
            for pod, found in drawn.pods.items()
            for name in drawn.nodes
            if name != found.home and not found.firm and self._may(pod, name)
        }
        for pod in drawn.pods:
            self._problem.at_most(1.0, self._of(pod))
        for name in drawn.nodes:
            self._room(name)
        for workload in drawn.workloads:
            self._spread(workload)
        self._apart()
        if drawn.strategy == VIOLATIONS:
            self._unfit()
        elif drawn.strategy == DUPLICATES:
            self._crowded()

    def best(self) -> tuple[int, int] | None:
        """Return what is left and the moves of the best solution; None if none was found."""
        if not self._goes:
            return self._drawn.wrong(self._drawn.homes), 0
        for _ in range(RETRIES):
            values = self._problem.solved()
            if values is None:
                return None
            moves = [move for move, column in self._goes.items() if values[column] > 0.5]
            if in_order(self._drawn, moves):
                return self._drawn.wrong(self._drawn.homes | dict(moves)), len(moves)
            columns: Terms = [(self._goes[move], 1.0) for move in moves]
            self._problem.at_most(len(moves) - 1.0, columns)
        return None

    def _may(self, pod: str, name: str) -> bool:
        drawn = self._drawn
        if drawn.strategy == PREFERRED:
            return drawn.suits(pod, name) and drawn.better(pod, name)
        worse = drawn.strategy == DUPLICATES and drawn.worse(pod, name)
        return drawn.suits(pod, name) and not worse

    def _cost(self, pod: str, name: str) -> float:
        preferred = self._drawn.strategy == PREFERRED
        return 1.0 - LEFT * self._drawn.gain(pod, name) if preferred else 1.0

    def _of(self, pod: str) -> list[tuple[int, float]]:
        return [(column, 1.0) for (each, _), column in self._goes.items() if each == pod]

    def _room(self, name: str) -> None:
        drawn, cores = self._drawn, self._drawn.nodes[name].cores
        here = [drawn.of(p) for p, home in drawn.homes.items() if home == name]
        asked = cores - sum(w.cores for w in here)
        used = CEILING * cores - sum(w.use for w in here)
        moves = [(p, c, 1.0) for (p, n), c in self._goes.items() if n == name]
        moves += [(p, c, -1.0) for (p, _), c in self._goes.items() if drawn.pods[p].home == name]
        self._problem.at_most(max(0.0, asked), [(c, s * drawn.of(p).cores) for p, c, s in moves])
        self._problem.at_most(max(0.0, used), [(c, s * drawn.of(p).use) for p, c, s in moves])

    def _spread(self, workload: str) -> None:
        drawn = self._drawn
        per_host, per_zone = drawn.shares(workload)
        if drawn.strategy == DUPLICATES:
            per_host = min(per_host, drawn.share(workload))
        held = drawn.held(workload, drawn.homes)
        mine = [(p, n, c) for (p, n), c in self._goes.items() if drawn.pods[p].workload == workload]
        for name in drawn.nodes:
            come: Terms = [(c, 1.0) for _, n, c in mine if n == name]
            self._problem.at_most(max(0.0, float(per_host - held[name])), come)
        for zone in {node.zone for node in drawn.nodes.values()}:
            there = sum(count for n, count in held.items() if drawn.nodes[n].zone == zone)
            come = [
                (c, 1.0)
                for p, n, c in mine
                if drawn.nodes[n].zone == zone != drawn.nodes[drawn.pods[p].home].zone
            ]
            self._problem.at_most(max(0.0, float(per_zone - there)), come)

    def _apart(self) -> None:
        drawn, homes = self._drawn, self._drawn.homes
        for one, other, key in drawn.pairs():
            shared = drawn.domain(homes[one], key)
            together = shared == drawn.domain(homes[other], key)
            for value in {drawn.domain(name, key) for name in drawn.nodes}:
                terms, there = [], 0
                for pod in (one, other):
                    at_home = drawn.domain(homes[pod], key) == value
                    there += at_home
                    for (p, n), c in self._goes.items():
                        change = (drawn.domain(n, key) == value) - at_home
                        if p == pod and change:
                            terms.append((c, float(change)))
                if together and value == shared:
                    left = self._problem.column(LEFT)
                    terms.append((left, -1.0))
                    for pod in (one, other):
                        self._problem.at_most(1.0, [(left, 1.0), *self._of(pod)])
                self._problem.at_most(1.0 - there, terms)

    def _unfit(self) -> None:
        for pod, found in self._drawn.pods.items():
            if not self._drawn.suits(pod, found.home):
                left = self._problem.column(LEFT)
                self._problem.row(1.0, 2.0, [(left, 1.0), *self._of(pod)])

    def _crowded(self) -> None:
        drawn = self._drawn
        for workload in drawn.workloads:
            share = drawn.share(workload)
            for name, count in drawn.held(workload, drawn.homes).items():
                above = self._problem.column(LEFT, float(count))
                goes = [
                    (c, 1.0)
                    for (p, _), c in self._goes.items()
                    if drawn.pods[p] == Pod(workload, name, drawn.pods[p].firm)
                ]
                self._problem.row(float(count - share), 1e6, [(above, 1.0), *goes])


def in_order(drawn: Drawn, moves: Sequence[Move]) -> bool:
    """Tell whether pods can be placed one after the other, in some order."""
    homes, waiting = drawn.homes, list(moves)
    while waiting:
        ready = next((move for move in waiting if drawn.takes(*move, homes, TRANSIENT)), None)
        if ready is None:
            return False
        homes[ready[0]] = ready[1]
        waiting.remove(ready)
    return True


@dataclass(frozen=True, slots=True)
class Result:
    """What a plan takes and repairs, and what would be possible."""

    moves: int
    repaired: int
    most: int | None
    """What the judge repairs; None if it has found no solution with an order."""
    fewest: int
    """The moves that the judge needs for it."""
    broken: tuple[str, ...]


def replayed(drawn: Drawn, moves: Sequence[Move]) -> tuple[list[str], Homes]:
    """Return the rules that moves break in their order, and where the pods are in the end."""
    homes, found = drawn.homes, []
    for pod, target in moves:
        if drawn.pods[pod].firm or not drawn.takes(pod, target, homes, TRANSIENT):
            found.append(f"{pod} may not go to {target}")
        homes[pod] = target
    for name in {target for _, target in moves}:
        used = sum(drawn.of(p).use for p, home in homes.items() if home == name)
        if used > CEILING * drawn.nodes[name].cores + EPSILON:
            found.append(f"{name} ends above its ceiling")
    for workload in drawn.workloads:
        before, per_host = drawn.held(workload, drawn.homes), drawn.shares(workload)[0]
        if drawn.strategy == DUPLICATES:
            per_host = min(per_host, drawn.share(workload))
        for name, count in drawn.held(workload, homes).items():
            if count > max(before[name], per_host):
                found.append(f"{name} holds {count} replicas of {workload}")
    return found, homes


def judged(drawn: Drawn, moves: Sequence[Move]) -> Result:
    """Judge the moves of a plan."""
    broken, homes = replayed(drawn, moves)
    wrong, best = drawn.wrong(drawn.homes), Judge(drawn).best()
    left, fewest = best if best is not None else (wrong, 0)
    return Result(
        moves=len(moves),
        repaired=wrong - drawn.wrong(homes),
        most=wrong - left if best is not None else None,
        fewest=fewest,
        broken=tuple(broken),
    )
