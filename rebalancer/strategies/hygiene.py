# SPDX-License-Identifier: Apache-2.0
"""Replace pods that are too old or restarted too often, and name those that are to be removed.

A pod that is Ready serves, so it is moved like any other: its replacement goes to another node,
because a node may be why a pod restarts, and a move has a target. One that is not Ready, or has
ended, is removed without a target (`rebalancer/removals.py`): nothing waits for its replacement,
which may start nowhere either.

A rule matches a pod if all of its conditions do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final, NamedTuple

from common.cluster.pod_reports import EPHEMERAL, INIT, MAIN, ContainerReport, PodConditionRecord
from common.cluster.records import PodRecord
from common.cluster.selectors import parse
from common.config import FailedPodsRule, PodLifeTimeRule, PodSelection, TooManyRestartsRule
from common.config import Hygiene as HygieneSettings
from common.config import Strategy as StrategyName
from common.config.hygiene import PodConditionRule
from rebalancer.goals import Goal, Relocate
from rebalancer.strategies.base import ClusterView, Participation
from rebalancer.strategies.homes import Homes, settled

MOST: Final = 200
"""Pods that are asked for in one cycle, the oldest first."""
JOB: Final = "Job"
_FAILED: Final = "Failed"


class Asked(NamedTuple):
    """A pod in the eyes of one rule, at one moment."""

    pod: PodRecord
    now_s: float
    init: bool
    ephemeral: bool = False

    @property
    def containers(self) -> tuple[ContainerReport, ...]:
        """The containers that count."""
        report = self.pod.report
        counts = {MAIN: True, INIT: self.init, EPHEMERAL: self.ephemeral}
        return tuple(c for c in report.containers if counts[c.group]) if report else ()

    @property
    def reasons(self) -> Iterator[str]:
        """Why it and its containers are what they are."""
        if self.pod.report is not None:
            yield self.pod.report.reason
        yield from (container.reason for container in self.containers)

    @property
    def age_s(self) -> float:
        return self.now_s - self.pod.created_s

    @property
    def restarts(self) -> int:
        report = self.pod.report
        if report is None:
            return 0
        return report.restarts + (report.init_restarts if self.init else 0)

    def in_state(self, states: Sequence[str]) -> bool:
        return not states or self.pod.phase in states or any(r in states for r in self.reasons)

    def ended_with(self, codes: Sequence[int]) -> bool:
        return not codes or any(c.exit_code in codes for c in self.containers)


class Found(NamedTuple):
    """The rule that matches a pod, and why."""

    rule: str
    words: str


class HygieneRules:
    """The rules of a configuration at one moment."""

    def __init__(self, settings: HygieneSettings, now_s: float) -> None:
        self._now_s = now_s
        self._rules: list[tuple[str, PodSelection, Callable[[PodRecord], str]]] = []
        for number, lifetime in enumerate(settings.pod_life_time):
            self._add(f"podLifeTime[{number}]", lifetime, self._lifetime(lifetime))
        for number, restarts in enumerate(settings.too_many_restarts):
            self._add(f"tooManyRestarts[{number}]", restarts, self._restarted(restarts))
        for number, failed in enumerate(settings.failed_pods):
            self._add(f"failedPods[{number}]", failed, self._failed(failed))

    def _add(self, name: str, rule: PodSelection, why: Callable[[PodRecord], str]) -> None:
        self._rules.append((f"hygiene.{name}", rule, why))

    def why(self, pod: PodRecord) -> Found | None:
        """Return the first rule that matches a pod."""
        for name, rule, why in self._rules:
            words = why(pod)
            if words and selects(rule, pod):
                return Found(name, words)
        return None

    def _lifetime(self, rule: PodLifeTimeRule) -> Callable[[PodRecord], str]:
        def why(pod: PodRecord) -> str:
            asked = Asked(
                pod,
                self._now_s,
                rule.including_init_containers,
                rule.including_ephemeral_containers,
            )
            fits = (
                (rule.max_age is None or asked.age_s > rule.max_age.seconds)
                and asked.in_state(rule.states)
                and _any_condition(asked, rule.conditions)
                and asked.ended_with(rule.exit_codes)
            )
            return f"it was created {asked.age_s:.0f}s ago{_state(asked, rule)}" if fits else ""

        return why

    def _restarted(self, rule: TooManyRestartsRule) -> Callable[[PodRecord], str]:
        def why(pod: PodRecord) -> str:
            if pod.report is None:
                return ""
            asked = Asked(pod, self._now_s, rule.including_init_containers)
            if asked.restarts < rule.restarts or not _waits_in(asked, rule.states):
                return ""
            return f"its containers were restarted {asked.restarts} times (limit {rule.restarts})"

        return why

    def _failed(self, rule: FailedPodsRule) -> Callable[[PodRecord], str]:
        def why(pod: PodRecord) -> str:
            if pod.phase != _FAILED:
                return ""
            asked = Asked(pod, self._now_s, rule.including_init_containers)
            reasons = [reason for reason in asked.reasons if reason]
            fits = (
                asked.age_s >= rule.min_age.seconds
                and (not rule.reasons or any(r in rule.reasons for r in reasons))
                and asked.ended_with(rule.exit_codes)
            )
            return f"it has failed{f' ({reasons[0]})' if reasons else ''}" if fits else ""

        return why


def _state(asked: Asked, rule: PodLifeTimeRule) -> str:
    found = [r for r in (asked.pod.phase, *asked.reasons) if r in rule.states]
    return f" and is in state {found[0]}" if found else ""


def _waits_in(asked: Asked, states: Sequence[str]) -> bool:
    """Reasons why containers have ended do not count, as in the descheduler's plugin."""
    waiting = {each.reason for each in asked.containers if each.exit_code is None}
    return not states or asked.pod.phase in states or not waiting.isdisjoint(states)


