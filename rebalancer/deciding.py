"""From a belief about the cluster to a plan: assessment, gates and planner put together.

What was begun is neither planned again nor counted twice: open Migrations count as done,
their pods are left alone, and a plan is put to newer samples before it is carried out.

What cannot be judged stays where it is: a pod is refused by name, and if the plan as a whole
fails, nodes are emptied all the same.

A `Decider` remembers only what makes the next look better or cheaper: how often goals were
seen broken, and the fit index. It works in one thread at a time and does no I/O.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import RebalancerConfiguration
from common.fit import FitIndex, World
from common.load import LoadView
from common.observer import Belief
from rebalancer.breaker import Breakers, Signs, histories_of
from rebalancer.choosing import Chain, Objection, in_the_way
from rebalancer.evictability import Context, Purpose, judge, past_of
from rebalancer.goals import Empty
from rebalancer.planner import Demand, Plan, PlannerSettings, make_plan
from rebalancer.planner.fitting import Unfit
from rebalancer.reasons import Refusal, unjudgeable
from rebalancer.revalidation import Revalidated, revalidate
from rebalancer.strategies import Assessment, Assessor, Look, Patience
from rebalancer.under_way import as_if_done

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MAX_ODD: Final = 20
"""Pods whose fit cannot be told that a plan is made without; with more, something else is wrong."""

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
        self._patience = Patience()
        self._told: dict[PodUid, Refusal] = {}
        self._trouble = ""

    def decide(self, belief: Belief, now_s: float, *, at_once: bool = False) -> Decision:
        """Return the plan for this moment; `at_once` takes the samples at hand for enough."""
        with self._new_index_after_failure():
            demand = self._demand(belief, as_if_done(belief), now_s, at_once=at_once)
            plan, waiting = self._planned(demand), demand.assessment.waiting
        notes = (*_usage_notes(belief), *plan.notes, *(each.words for each in waiting))
        made = msgspec.structs.replace(plan, notes=notes, source=belief.source)
        return Decision(demand.assessment, made)

    def _planned(self, demand: Demand) -> Plan:
        """Return the plan; if making it fails, one that only empties nodes."""
        try:
            return self._planned_without_the_odd(demand)
        except Exception as error:
            goals = tuple(goal for goal in demand.assessment.goals if isinstance(goal, Empty))
            if not goals or len(goals) == len(demand.assessment.goals):
                raise
            failed = unjudgeable(error).words
            if failed != self._trouble:
                log.warning("planning for load failed", error=failed, where=_where(error))
            self._trouble = failed
        plan = self._planned_without_the_odd(self._anew(demand, goals=goals))
        words = f"Nothing is planned for load, because that failed: {failed}"
        return msgspec.structs.replace(plan, notes=(*plan.notes, words))

    def _planned_without_the_odd(self, demand: Demand) -> Plan:
        """Return a plan in which pods stay whose fit cannot be told."""
        odd: dict[PodUid, Refusal] = {}
        judge = demand.judge

        def without(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
            return (odd[pod.uid],) if pod.uid in odd else judge(pod, purpose)

        while True:
            try:
                return make_plan(demand)
            except Unfit as error:
                if error.pod.uid in odd or len(odd) >= MAX_ODD:
                    raise
                odd[error.pod.uid] = self._not_judged(error.pod, error.cause)
            demand = self._anew(demand, judge=without)

    @contextmanager
    def _new_index_after_failure(self) -> Iterator[None]:
        """Start with a new index next time: this one may stand half-way between two worlds."""
        try:
            yield
        except Exception:
            self._index = FitIndex()
            raise

    def _anew(
        self,
        demand: Demand,
        *,
        judge: Judge | None = None,
        goals: tuple[Empty, ...] | None = None,
    ) -> Demand:
        """Return the demand with other gates or fewer goals, and with a new index."""
        self._index = FitIndex()
        look = replace(demand.look, world=World(demand.look.snapshot, self._index))
        assessment = demand.assessment
        if goals is not None:
            assessment = msgspec.structs.replace(assessment, goals=goals)
        return replace(demand, look=look, assessment=assessment, judge=judge or demand.judge)

    def _not_judged(self, pod: PodRecord, error: Exception) -> Refusal:
        """Return why a pod stays that could not be judged, and log it once."""
        found = unjudgeable(error)
        if self._told.get(pod.uid) != found:
            self._told[pod.uid] = found
            log.warning("pod not judged", pod=pod.key, error=found.words, where=_where(error))
        return found

    def observe(self, belief: Belief, now_s: float) -> None:
        """Count which goals are broken in this sample, and plan nothing."""
        with self._new_index_after_failure():
            self._demand(belief, as_if_done(belief), now_s, at_once=False)

    def revalidate(
        self,
        chains: Iterable[Chain],
        belief: Belief,
        now_s: float,
        objections: Sequence[Objection] = (),
    ) -> Revalidated:
        """Return what still holds; counts of observations are left alone."""
        with self._new_index_after_failure():
            demand = self._demand(belief, belief.load, now_s, at_once=True)
            return revalidate(chains, demand, objections)

    def moved(self, nodes: Iterable[NodeName]) -> None:
        """Count anew what is observed of nodes that pods were moved away from or onto."""
        self._assessor.moved(frozenset(nodes))

    def _demand(self, belief: Belief, load: LoadView, now_s: float, *, at_once: bool) -> Demand:
        config, snapshot = self._config, belief.snapshot
        world = World(snapshot, self._index)
        look = Look(snapshot, load, config, now_s, world, self._patience)
        past = past_of(snapshot.migrations.values())
        context = Context.of(snapshot, config, now_s=now_s, past=past, load=load)
        gates = _gates(context, _breakers(context), self._not_judged)
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


def _where(error: Exception) -> str:
    """Return the line of code that failed."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return " ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in last)


def _breakers(context: Context) -> dict[Purpose, Breakers]:
    """Return what is stopped in a part of the cluster; elsewhere moves are planned instead."""
    snapshot, config = context.snapshot, context.config
    known = tuple(snapshot.migrations.values())
    found = {}
    for purpose in Purpose:
        signs = Signs(
            snapshot=snapshot,
            migrations=known,
            purpose=purpose,
            now_s=context.now_s,
            resting=False,
        )
        found[purpose] = Breakers.of(histories_of(known, config, purpose), signs, config.breaker)
    return {purpose: breakers for purpose, breakers in found.items() if not breakers.quiet}


def _gates(
    context: Context,
    stopped: Mapping[Purpose, Breakers],
    not_judged: Callable[[PodRecord, Exception], Refusal],
) -> Judge:
    """Return the gates, and two more; each answers once.

    A pod has one Migration at a time, and none is planned while its namespace or its
    workload is stopped.
    """
    contexts = {purpose: context.meant_for(purpose) for purpose in Purpose}
    known = {m.pod_uid: m for m in context.snapshot.migrations.values()}
    answers: dict[tuple[PodUid, Purpose], tuple[Refusal, ...]] = {}

    def asked(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        key = (pod.uid, purpose)
        if key not in answers:
            try:
                answers[key] = judged(pod, purpose)
            except Exception as error:  # it stays, and is named; the others go on
                answers[key] = (not_judged(pod, error),)
        return answers[key]

    def judged(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        why = in_the_way(
            known.get(pod.uid),
            context.config,
            context.now_s,
            maintenance=purpose is Purpose.MAINTENANCE,
        )
        found = judge(pod, contexts[purpose])
        if (breakers := stopped.get(purpose)) is not None:
            found = (*found, *breakers.against_planning(pod, context.snapshot))
        return found if why is None else (why, *found)

    return asked
