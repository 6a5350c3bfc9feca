# SPDX-License-Identifier: Apache-2.0
"""Why goals are not met and pods stay where they are: the shortest explanation that is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from common.api.migrations import Purpose
from common.cluster.records import NodeName, PodRecord, PodUid
from rebalancer.evictability import OPT_OUTS
from rebalancer.goals import AtMost, Distribute, Empty, Goal, NodeGoal, Relocate, Spread, title
from rebalancer.planner.draft import Draft
from rebalancer.planner.instance import Flags
from rebalancer.planner.movable import Movable
from rebalancer.planner.plan import OptOut, Refused, Staying, Unmet
from rebalancer.planner.problem import Problem
from rebalancer.planner.resources import every, lowest
from rebalancer.refusals import Reason, Refusal
from rebalancer.strategies.load_balancing import stuck_highs

ASKED: Final = 2
"""Pods of a node that are asked about at least, those that matter most."""
ASKED_IN_ALL: Final = 2_000
"""Pods of all nodes that are asked about; all pods of a node, while there are not too many."""
NAMESPACES: Final = 5
"""Namespaces with opt-outs that a reason names; the plan lists all."""
NOT_NEEDED: Final = Reason.NOT_NEEDED.refusal()
NODE_NOT_ASKED: Final = Reason.NODE_NOT_ASKED.refusal()
TOO_LARGE: Final = Reason.ABOVE_CEILING.refusal("everywhere")
NO_SET: Final = Reason.NO_COMBINATION.refusal()


class Explainer:
    """Explains one plan from its final draft."""

    def __init__(self, problem: Problem, draft: Draft, dropped: Mapping[Movable, Refusal]) -> None:
        self._problem = problem
        self._draft = draft
        self._dropped = dropped
        self._stuck: dict[Movable, Refusal | None] = {}
        self._unmet = [goal for goal in problem.goals if not draft.meets(goal)]
        self._short = self._rows_of(self._unmet)
        """[N] nodes that an unmet goal is about."""

    def unmet(self) -> tuple[Unmet, ...]:
        """Return the goals that the plan does not meet, each with the shortest reason."""
        return tuple(
            Unmet(goal=title(goal), strategy=goal.strategy, why=self._why_and_who(goal))
            for goal in self._unmet
        )

    def opt_outs(self) -> tuple[OptOut, ...]:
        """Return the pods that keep goals from being met by having opted out, by namespace.

        Where all pods of a node have opted out, there is not even a goal to level it.
        """
        demand = self._problem.demand
        found = [each for goal in self._problem.goals for each in self._opted_out(goal)]
        for goal, name in stuck_highs(demand.cluster, demand.assessment.participation):
            found += self._opted_out_on(name, goal, lambda pod: demand.judge(pod, Purpose.LOAD))
        return tuple(found)

    def refused(self) -> tuple[Refused, ...]:
        """Return the pods that stay, and why: of nodes that had to give, or of all nodes."""
        sources = self._sources()
        if not self._problem.demand.all_pods:
            return tuple(found for row in sorted(sources) for found in self._refused_at(row))
        found: list[Refused] = []
        for row in range(len(self._problem.nodes)):
            found += self._refused_at(row) if row in sources else self._not_asked(row)
        return tuple(found)

    def staying(self, refused: Sequence[Refused]) -> tuple[Staying, ...]:
        """Return how many pods stay for which reason, the first one of each; all pods count."""
        counts = Counter(each.reasons[0].name for each in refused if each.reasons)
        if not self._problem.demand.all_pods:
            sources, nodes = self._sources(), self._problem.snapshot.nodes
            others = (name for row, name in enumerate(self._problem.nodes) if row not in sources)
            counts[NODE_NOT_ASKED.name] += sum(len(nodes[name].pods) for name in others)
        ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return tuple(Staying(reason=name, pods=count) for name, count in ranked if count)

    def _sources(self) -> set[int]:
        named = {g.node for g in self._problem.goals if isinstance(g, AtMost | Empty)}
        rows = {self._problem.row_of[name] for name in named}
        rows |= {self._problem.row_of[g.node] for g in self._problem.relocations.values()}
        rows |= {self._highest(goal) for goal in self._unmet if isinstance(goal, Spread)}
        uneven = [goal for goal in self._unmet if isinstance(goal, Distribute)]
        rows |= {row for goal in uneven for row in self._full(goal)}
        return rows | {m.row for m in self._draft.moves}

    def _not_asked(self, row: int) -> Iterator[Refused]:
        """Return the pods of a node that need not give, with what would keep them there."""
        problem, name = self._problem, self._problem.nodes[row]
        pods = problem.snapshot.nodes[name].pods
        for uid in sorted(pods, key=lambda uid: pods[uid].key):
            why = (NODE_NOT_ASKED, *problem.demand.judge(pods[uid], Purpose.LOAD))
            yield Refused(pod=pods[uid].key, uid=uid, node=name, reasons=why)

    def _refused_at(self, row: int) -> Iterator[Refused]:
        problem, name = self._problem, self._problem.nodes[row]
        movable = {m.pod.uid: m for m in problem.judged(row)}
        pods, most = problem.snapshot.nodes[name].pods, problem.priorities.leaving(row)
        for uid in sorted(pods, key=lambda uid: pods[uid].key):
            m = movable.get(uid)
            if m is not None and m in self._draft.moves:
                continue
            reasons = self._not_judged(uid, name) if m is None else (self._why_it_stays(m, most),)
            yield Refused(pod=pods[uid].key, uid=uid, node=name, reasons=reasons)

    def _not_judged(self, uid: PodUid, node: NodeName) -> tuple[Refusal, ...]:
        """Return what the gates say; a node that gives nothing has its reasons instead."""
        problem = self._problem
        given = problem.demand.assessment.participation.sources_refused.get(node, ())
        return problem.refused.get(uid) or (
            Reason.SOURCE_REFUSED.refusal(node=node, causes=_joined(given)),
        )

    def _why_it_stays(self, m: Movable, most: float) -> Refusal:
        if m in self._dropped:
            return self._dropped[m]
        own = self._problem.relocations.get(m.pod.uid)
        if own is not None:
            return self._why_not_relocated(own)
        if self._short[m.row]:
            node = self._problem.nodes[m.row]
            return self._stuck.get(m) or Reason.GOAL_UNMET.refusal(node=node)
        if m.priority > most:
            return Reason.HIGHER_PRIORITY.refusal(priority=m.priority, most=int(most))
        return NOT_NEEDED

    def _rows_of(self, goals: Iterable[Goal]) -> Flags:
        problem = self._problem
        found = np.zeros(len(problem.nodes), dtype=np.bool_)
        for goal in goals:
            if isinstance(goal, Spread):
                found |= problem.inside(goal)
            elif isinstance(goal, NodeGoal):
                found[problem.row_of[goal.node]] = True
        return found

    def _why_and_who(self, goal: Goal) -> Refusal:
        why, found = self._why(goal), self._opted_out(goal)
        if not found:
            return why
        who = ", ".join(
            f"{each.namespace} ({len(each.pods)} × {each.reason})" for each in found[:NAMESPACES]
        )
        more = f" and {len(found) - NAMESPACES} more" if len(found) > NAMESPACES else ""
        return why.with_message(f"{why.message}; pods there have opted out of moves: {who}{more}")

    def _opted_out(self, goal: Goal) -> list[OptOut]:
        """Return the pods that only an opt-out keeps on a node which should lose some."""
        row, refused = self._giver(goal), self._problem.refused
        if row is None:
            return []
        if isinstance(goal, Relocate):
            return self._opted_out_on(
                goal.node, goal, lambda p: refused.get(p.uid, ()) if p.uid == goal.pod else ()
            )
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
        if draft.meets(goal):
            return None
        if isinstance(goal, AtMost | Relocate):
            return problem.row_of[goal.node]
        return self._fullest(goal) if isinstance(goal, Distribute) else self._highest(goal)

    def _highest(self, goal: Spread) -> int:
        rows = self._problem.rows(goal)
        levels = self._draft.percent()[rows, goal.dimension.axis]
        return int(rows[np.argmax(levels)])

    def _why(self, goal: Goal) -> Refusal:
        if isinstance(goal, AtMost):
            return self._how_far(self._problem.row_of[goal.node])
        if isinstance(goal, Empty):
            return self._why_not_empty(self._problem.row_of[goal.node])
        if isinstance(goal, Relocate):
            return self._why_not_relocated(goal)
        return self._why_uneven(goal) if isinstance(goal, Distribute) else self._why_apart(goal)

    def _why_not_relocated(self, goal: Relocate) -> Refusal:
        m = self._problem.relocating(goal)
        if m is None:
            return self._not_judged(goal.pod, goal.node)[0]
        if m in self._dropped:
            return self._dropped[m]
        why = self._blocked(m)
        if why is None:
            return Reason.NO_ORDER.refusal()
        return why.with_message(f"no node is left for it: {why.message}")

    def _full(self, goal: Distribute) -> list[int]:
        """Return the nodes of the fullest domains where pods are that a goal counts."""
        domains = self._draft.domains
        topology = domains.domains.of_goal[goal]
        held = np.append(domains.held(topology), -1)[topology.ids]
        fullest = max((int(held[row]) for row in topology.at), default=0)
        return [row for row in topology.at if held[row] == fullest]

    def _fullest(self, goal: Distribute) -> int | None:
        return next(iter(self._full(goal)), None)

    def _why_uneven(self, goal: Distribute) -> Refusal:
        """Return why pods stay uneven, with where the plan leaves them."""
        counts = self._draft.domains
        topology = counts.domains.of_goal[goal]
        held = counts.held(topology)
        if topology.short and held.sum() > held.size * topology.skew:
            return Reason.DOMAINS_TOO_FEW.refusal(
                domains=held.size, wanted=topology.constraint.min_domains, pods=int(held.sum())
            )
        most, least = int(np.argmax(held)), int(np.argmin(held))
        text = (
            f"{topology.names[most]} keeps {held[most]} of the pods and {topology.names[least]} "
            f"has {held[least]}"
        )
        why = self._why_full(goal)
        return why.with_message(f"{text}: {why.message}")

    def _why_full(self, goal: Distribute) -> Refusal:
        """Return what keeps the pods of the fullest domains from going to emptier ones."""
        draft, rows = self._draft, set(self._full(goal))
        pods = [
            m for m in draft.domains.domains.pods_of(goal) if m.row in rows and m not in draft.moves
        ]
        if not pods:
            return self._nothing_movable(min(rows))
        dropped = next((self._dropped[m] for m in pods if m in self._dropped), None)
        topology = draft.domains.domains.of_goal[goal]
        for m in pods[:ASKED]:
            better = draft.domains.gains(topology, m) > 0
            why = self._blocked(m, better) if better.any() else None
            if why is not None:
                return why.with_message(f"no node is left for {m.pod.key}: {why.message}")
        return dropped or NO_SET

    def _how_far(self, row: int) -> Refusal:
        """Return why a node stays above its ceiling, with the utilization that it ends at."""
        problem, why = self._problem, self._why_hot(row)
        level = self._draft.percent()[row]
        axis = int(np.argmax(level - problem.ceiling[row]))
        ends = f"{problem.nodes[row]} ends at {level[axis]:.1f} % {problem.dimensions[axis].label}"
        return why.with_message(f"{ends}: {why.message}")

    def _why_hot(self, row: int) -> Refusal:
        problem, name = self._problem, self._problem.nodes[row]
        pods = [m for m in problem.judged(row) if m not in self._draft.moves]
        if not pods:
            return self._nothing_movable(row)
        excess = (self._draft.load - problem.enough)[row]
        loads = np.array([m.load for m in pods])
        short = excess - loads.sum(axis=0)
        if (short > problem.slack[row]).any():
            axis = int(np.argmax(short / problem.capacity[row]))
            stay, go = (
                100.0 * amount / problem.capacity[row][axis]
                for amount in (loads.sum(axis=0)[axis], excess[axis])
            )
            return Reason.MOVABLE_PODS_TOO_FEW.refusal(
                node=name, excess=go, resource=problem.dimensions[axis].label, movable=stay
            )
        return self._why_stuck(name, pods)

    def _nothing_movable(self, row: int) -> Refusal:
        problem, name = self._problem, self._problem.nodes[row]
        pods = problem.snapshot.nodes[name].pods
        if not problem.gives[row]:
            found = problem.demand.assessment.participation.sources_refused.get(name, ())
            return Reason.SOURCE_REFUSED.refusal(node=name, causes=_joined(found))
        names = Counter(r.name for uid in pods for r in problem.refused.get(uid, ())[:1])
        often = sorted(names.items(), key=lambda pair: (-pair[1], pair[0]))
        folded = ", ".join(f"{count} × {reason}" for reason, count in often)
        if any(m.row == row for m in self._draft.moves):
            return Reason.MOVABLE_PODS_TOO_FEW.refusal("all move", node=name)
        if not folded:
            return Reason.NO_MOVABLE_POD.refusal(node=name)
        return Reason.NO_MOVABLE_POD.refusal("refused", node=name, causes=folded)

    def _why_not_empty(self, row: int) -> Refusal:
        pods = [m for m in self._problem.judged(row) if m not in self._draft.moves]
        return self._why_stuck(self._problem.nodes[row], pods)

    def _why_apart(self, goal: Spread) -> Refusal:
        problem, draft = self._problem, self._draft
        high = self._highest(goal)
        now = problem.gap(goal, draft.load)
        what = "the lowest" if goal.fill_low else "the mean of the others"
        text = f"{problem.nodes[high]} stays {now:.1f} points above {what}"
        pods = [m for m in problem.movables(high) if m not in draft.moves]
        why = self._why_stuck(problem.nodes[high], pods) if pods else self._nothing_movable(high)
        return why.with_message(f"{text}: {why.message}")

    def _why_stuck(self, name: str, pods: Sequence[Movable]) -> Refusal:
        """Return what keeps the pods that matter most from going anywhere."""
        ranked = sorted(pods, key=lambda m: (-float(m.load[0]), m.number))
        left = ASKED_IN_ALL - len(self._stuck)
        ranked = ranked[: max(ASKED, left if len(pods) <= left else ASKED)]
        for m in ranked:
            self._stuck[m] = self._blocked(m)
        found = [why for m in ranked if (why := self._stuck[m]) is not None]
        if len(found) < len(ranked):
            dropped = next((self._dropped[m] for m in pods if m in self._dropped), None)
            return dropped or NO_SET
        names = Counter(why.name for why in found)
        most = min(names, key=lambda reason: (-names[reason], reason))
        if len(ranked) == len(pods) and all(why == TOO_LARGE for why in found):
            return Reason.LARGER_THAN_ANY_ROOM.refusal(node=name)
        m = next(m for m in ranked if (why := self._stuck[m]) is not None and why.name == most)
        why = self._stuck[m] or NO_SET
        return why.with_message(f"no node is left for {m.pod.key}: {why.message}")

    def _blocked(self, m: Movable, among: Flags | None = None) -> Refusal | None:
        """Return what keeps a pod from every node, if something does.

        A node with room under its ceiling tells most: what it has against the pod is the reason.
        """
        draft = self._draft
        takes = self._problem.shelters if m.maintenance else self._problem.takes
        others = takes.copy()
        others[m.row] = False
        wanted = self._problem.wanted(m)
        if wanted:
            others &= np.logical_or.reduce(wanted)
        if among is not None:
            others &= among
        if not others.any():
            return Reason.NO_TARGET.refusal()
        free = (self._problem.roof - draft.load - m.load) / self._problem.capacity
        roomy = others & every(free >= 0.0)
        if not roomy.any():
            return TOO_LARGE
        if (draft.targets(m) & (others if among is not None else True)).any():
            return None
        suitable = others & draft.fitting.ever_possible(m)
        if suitable.any() and not (suitable & roomy).any():
            return Reason.ABOVE_CEILING.refusal("where it may run")
        roomy = suitable & roomy if suitable.any() else roomy
        row = int(np.argmax(np.where(roomy, lowest(free), -np.inf)))
        return next(draft.refusals(m, row), NO_SET)


def _joined(refusals: Sequence[Refusal]) -> str:
    return "; ".join(refusal.message for refusal in refusals) or "it does not take part"