def selects(rule: PodSelection, pod: PodRecord) -> bool:
    """Tell whether a rule is about a pod, whatever its state."""
    return all(chosen(rule, pod) for chosen in SELECTIONS)


def _in_its_namespaces(rule: PodSelection, pod: PodRecord) -> bool:
    names = rule.namespaces
    if names.include:
        return pod.namespace in names.include
    return pod.namespace not in names.exclude


def _with_its_labels(rule: PodSelection, pod: PodRecord) -> bool:
    return not rule.pod_selector or parse(rule.pod_selector).matches(pod.labels)


def _of_its_owners(rule: PodSelection, pod: PodRecord) -> bool:
    kinds, kind = rule.owner_kinds, pod.owner.kind if pod.owner is not None else ""
    if kinds.include:
        return kind in kinds.include
    return kind not in kinds.exclude


def _no_record_of_a_job(rule: PodSelection, pod: PodRecord) -> bool:
    """People read the pods of a Job after its end, and its controller counts them."""
    of_job = pod.owner is not None and pod.owner.kind == JOB
    return not (of_job and pod.finished) or JOB in rule.owner_kinds.include


SELECTIONS: tuple[Callable[[PodSelection, PodRecord], bool], ...] = (
    _in_its_namespaces,
    _with_its_labels,
    _of_its_owners,
    _no_record_of_a_job,
)


def _any_condition(asked: Asked, rules: Sequence[PodConditionRule]) -> bool:
    if not rules:
        return True
    found = list(_conditions(asked.pod))
    return any(_matches(rule, each, asked.now_s) for rule in rules for each in found)


def _conditions(pod: PodRecord) -> Iterator[PodConditionRecord]:
    yield from pod.conditions
    known = {each.type for each in pod.conditions}
    for type_, since_s in (("Ready", pod.ready_since_s), ("PodScheduled", pod.scheduled_s)):
        if since_s is not None and type_ not in known:
            yield PodConditionRecord(type_, "True", "", since_s)


def _matches(rule: PodConditionRule, found: PodConditionRecord, now_s: float) -> bool:
    # Without a time nothing is known about its age.
    if rule.min_age is not None and (
        found.since_s is None or now_s - found.since_s < rule.min_age.seconds
    ):
        return False
    wanted = ((rule.type, found.type), (rule.status, found.status), (rule.reason, found.reason))
    return all(asked is None or asked == said for asked, said in wanted)


class Hygiene:
    """States that Ready pods that a rule matches have to leave."""

    name: ClassVar[StrategyName] = StrategyName.HYGIENE
    for_load: ClassVar[bool] = False

    def goals(self, cluster: ClusterView, parts: Participation) -> Sequence[Goal]:
        homes = Homes(cluster, parts)
        found = (pair for pair in _served(cluster) if homes.movable(pair[0]))
        return [
            Relocate(
                strategy=self.name,
                node=pod.node,
                pod=pod.uid,
                name=pod.key,
                message=f"{pod.key} is to be replaced: {why.words} ({why.rule})",
            )
            for pod, why in islice(found, MOST)
        ]

    def notes(self, cluster: ClusterView, parts: Participation) -> Sequence[str]:
        """Tell what stands in the way of replacing pods."""
        settings = cluster.config.hygiene
        if not (settings.pod_life_time or settings.too_many_restarts or settings.failed_pods):
            return ["Hygiene has no rules (hygiene), so it does nothing."]
        homes = Homes(cluster, parts)
        stay = sum(not homes.movable(pod) for pod, _ in _served(cluster))
        if not stay:
            return ()
        pods = "1 pod is" if stay == 1 else f"{stay} pods are"
        return [f"{pods} to be replaced by the rules of Hygiene, but may not be moved now."]


def _served(cluster: ClusterView) -> Iterator[tuple[PodRecord, Found]]:
    """Yield the Ready pods that a rule matches, the oldest first."""
    rules = HygieneRules(cluster.config.hygiene, cluster.now_s)
    ready = (pod for pod in cluster.snapshot.pods.values() if pod.ready and settled(pod))
    bound = (pod for pod in ready if pod.node in cluster.snapshot.nodes)
    found = [(pod, why) for pod in bound if (why := rules.why(pod)) is not None]
    yield from sorted(found, key=lambda pair: (pair[0].created_s, pair[0].uid))
