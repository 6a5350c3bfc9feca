"""From a belief about the cluster to a plan: assessment, gates and planner put together.

What was begun is neither planned again nor counted twice: open Migrations count as done,
their pods are left alone, and a plan is put to newer samples before it is carried out.

A `Decider` remembers only what makes the next look better or cheaper: how often goals were
seen broken, and the fit index. It works in one thread at a time and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import RebalancerConfiguration
from common.fit import FitIndex, World
from common.load import LoadView
from common.observer import Belief
from rebalancer.choosing import Chain, Objection, in_the_way
from rebalancer.evictability import Context, Purpose, judge, past_of
from rebalancer.planner import Demand, Plan, PlannerSettings, make_plan
from rebalancer.reasons import Refusal
from rebalancer.revalidation import Revalidated, revalidate
from rebalancer.strategies import Assessment, Assessor, Look
from rebalancer.under_way import as_if_done

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
        demand = self._demand(belief, as_if_done(belief), now_s, at_once=at_once)
        plan, waiting = make_plan(demand), demand.assessment.waiting
        notes = (*_usage_notes(belief), *plan.notes, *(each.words for each in waiting))
        made = msgspec.structs.replace(plan, notes=notes, source=belief.source)
        return Decision(demand.assessment, made)

    def observe(self, belief: Belief, now_s: float) -> None:
        """Count which goals are broken in this sample, and plan nothing."""
        self._demand(belief, as_if_done(belief), now_s, at_once=False)

    def revalidate(
        self,
        chains: Iterable[Chain],
        belief: Belief,
        now_s: float,
        objections: Sequence[Objection] = (),
    ) -> Revalidated:
        """Return what still holds; counts of observations are left alone."""
        demand = self._demand(belief, belief.load, now_s, at_once=True)
        return revalidate(chains, demand, objections)

    def moved(self, nodes: Iterable[NodeName]) -> None:
        """Count anew what is observed of nodes that pods were moved away from or onto."""
        self._assessor.moved(frozenset(nodes))

    def _demand(self, belief: Belief, load: LoadView, now_s: float, *, at_once: bool) -> Demand:
        config, snapshot = self._config, belief.snapshot
        look = Look(snapshot, load, config, now_s, World(snapshot, self._index))
        past = past_of(snapshot.migrations.values())
        context = Context.of(snapshot, config, now_s=now_s, past=past, load=load)
        gates = _gates(context)
        return Demand(
            look=look,
            assessment=self._assessor.assess(
                look, lambda pod: not gates(pod, Purpose.LOAD), at_once=at_once
            ),
            judge=gates,
            budgets=context.budgets,
            settings=PlannerSettings.of(config),
        )


def _usage_notes(belief: Belief) -> Iterator[str]:
    """Say what load rests on, where that is not what its reader expects."""
    source = belief.source
    if source.without_metrics:
        yield (
            f"No metrics: {source.why}. In this plan load is what pods request, "
            "and only maintenance is carried out."
        )
    elif belief.trouble:
        yield f"Usage is not read: {belief.trouble}."


def _gates(context: Context) -> Judge:
    """Return the gates, and one more: a pod has one Migration at a time. Each answers once."""
    contexts = {purpose: context.meant_for(purpose) for purpose in Purpose}
    known = {m.pod_uid: m for m in context.snapshot.migrations.values()}
    answers: dict[tuple[PodUid, Purpose], tuple[Refusal, ...]] = {}

    def asked(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        key = (pod.uid, purpose)
        if key not in answers:
            answers[key] = judged(pod, purpose)
        return answers[key]

    def judged(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        why = in_the_way(
            known.get(pod.uid),
            context.config,
            context.now_s,
            maintenance=purpose is Purpose.MAINTENANCE,
        )
        found = judge(pod, contexts[purpose])
        return found if why is None else (why, *found)

    return asked
