# SPDX-License-Identifier: Apache-2.0
"""The cluster at one moment, ready for questions.

An `Inspection` holds what a plan would be made of at that moment, exactly as the loop prepares
it, and the plan itself. So whatever is answered here is what the planner does: a pod is movable
if and only if the planner may move it. The plan may be handed in, as a rebalancer has one.

Not thread-safe: ask one question after the other, because judging fills caches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from common.api.contract import under_maintenance
from common.api.migrations import Purpose
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import RebalancerConfiguration, Strategy
from common.load import Belief, LoadView
from console.data import Pause
from rebalancer.decision import Decider
from rebalancer.evictability import GATES, Context, move_history
from rebalancer.planner import Move, Plan
from rebalancer.planner.draft import Draft, DraftFactory
from rebalancer.planner.movable import Movable
from rebalancer.planner.observed import observed
from rebalancer.planner.plan import Bound
from rebalancer.planner.problem import Demand, Problem
from rebalancer.refusals import Reason, Refusal, unjudgeable
from rebalancer.rules import ClusterRules

NO_PLAN: Final = Plan(
    plan_id="",
    fingerprint="",
    strategies=(),
    goals=(),
    moves=(),
    lower_bound=Bound(evictions=0, proof="none", message=""),
    nodes=(),
    unmet=(),
    refused=(),
)
"""For questions that no plan is needed for."""

Verdict = tuple[str, Refusal | None]
"""The name of a gate, and what it has against a move."""


class Inspection:
    """What can be asked about one moment of a cluster."""

    def __init__(
        self,
        belief: Belief,
        config: RebalancerConfiguration,
        now_s: float,
        *,
        plan: Plan | None = None,
    ) -> None:
        """Without a plan, one is made when it is first needed."""
        self.belief = belief
        self.config = config
        self.now_s = now_s
        self._given = plan
        self._decider = Decider(config)

    @property
    def snapshot(self) -> Snapshot:
        return self.belief.snapshot

    @property
    def load(self) -> LoadView:
        return self.belief.load

    @property
    def pause(self) -> Pause | None:
        """What stops all moves now, besides the configuration."""
        found = self.snapshot.pause(self.now_s)
        if found is None:
            return None
        return Pause(by=found.by, why=found.why, until_s=found.until_s)

    @cached_property
    def rules(self) -> ClusterRules:
        """What holds for each node and pod at this moment."""
        return ClusterRules(self.config, self.snapshot, self.now_s)

    @cached_property
    def demand(self) -> Demand:
        """What a plan would be made of now."""
        return self._decider.demand(self.belief, self.now_s)

    @cached_property
    def problem(self) -> Problem:
        return Problem(self.demand)

    @cached_property
    def draft(self) -> Draft:
        """The cluster without any move of the plan."""
        return DraftFactory(self.problem).draft()

    @cached_property
    def plan(self) -> Plan:
        if self._given is not None:
            return self._given
        return self._decider.decide(self.belief, self.now_s, at_once=True).plan

    @cached_property
    def moves(self) -> dict[PodUid, Move]:
        """The moves of the plan, by pod."""
        return {move.uid: move for move in self.plan.moves}

    @cached_property
    def stays(self) -> dict[PodUid, tuple[Refusal, ...]]:
        """Why pods of nodes that have to give stay, by pod."""
        return {refused.uid: refused.reasons for refused in self.plan.refused}

    @cached_property
    def migrations(self) -> Sequence[MigrationRecord]:
        """All Migrations, the newest first."""
        known = self.snapshot.migrations.values()
        return sorted(known, key=lambda m: (-m.created_s, m.name))

    @cached_property
    def _contexts(self) -> dict[Purpose, Context]:
        history = move_history(self.snapshot.migrations.values())
        context = Context.of(
            self.snapshot,
            self.config,
            now_s=self.now_s,
            history=history,
            load=self.demand.cluster.load,
        )
        return {purpose: context.for_purpose(purpose) for purpose in Purpose}

    def purpose_of(self, pod: PodRecord) -> Purpose:
        """Return what the planner would move a pod for: its node is drained, or load."""
        row = self.problem.row_of.get(pod.node)
        drained = row is not None and bool(self.problem.drained[row])
        return Purpose.MAINTENANCE if drained else Purpose.LOAD

    def movable(self, pod: PodRecord) -> Movable | None:
        """Return the pod as the planner sees it, if it may move it.

        A pod of high priority may be moved, and stays as long as lower ones are enough.
        """
        row = self.problem.row_of.get(pod.node)
        found = self.problem.judged(row) if row is not None else ()
        return next((m for m in found if m.pod.uid == pod.uid), None)

    def refusals(self, pod: PodRecord, purpose: Purpose | None = None) -> tuple[Refusal, ...]:
        """Return every reason against moving a pod, as the planner has them."""
        own = self.purpose_of(pod)
        found, row = self.demand.judge(pod, purpose or own), self.problem.row_of.get(pod.node)
        if found or row is None or purpose not in (None, own):
            return found
        return observed(self.problem, pod, row)

    def verdicts(self, pod: PodRecord) -> Iterator[Verdict]:
        """Yield every gate and what it says; refusals that no gate gives come last."""
        purpose = self.purpose_of(pod)
        context, against = self._contexts[purpose], list(self.refusals(pod, purpose))
        for gate in GATES:
            try:
                found = gate(pod, context)
            except Exception as error:  # the planner keeps the pod with this reason
                found = unjudgeable(error)
            if found in against:
                against.remove(found)
            yield gate.__name__, found
        for refusal in against:
            yield refusal.name, refusal

    def source_refusals(self, node: NodeName) -> tuple[Refusal, ...]:
        """Return why a node gives no pods; none of them binds one that is drained."""
        row = self.problem.row_of.get(node)
        if row is None:
            gone = Reason.SOURCE_REFUSED.refusal(node=node, causes="it does not exist")
            return (gone,) if node else ()
        if bool(self.problem.gives[row]):
            return ()
        return self.demand.assessment.participation.sources_refused.get(node, ())

    def drains(self, node: NodeName) -> bool:
        """Tell whether a node has the maintenance label and the strategy for it is on."""
        view = self.snapshot.nodes.get(node)
        on = Strategy.NODE_MAINTENANCE in self.rules.of_node(node).enabled_strategies
        return on and view is not None and under_maintenance(view.node.labels)
