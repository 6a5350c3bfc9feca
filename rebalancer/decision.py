# SPDX-License-Identifier: Apache-2.0
"""From a belief about the cluster to a plan: assessment, gates and planner put together.

A move that has begun is neither planned again nor counted twice: open Migrations count as done,
their pods are left alone, and a plan is validated on newer samples before it is carried out.

What cannot be judged stays where it is: a pod is refused by name, and if the plan as a whole
fails, nodes are drained all the same.

A `Decider` remembers only what makes the next decision better or cheaper: how often goals were
seen broken, and the fit index. It works in one thread at a time and does no I/O.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

import msgspec
import structlog

from common.api.contract import kept_empty
from common.api.migrations import Purpose
from common.cluster.records import NodeName, PodRecord, PodUid
from common.config import RebalancerConfiguration
from common.fit import FitIndex, World
from common.load import Belief, LoadView
from rebalancer.evictability import Context, judge, move_history, will_surge
from rebalancer.finished_pods import NONE_FINISHED, Finished
from rebalancer.goals import Empty, Goal
from rebalancer.group_restarts import group_restarts
from rebalancer.pacing.breaker import Breakers
from rebalancer.pacing.replay import histories_of
from rebalancer.pacing.signs import Signs
from rebalancer.planner import Demand, Plan, make_plan
from rebalancer.planner.fingerprint import Fingerprints
from rebalancer.planner.fitting import Unfit
from rebalancer.planner.plan import Chain, Objection
from rebalancer.planner.validation import Revalidated, revalidate
from rebalancer.projection import as_if_done
from rebalancer.refusals import Refusal, unjudgeable
from rebalancer.removals import Removals, removals
from rebalancer.selection import in_the_way
from rebalancer.solver import solve
from rebalancer.strategies import Assessment, Assessor, ClusterView, PendingTimes

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MAX_UNFIT: Final = 20
"""A plan leaves out this many pods whose fit cannot be computed; more point to another fault."""

NOT_EMPTIED_S: Final = 600.0
"""For how long a node that no plan could empty whole is not tried again."""

Judge = Callable[[PodRecord, Purpose], tuple[Refusal, ...]]


class Decision(NamedTuple):
    """A plan, and the assessment that it answers."""

    assessment: Assessment
    plan: Plan


class Decider:
    """Decides what to move, cycle after cycle."""

    def __init__(self, config: RebalancerConfiguration, *, all_pods: bool = False) -> None:
        self._config = config
        self._all_pods = all_pods
        self._index = FitIndex()
        self._fingerprints = Fingerprints()
        self._assessor = Assessor(config)
        self._pending_times = PendingTimes()
        self._logged: dict[PodUid, Refusal] = {}
        self._failure = ""
        self._not_emptied: dict[NodeName, float] = {}
        """Nodes that no plan could empty whole, and when that was."""

    def decide(
        self,
        belief: Belief,
        now_s: float,
        finished: Finished = NONE_FINISHED,
        *,
        at_once: bool = False,
    ) -> Decision:
        """Return the plan for this moment; `at_once` does not wait for consecutive samples."""
        with self._new_index_after_failure():
            demand = self._demand(belief, as_if_done(belief), now_s, at_once=at_once)
            plan, waiting = self._planned(demand), demand.assessment.waiting
        for name in given_up(demand, plan):
            self._not_emptied[name] = now_s
        removed, restarted = self._removals(belief, now_s, finished), self._restarts(demand)
        later = (*(each.message for each in waiting), *removed.notes, *restarted.notes)
        made = msgspec.structs.replace(
            plan,
            notes=(*_usage_notes(belief), *plan.notes, *later),
            source=belief.source,
            removals=(*removed.listed, *restarted.listed),
        )
        return Decision(demand.assessment, made)

    def _removals(self, belief: Belief, now_s: float, finished: Finished) -> Removals:
        context = Context.of(belief.snapshot, self._config, now_s=now_s)
        try:
            found = removals(belief.snapshot, self._config, context, now_s, finished.pods)
            trouble = (f"Hygiene: {finished.trouble}.",) if finished.trouble else ()
            return found._replace(notes=(*found.notes, *trouble))
        except Exception as error:  # moves go on without it
            failed = unjudgeable(error).message
            log.warning("removals not planned", error=failed, where=_where(error))
            return Removals(notes=(f"No pod is removed, because that failed: {failed}",))

    def _restarts(self, demand: Demand) -> Removals:
        try:
            return group_restarts(demand)
        except Exception as error:  # moves go on without it
            failed = unjudgeable(error).message
            log.warning("group restarts not planned", error=failed, where=_where(error))
            return Removals(notes=(f"No pod group is restarted, because that failed: {failed}",))

    def _planned(self, demand: Demand) -> Plan:
        """Return the plan; if planning fails, one that only drains nodes."""
        try:
            return self._planned_without_unfit(demand)
        except Exception as error:
            goals = tuple(goal for goal in demand.assessment.goals if _drains(goal))
            # Without other goals to leave out, a second try would fail in the same way.
            if not goals or len(goals) == len(demand.assessment.goals):
                raise
            failed = unjudgeable(error).message
            if failed != self._failure:
                log.warning("planning for load failed", error=failed, where=_where(error))
            self._failure = failed
        plan = self._planned_without_unfit(self._demand_with(demand, goals=goals))
        note = f"Nothing is planned for load, because that failed: {failed}"
        return msgspec.structs.replace(plan, notes=(*plan.notes, note))

    def _planned_without_unfit(self, demand: Demand) -> Plan:
        """Return a plan that leaves pods alone whose fit cannot be computed."""
        unfit: dict[PodUid, Refusal] = {}
        judge = demand.judge

        def without(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
            return (unfit[pod.uid],) if pod.uid in unfit else judge(pod, purpose)

        while True:
            try:
                return make_plan(demand)
            except Unfit as error:
                if error.pod.uid in unfit or len(unfit) >= MAX_UNFIT:
                    raise
                unfit[error.pod.uid] = self._not_judged(error.pod, error.cause)
            demand = self._demand_with(demand, judge=without)

    @contextmanager
    def _new_index_after_failure(self) -> Iterator[None]:
        """Start with a new index after an error: this one may be half updated."""
        try:
            yield
        except Exception:
            self._index = FitIndex()
            raise

    def _demand_with(
        self,
        demand: Demand,
        *,
        judge: Judge | None = None,
        goals: tuple[Empty, ...] | None = None,
    ) -> Demand:
        """Return the demand with other gates or fewer goals, and with a new index."""
        self._index = FitIndex()
        cluster = replace(demand.cluster, world=World(demand.cluster.snapshot, self._index))
        assessment = demand.assessment
        if goals is not None:
            assessment = msgspec.structs.replace(assessment, goals=goals)
        return replace(demand, cluster=cluster, assessment=assessment, judge=judge or demand.judge)

    def _not_judged(self, pod: PodRecord, error: Exception) -> Refusal:
        """Return why a pod stays that could not be judged, and log it once."""
        found = unjudgeable(error)
        if self._logged.get(pod.uid) != found:
            self._logged[pod.uid] = found
            log.warning("pod not judged", pod=pod.key, error=found.message, where=_where(error))
        return found

    def observe(self, belief: Belief, now_s: float) -> None:
        """Count which goals this sample breaks, without a plan."""
        with self._new_index_after_failure():
            self._demand(belief, as_if_done(belief), now_s, at_once=False, chooses=False)

    def demand(self, belief: Belief, now_s: float) -> Demand:
        """Return what a plan would be made of now, for explaining it."""
        with self._new_index_after_failure():
            return self._demand(belief, as_if_done(belief), now_s, at_once=True)

    def revalidate(
        self,
        chains: Iterable[Chain],
        belief: Belief,
        now_s: float,
        objections: Sequence[Objection] = (),
    ) -> Revalidated:
        """Return the chains that still hold; counts of observations stay as they are."""
        with self._new_index_after_failure():
            demand = self._demand(belief, belief.load, now_s, at_once=True, chooses=False)
            return revalidate(chains, demand, objections)

    def moved(self, nodes: Iterable[NodeName]) -> None:
        """Start counting again for nodes that pods were moved away from or onto."""
        self._assessor.moved(frozenset(nodes))

    def _demand(
        self,
        belief: Belief,
        load: LoadView,
        now_s: float,
        *,
        at_once: bool,
        chooses: bool = True,
    ) -> Demand:
        config, snapshot = self._config, belief.snapshot
        world = World(snapshot, self._index)
        recent = {n: s for n, s in self._not_emptied.items() if now_s - s < NOT_EMPTIED_S}
        self._not_emptied = recent
        cluster = ClusterView(
            snapshot,
            load,
            config,
            now_s,
            world,
            self._pending_times,
            not_emptied=frozenset(recent),
            consolidates=chooses,
        )
        history = move_history(snapshot.migrations.values())
        context = Context.of(snapshot, config, now_s=now_s, history=history, load=load)
        gates = _gates(context, _breakers(context), self._not_judged)
        return Demand(
            cluster=cluster,
            assessment=self._assessor.assess(
                cluster,
                lambda pod: not gates(pod, Purpose.LOAD),
                at_once=at_once,
                refusals=lambda pod: gates(pod, Purpose.LOAD),
            ),
            judge=gates,
            budgets=context.budgets,
            all_pods=self._all_pods,
            solve=solve,
            surges=_surges(context),
            fingerprints=self._fingerprints,
        )


def given_up(demand: Demand, plan: Plan) -> set[NodeName]:
    """Return the nodes that were to be emptied, before this plan or in it, and no longer are."""
    nodes = demand.cluster.snapshot.nodes
    marked = {name for name in nodes if kept_empty(nodes[name].node.annotations)}
    return marked.union(demand.assessment.kept_empty).difference(plan.kept_empty)


def _drains(goal: Goal) -> TypeGuard[Empty]:
    return isinstance(goal, Empty) and goal.ceiling is None


def _surges(context: Context) -> Callable[[PodRecord, Purpose], bool]:
    contexts = {purpose: context.for_purpose(purpose) for purpose in Purpose}
    return lambda pod, purpose: will_surge(pod, contexts[purpose])


def _usage_notes(belief: Belief) -> Iterator[str]:
    """Yield where load comes from, if that is not what a reader expects."""
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
    """Return the breakers that stop a part of the cluster; moves are planned elsewhere instead."""
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
    """Return the gates and two more checks; each pod is judged once.

    A pod has one Migration at a time, and none is planned while its namespace or its
    workload is stopped.
    """
    contexts = {purpose: context.for_purpose(purpose) for purpose in Purpose}
    known = {m.pod_uid: m for m in context.snapshot.migrations.values()}
    answers: dict[tuple[PodUid, Purpose], tuple[Refusal, ...]] = {}

    def asked(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        key = (pod.uid, purpose)
        if key not in answers:
            try:
                answers[key] = judged(pod, purpose)
            except Exception as error:  # the pod stays and is named; others go on
                answers[key] = (not_judged(pod, error),)
        return answers[key]

    def judged(pod: PodRecord, purpose: Purpose) -> tuple[Refusal, ...]:
        why = in_the_way(
            known.get(pod.uid),
            context.config,
            context.now_s,
            purpose=purpose,
        )
        found = judge(pod, contexts[purpose])
        if (breakers := stopped.get(purpose)) is not None:
            found = (*found, *breakers.against_planning(pod, context.snapshot))
        return found if why is None else (why, *found)

    return asked
