"""From a belief about the cluster to a plan: assessment, gates and planner put together.

A `Decider` remembers only what makes the next look better or cheaper: how often goals were
seen broken, and the fit index. It works in one thread at a time and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from common.cluster.records import PodRecord, PodUid
from common.config import RebalancerConfiguration
from common.fit import FitIndex, World
from common.observer import Belief
from rebalancer.evictability import Context, Purpose, judge, past_of
from rebalancer.planner import Demand, Plan, PlannerSettings, make_plan
from rebalancer.reasons import Refusal
from rebalancer.strategies import Assessment, Assessor, Look

Judge = Callable[[PodRecord, Purpose], tuple[Refusal, ...]]


class Decision(NamedTuple):
    """A plan, and the assessment that it answers."""

    assessment: Assessment
    plan: Plan


class Decider:
    """Decides what is to be moved, look after look."""

    def __init__(self, config: RebalancerConfiguration) -> None:
        self._config = config
        self._index = FitIndex()
        self._assessor = Assessor(config)

    def decide(self, belief: Belief, now_s: float, *, at_once: bool = False) -> Decision:
        """Return the plan for this moment; `at_once` takes the samples at hand for enough."""
        config, snapshot = self._config, belief.snapshot
        look = Look(snapshot, belief.load, config, now_s, World(snapshot, self._index))
        past = past_of(snapshot.migrations.values())
        context = Context.of(snapshot, config, now_s=now_s, past=past)
        gates = _judge(context)
        assessment = self._assessor.assess(
            look, lambda pod: not gates(pod, Purpose.LOAD), at_once=at_once
        )
        demand = Demand(
            look=look,
            assessment=assessment,
            judge=gates,
            budgets=context.budgets,
            settings=PlannerSettings.of(config),
        )
        return Decision(assessment, _annotated(make_plan(demand), assessment))


def _judge(context: Context) -> Judge:
    """Return what says, for a pod and a purpose, why it stays; each pod is judged once."""
    contexts = {purpose: context.meant_for(purpose) for purpose in Purpose}
    known: dict[tuple[PodUid, Purpose], tuple[Refusal, ...]] = {}

    def asked(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        key = (pod.uid, purpose)
        if key not in known:
            known[key] = judge(pod, contexts[purpose])
        return known[key]

    return asked


def _annotated(plan: Plan, assessment: Assessment) -> Plan:
    waiting = tuple(waiting.words for waiting in assessment.waiting)
    return msgspec.structs.replace(plan, notes=(*plan.notes, *waiting))
