"""Why goals stay unmet and pods stay where they are, in the fewest words that are true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from common.cluster.records import NodeName, PodRecord
from rebalancer.evictability import OPT_OUTS, Purpose
from rebalancer.goals import PRECISION, AtMost, Empty, Goal, Spread
from rebalancer.planner import constraints
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import CPU, MEMORY, Floats
from rebalancer.planner.movable import Movable
from rebalancer.planner.plan import OptOut, Refused, Unmet
from rebalancer.planner.problem import Problem
from rebalancer.reasons import Refusal
from rebalancer.strategies.load_balancing import stuck_highs

ASKED: Final = 2
"""Pods of a node that are asked about, those that count most."""
NAMESPACES: Final = 5
"""Namespaces with opt-outs that a reason names; the plan lists all."""
NOT_NEEDED: Final = Refusal("NotNeeded", "the goals are met without moving it", for_good=False)
NO_SET: Final = Refusal(
    "NoCombination",
    "single pods find a place, but no set of them that suffices does",
    for_good=False,
)
_AXES: Final = {"cpu": CPU, "memory": MEMORY}


def title(goal: Goal) -> str:
    """Return a goal in a few words: `AtMost n7 cpu 80 %`."""
    if isinstance(goal, AtMost):
        limits = {"cpu": goal.ceiling.cpu_percent, "memory": goal.ceiling.mem_percent}
        return f"AtMost {goal.node} " + ", ".join(f"{d} {limits[d]:g} %" for d in goal.broken)
    if isinstance(goal, Spread):
        pool = f"{goal.pool} " if goal.pool else ""
        return f"Spread {pool}{goal.dimension} {goal.points:g} points"
    return f"Empty {goal.node}"


def is_met(goal: Goal, problem: Problem, draft: Draft) -> bool:
    """Tell whether a goal is met once all moves are made."""
    if isinstance(goal, AtMost):
        row = problem.row_of[goal.node]
        return bool((draft.load[row] <= problem.enough[row]).all())
    if isinstance(goal, Empty):
        return all(m in draft.moves for m in problem.allowed_to_go(problem.row_of[goal.node]))
    return gap(goal, problem, draft.load) <= goal.points + PRECISION


def gap(goal: Spread, problem: Problem, load: Floats) -> float:
    """Return by how much the highest node is above the lowest, or above the others' mean."""
    rows = problem.rows(goal)
    if rows.size < 2:
        return 0.0
    axis = _AXES[goal.dimension]
    levels = 100.0 * load[:, axis][rows] / problem.capacity[:, axis][rows]
    if goal.fill_low:
        return float(np.ptp(levels))
    highest = float(levels.max())
    return highest - (float(levels.sum()) - highest) / (rows.size - 1)


