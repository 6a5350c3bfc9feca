# SPDX-License-Identifier: Apache-2.0
"""Pods that `Hygiene` removes without a target, as a part of the plan.

They have ended, or are not Ready: no capacity is lost, so nothing is moved and nothing waits for
a replacement. What protects a pod from being moved protects it here too, as far as it is about
the pod's users and not about its load; a pod that still runs needs a controller that replaces it
and the consent of its PodDisruptionBudget. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from common.cache.snapshot import Snapshot
from common.cluster.records import PodRecord
from common.config import RebalancerConfiguration, Strategy
from rebalancer.evictability import Context, judge_removal
from rebalancer.goals import Removal
from rebalancer.refusals import Reason, Refusal
from rebalancer.rules import ClusterRules
from rebalancer.strategies.homes import leaving
from rebalancer.strategies.hygiene import Found, HygieneRules


class Removals(NamedTuple):
    """What is removed, and what a reader should know about it."""

    listed: tuple[Removal, ...] = ()
    notes: tuple[str, ...] = ()


def removals(
    snapshot: Snapshot,
    config: RebalancerConfiguration,
    context: Context,
    now_s: float,
    ended: Sequence[PodRecord] = (),
) -> Removals:
    """Return the pods that are to be removed, the oldest first; so many begin in this cycle.

    `ended` are those that have ended, which no snapshot holds.
    """
    rules = ClusterRules(config, snapshot, now_s)
    if Strategy.HYGIENE not in rules.rules.enabled_anywhere():
        return Removals()
    found = sorted(
        _matching(snapshot, config, now_s, ended), key=lambda f: (f[0].created_s, f[0].uid)
    )
    stay: Counter[str] = Counter()
    listed: list[Removal] = []
    started = 0
    for pod, why in found:
        refusals = judge_removal(pod, context)
        if refusals:
            stay[refusals[0].name] += 1
            continue
        held = _held(pod, rules)
        if held is None and started >= config.hygiene.max_removals:
            held = Reason.MAX_REMOVALS.refusal(limit=config.hygiene.max_removals)
        started += held is None
        listed.append(_removal(pod, why, held))
    return Removals(tuple(listed), tuple(_notes(stay)))


def _matching(
    snapshot: Snapshot,
    config: RebalancerConfiguration,
    now_s: float,
    ended: Sequence[PodRecord],
) -> Iterator[tuple[PodRecord, Found]]:
    rules, going = HygieneRules(config.hygiene, now_s), leaving(snapshot)
    known = {**snapshot.pods, **{pod.uid: pod for pod in ended}}
    for uid, pod in known.items():
        if pod.node in snapshot.nodes and uid not in going and (pod.finished or not pod.ready):
            why = rules.why(pod)
            if why is not None:
                yield pod, why


def _held(pod: PodRecord, rules: ClusterRules) -> Refusal | None:
    """Return the rule that keeps a pod where it is for now."""
    strategy = Strategy.HYGIENE
    return (
        rules.strategy_off(strategy, pod.node, "")
        or rules.observed(strategy, pod.node, pod.namespace)
        or rules.closed(strategy, pod.node, pod.namespace)
    )


def _removal(pod: PodRecord, why: Found, held: Refusal | None) -> Removal:
    return Removal(
        strategy=Strategy.HYGIENE,
        node=pod.node,
        pod=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        finished=pod.finished,
        message=f"{why.words} ({why.rule})",
        deferred_by="" if held is None else held.message,
    )


def _notes(stay: Counter[str]) -> Iterator[str]:
    if stay:
        pods = "1 pod" if stay.total() == 1 else f"{stay.total()} pods"
        reasons = ", ".join(f"{count} × {name}" for name, count in sorted(stay.items()))
        yield f"Hygiene does not remove {pods} that its rules match: {reasons}."
