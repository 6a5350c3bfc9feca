# SPDX-License-Identifier: Apache-2.0
"""Moves carried out one after the other, by the judge's own rules.

Answers two questions: in which order can a set of moves be made, and did a plan keep every
rule at every step. A pod that moves has left its node before its replacement is judged, as
for topology spread, and takes its room along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from bench.zoo.model import HOST, ZONE, Model, Workload

Step = tuple[int, int]
"""Pod and target row."""

_TOLERANCE = 0.06
"""Points: plans count as at a threshold what samples cannot tell from it."""


class Replay:
    """A cluster in which pods have moved."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.at = [pod.home for pod in model.pods]
        self.load = model.load.copy()
        self.asked = np.zeros_like(model.offered)
        self.count = np.zeros(len(model.nodes), dtype=np.int64)
        for pod in model.pods:
            self.asked[pod.home] += pod.requests
            self.count[pod.home] += 1
        self._domains = {key: model.domain(key) for key in (HOST, ZONE)}

    def move(self, step: Step) -> None:
        """Carry a move out."""
        number, row = step
        pod, source = self.model.pods[number], self.at[number]
        for target, sign in ((source, -1), (row, +1)):
            self.load[target] += sign * pod.load
            self.asked[target] += sign * pod.requests
            self.count[target] += sign
        self.at[number] = row

    def objections(self, step: Step, *, last_resort: bool = False) -> list[str]:
        """Return which rules a move would break now."""
        number, row = step
        model, pod = self.model, self.model.pods[number]
        found = []
        if not pod.movable:
            found.append("may not be moved")
        if not pod.fits[row]:
            found.append("does not fit")
        wanted = pod.requests > 0.0
        over = self.asked[row] + pod.requests > model.offered[row] + 1e-6
        if (over & wanted).any() or self.count[row] >= model.places[row]:
            found.append("no room for its requests")
        if pod.ports and any(pod.ports & model.pods[p].ports for p in self._pods_at(row)):
            found.append("its host port is taken")
        after = 100.0 * (self.load[row] + pod.load) / model.capacity[row]
        if (after > model.transient[row] + _TOLERANCE).any():
            found.append(f"above the transient ceiling: {after.round(1).tolist()}")
        found += self._repelled(number, row)
        found += self._skewed(number, row, last_resort=last_resort)
        if not last_resort:
            found += self._piled_up(number, row)
        return found

    def _pods_at(self, row: int) -> list[int]:
        return [number for number, at in enumerate(self.at) if at == row]

    def unmet(self, hot: Iterable[int]) -> list[str]:
        """Return the goals that are not met now."""
        model, level = self.model, self.model.percent(self.load)
        names = model.nodes
        found = [
            f"{names[row]} above its ceiling: {level[row].round(2).tolist()}"
            for row in hot
            if (level[row] > model.ceiling[row] + _TOLERANCE).any()
        ]
        for number, pod in enumerate(model.pods):
            if model.emptied[self.at[number]] and pod.movable:
                found.append(f"{pod.name} is still on {names[self.at[number]]}")
            elif pod.must_leave and self.at[number] == pod.home:
                found.append(f"{pod.name} may not run on {names[pod.home]} and is still there")
            if model.repairs and pod.movable:
                found += self._repelled(number, self.at[number])
        for pool, rows in model.pools.items():
            wide = np.ptp(level[rows], axis=0)
            if (wide > model.points(pool) + _TOLERANCE).any():
                found.append(f"spread {wide.round(2).tolist()}")
        return found

    def _counts(self, workload: Workload, key: str, without: int) -> Counter[str]:
        names = self._domains[key]
        return Counter(names[self.at[p]] for p in workload.pods if p != without)

    def _repelled(self, number: int, row: int) -> list[str]:
        model, pod = self.model, self.model.pods[number]
        found = []
        mine = model.workloads[pod.workload].repels
        for other, at in enumerate(self.at):
            if other == number:
                continue
            guest = model.pods[other]
            theirs = model.workloads[guest.workload].repels
            for key in (HOST, ZONE):
                names = self._domains[key]
                clash = (guest.app, key) in mine or (pod.app, key) in theirs
                if clash and names[at] == names[row] and names[row]:
                    found.append(f"repelled by {guest.name}")
        return found[:1]

    def _skewed(self, number: int, row: int, *, last_resort: bool) -> list[str]:
        model, pod = self.model, self.model.pods[number]
        workload = model.workloads[pod.workload]
        found = []
        for rule in (rule for rule in workload.spreads if rule.hard or not last_resort):
            names = self._domains[rule.key]
            counts = self._counts(workload, rule.key, number)
            domains = model.eligible(pod, rule.key)
            counts[names[row]] += 1
            skew = counts[names[row]] - min(counts[d] for d in domains)
            if skew > self._allowed_skew(workload, rule.key, rule.max_skew, hard=rule.hard):
                found.append(f"skew {skew} in {rule.key}")
        return found

    def _allowed_skew(self, workload: Workload, key: str, max_skew: int, *, hard: bool) -> int:
        if hard:
            return max_skew
        model = self.model
        names = self._domains[key]
        now = Counter(names[model.pods[p].home] for p in workload.pods)
        domains = model.eligible(model.pods[workload.pods[0]], key)
        counts = [now[d] for d in domains | set(now)]
        return max(max_skew, max(counts) - min(counts))

    def _piled_up(self, number: int, row: int) -> list[str]:
        model, pod = self.model, self.model.pods[number]
        workload = model.workloads[pod.workload]
        found = []
        for key in (HOST, ZONE):
            names = self._domains[key]
            if any(rule.key == key for rule in workload.spreads) or not names[row]:
                continue
            there = self._counts(workload, key, number)[names[row]] + 1
            if there > model.caps(workload, key).get(names[row], there):
                found.append(f"{there} replicas in {names[row]}")
        return found


def ordered(
    model: Model, moves: Sequence[Step], *, last_resort: bool = False, tries: int = 20_000
) -> list[Step] | None:
    """Return an order in which the moves keep every rule at every step; None if there is none."""
    dead: set[frozenset[Step]] = set()
    budget = [tries]

    def go(replay: Replay, left: frozenset[Step], done: list[Step]) -> list[Step] | None:
        if not left:
            return done
        if left in dead or budget[0] <= 0:
            return None
        budget[0] -= 1
        for step in sorted(left):
            drains = last_resort and bool(model.emptied[model.pods[step[0]].home])
            if replay.objections(step, last_resort=drains):
                continue
            home = replay.at[step[0]]
            replay.move(step)
            found = go(replay, left - {step}, [*done, step])
            if found is not None:
                return found
            replay.move((step[0], home))
        dead.add(left)
        return None

    return go(Replay(model), frozenset(moves), [])