class Explainer:
    """Explains one plan; looks at its draft as it ends."""

    def __init__(self, problem: Problem, draft: Draft, dropped: dict[Movable, Refusal]) -> None:
        self._problem = problem
        self._draft = draft
        self._dropped = dropped
        self._stuck: dict[Movable, Refusal | None] = {}

    def unmet(self) -> tuple[Unmet, ...]:
        """Return the goals that the plan does not meet, each with the smallest reason."""
        return tuple(
            Unmet(goal=title(goal), strategy=goal.strategy, why=self._why_and_who(goal))
            for goal in self._problem.goals
            if not is_met(goal, self._problem, self._draft)
        )

    def opt_outs(self) -> tuple[OptOut, ...]:
        """Return who keeps goals from being met by having opted out, with the namespaces.

        Where all pods of a node have opted out, there is not even a goal to level it.
        """
        demand = self._problem.demand
        found = [each for goal in self._problem.goals for each in self._opted_out(goal)]
        for goal, name in stuck_highs(demand.look, demand.assessment.participation):
            found += self._opted_out_on(name, goal, lambda pod: demand.judge(pod, Purpose.LOAD))
        return tuple(found)

    def refused(self) -> tuple[Refused, ...]:
        """Return the pods of nodes that had to give which stay, and why."""
        return tuple(found for row in self._sources() for found in self._refused_at(row))

    def _sources(self) -> list[int]:
        named = {g.node for g in self._problem.goals if isinstance(g, AtMost | Empty)}
        rows = {self._problem.row_of[name] for name in named}
        rows |= {m.row for m in self._draft.moves}
        return sorted(rows)

    def _refused_at(self, row: int) -> Iterator[Refused]:
        problem, name = self._problem, self._problem.nodes[row]
        movable = {m.pod.uid: m for m in problem.allowed_to_go(row)}
        pods = problem.snapshot.nodes[name].pods
        for uid in sorted(pods, key=lambda uid: pods[uid].key):
            m = movable.get(uid)
            if m is not None and m in self._draft.moves:
                continue
            reasons = problem.refused.get(uid, ()) if m is None else (self._why_it_stays(m),)
            yield Refused(pod=pods[uid].key, uid=uid, node=name, reasons=reasons)

    def _why_it_stays(self, m: Movable) -> Refusal:
        if m in self._dropped:
            return self._dropped[m]
        return self._stuck.get(m) or NOT_NEEDED

    def _why_and_who(self, goal: Goal) -> Refusal:
        why, found = self._why(goal), self._opted_out(goal)
        if not found:
            return why
        who = ", ".join(
            f"{each.namespace} ({len(each.pods)} × {each.reason})" for each in found[:NAMESPACES]
        )
        more = f" and {len(found) - NAMESPACES} more" if len(found) > NAMESPACES else ""
        words = f"{why.words}; pods there have opted out of moves: {who}{more}"
        return Refusal(why.name, words, why.for_good)

    def _opted_out(self, goal: Goal) -> list[OptOut]:
        """Return the pods that only an opt-out keeps on a node which should lose some."""
        row, refused = self._giver(goal), self._problem.refused
        if row is None:
            return []
        return self._opted_out_on(
            self._problem.nodes[row], goal, lambda pod: refused.get(pod.uid, ())
        )

    def _opted_out_on(
        self, node: NodeName, goal: Goal, judge: Callable[[PodRecord], Sequence[Refusal]]
    ) -> list[OptOut]:
        pods = self._problem.snapshot.nodes[node].pods.values()
        found: dict[tuple[str, str], list[str]] = {}
        for pod in sorted(pods, key=lambda pod: pod.key):
            reasons = [reason.name for reason in judge(pod)]
            if reasons and OPT_OUTS.issuperset(reasons):
                for reason in reasons:
                    found.setdefault((pod.namespace, reason), []).append(pod.key)
        return [
            OptOut(goal=title(goal), namespace=namespace, reason=reason, pods=tuple(keys))
            for (namespace, reason), keys in sorted(found.items())
        ]

    def _giver(self, goal: Goal) -> int | None:
        """Return the node that a goal asks to give more than it does."""
        problem, draft = self._problem, self._draft
        if isinstance(goal, Empty):
            # What has opted out stays behind, though all that may move is moved.
            return problem.row_of[goal.node]
        if is_met(goal, problem, draft):
            return None
        if isinstance(goal, AtMost):
            return problem.row_of[goal.node]
        return self._highest(goal)

    def _highest(self, goal: Spread) -> int:
        rows = self._problem.rows(goal)
        levels = self._draft.percent()[rows, _AXES[goal.dimension]]
        return int(rows[np.argmax(levels)])

    def _why(self, goal: Goal) -> Refusal:
        if isinstance(goal, AtMost):
            return self._why_hot(self._problem.row_of[goal.node])
        if isinstance(goal, Empty):
            return self._why_not_empty(self._problem.row_of[goal.node])
        return self._why_apart(goal)

    def _why_hot(self, row: int) -> Refusal:
        problem, name = self._problem, self._problem.nodes[row]
        pods = [m for m in problem.allowed_to_go(row) if m not in self._draft.moves]
        if not pods:
            return self._nothing_movable(row)
        excess = (self._draft.load - problem.limit)[row]
        loads = np.array([m.load for m in pods])
        short = excess - loads.sum(axis=0)
        if (short > problem.slack[row]).any():
            axis = int(np.argmax(short / problem.capacity[row]))
            stay, go = (
                100.0 * amount / problem.capacity[row][axis]
                for amount in (loads.sum(axis=0)[axis], excess[axis])
            )
            words = (
                f"{name} has to lose {go:.1f} points of {constraints.RESOURCES[axis]}, "
                f"its movable pods use {stay:.1f}"
            )
            return Refusal("MovablePodsTooFew", words, for_good=False)
        return self._too_small(row, excess, loads) or self._why_stuck(name, pods)

    def _too_small(self, row: int, excess: Floats, loads: Floats) -> Refusal | None:
        """Return that no single pod is worth an eviction, if so."""
        problem = self._problem
        share = 100.0 * loads / problem.capacity[row]
        largest = float(share[:, excess > 0].max(initial=0.0))
        asked = problem.demand.settings.min_gain
        if largest >= asked:
            return None
        words = (
            f"the largest movable pod of {problem.nodes[row]} uses {largest:.1f} points of what "
            f"is short, an eviction must gain {asked:.1f} (minGain)"
        )
        return Refusal("NotWorthIt", words, for_good=False)

    def _nothing_movable(self, row: int) -> Refusal:
        problem, name = self._problem, self._problem.nodes[row]
        pods = problem.snapshot.nodes[name].pods
        if not problem.gives[row]:
            found = problem.demand.assessment.participation.sources_refused.get(name, ())
            return Refusal("SourceRefused", f"{name} gives no pods: " + _joined(found), False)
        names = Counter(r.name for uid in pods for r in problem.refused.get(uid, ())[:1])
        often = sorted(names.items(), key=lambda pair: (-pair[1], pair[0]))
        folded = ", ".join(f"{count} × {reason}" for reason, count in often)
        if any(m.row == row for m in self._draft.moves):
            return Refusal("MovablePodsTooFew", f"all movable pods of {name} move already", False)
        words = f"no pod of {name} may be moved" + (f" ({folded})" if folded else "")
        return Refusal("NoMovablePod", words, for_good=False)

    def _why_not_empty(self, row: int) -> Refusal:
        pods = [m for m in self._problem.allowed_to_go(row) if m not in self._draft.moves]
        return self._why_stuck(self._problem.nodes[row], pods)

    def _why_apart(self, goal: Spread) -> Refusal:
        problem, draft = self._problem, self._draft
        high = self._highest(goal)
        now = gap(goal, problem, draft.load)
        what = "the lowest" if goal.fill_low else "the mean of the others"
        words = f"{problem.nodes[high]} stays {now:.1f} points above {what}"
        pods = [m for m in problem.movables(high) if m not in draft.moves]
        why = self._why_stuck(problem.nodes[high], pods) if pods else self._nothing_movable(high)
        return Refusal(why.name, f"{words}: {why.words}", why.for_good)

    def _why_stuck(self, name: str, pods: Sequence[Movable]) -> Refusal:
        """Return what keeps the pods that count most from going anywhere."""
        ranked = sorted(pods, key=lambda m: (-float(m.load[0]), m.number))[:ASKED]
        for m in ranked:
            self._stuck[m] = self._blocked(m)
        found = [why for m in ranked if (why := self._stuck[m]) is not None]
        if len(found) < len(ranked):
            dropped = next((self._dropped[m] for m in pods if m in self._dropped), None)
            return dropped or NO_SET
        names = Counter(why.name for why in found)
        most = min(names, key=lambda reason: (-names[reason], reason))
        if most == "AboveCeiling":
            words = f"every movable pod of {name} is larger than the room under any ceiling"
            return Refusal("LargerThanAnyRoom", words, for_good=False)
        return next(why for why in found if why.name == most)

    def _blocked(self, m: Movable) -> Refusal | None:
        """Return what keeps a pod from every node, if something does.

        A node with room under its ceiling tells most: whatever it has against the pod.
        """
        draft = self._draft
        if draft.targets(m).any():
            return None
        takes = self._problem.shelters if m.maintenance else self._problem.takes
        others = takes.copy()
        others[m.row] = False
        free = (self._problem.limit - draft.load - m.load) / self._problem.capacity
        roomy = others & (free >= 0.0).all(axis=1)
        if roomy.any():
            row = int(np.argmax(np.where(roomy, free.min(axis=1), -np.inf)))
            why = next(draft.refusals(m, row))
            return Refusal(why.name, f"no node is left for {m.pod.key}: {why.words}", False)
        if not others.any():
            return Refusal("NoTarget", "no other node takes pods", for_good=False)
        return Refusal("AboveCeiling", "it is larger than the room under any ceiling", False)


def _joined(refusals: Sequence[Refusal]) -> str:
    return "; ".join(refusal.words for refusal in refusals) or "it does not take part"
