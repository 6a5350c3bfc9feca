# SPDX-License-Identifier: Apache-2.0
"""The text of a demo: one line for the stage, the plan and each move, and the summary. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from common.api.migrations import Outcome, Phase, Step
from common.cluster.migrations import MigrationRecord
from simulator.demo.client import Observation, PlannedMove, ReportedPlan
from simulator.demo.progress import Progress, Stage
from simulator.figures import Figures, Utilization

_KEY: Final = re.compile(r", [a-z][A-Za-z]+\)")
_DOING: Final[Mapping[Step, str]] = {
    Step.BUDGET_CHECKED: "checking PDB",
    Step.MARKED: "marking pod",
    Step.ACKNOWLEDGED: "intent sent",
    Step.PROTECTED: "adding PDB",
    Step.EVICTED: "evicting",
    Step.REPLACED: "scheduling",
    Step.READY: "starting",
    Step.COUNTED: "counting replicas",
    Step.RAISED: "adding replica",
    Step.RANKED: "choosing pod",
    Step.LOWERED: "removing replica",
    Step.CLEANED_UP: "cleaning up",
}
_EVICTION: Final = (
    *(Step.BUDGET_CHECKED, Step.MARKED, Step.ACKNOWLEDGED, Step.PROTECTED),
    *(Step.EVICTED, Step.REPLACED, Step.READY),
)
_SURGE: Final = (
    *(Step.BUDGET_CHECKED, Step.MARKED, Step.ACKNOWLEDGED, Step.COUNTED, Step.RAISED),
    *(Step.REPLACED, Step.READY, Step.RANKED, Step.LOWERED, Step.EVICTED),
)
_ENDED: Final[Mapping[str, str]] = {
    Outcome.AS_PLANNED: "as planned",
    Outcome.ALTERNATIVE: "alternative",
    Outcome.ELSEWHERE: "elsewhere",
    Outcome.BACK_ON_SOURCE: "came back",
    Outcome.UNGUIDED: "unguided",
    Outcome.NOT_REPLACED: "not replaced",
}


def stage_line(progress: Progress, observation: Observation) -> str:
    """Return the current stage in one line."""
    hot, done = observation.utilization.hot, sum(not each.open for each in observation.migrations)
    match progress.stage:
        case Stage.HEATING if not observation.utilization.percent:
            return f"The scheduler has placed {observation.pods} pods. No usage measured yet."
        case Stage.HEATING:
            limit = f"{observation.utilization.ceiling:.0f} % CPU"
            return f"The scheduler considers only requests: {_hot(hot)} above {limit}."
        case Stage.WATCHING if progress.moved:
            return "All moves are done. Waiting for new samples."
        case Stage.WATCHING:
            return "The rebalancer is observing: samples must agree before any pod moves."
        case Stage.PLANNED if progress.plan is not None:
            return f"Plan: {plan_head(progress.plan)}."
        case Stage.MOVING:
            return f"Moving pods: {done} of {len(observation.migrations)} done."
        case Stage.LEVEL if progress.moved:
            return "The cluster is level. Checking that it stays that way."
        case _:
            return "The cluster is level. There is nothing to do."


def plan_head(plan: ReportedPlan) -> str:
    """Return how many evictions a plan has, and the proven minimum."""
    if not plan.moves:
        return "no evictions"
    evictions = _count(len(plan.moves), "eviction")
    if len(plan.moves) == plan.lower_bound:
        return f"{evictions}, the proven minimum"
    return f"{evictions}; at least {plan.lower_bound} are needed"


def plan_reasons(plan: ReportedPlan) -> list[str]:
    """Return the reasons of a plan, each with its number of moves."""
    counts = Counter(move.words for move in plan.moves)
    return [f"{_plain(reason)}: {_count(number, 'move')}" for reason, number in counts.items()]


def plan_move(move: PlannedMove) -> str:
    """Return the target of a pod, and its alternatives."""
    others = f" (or {', '.join(move.alternatives[:2])})" if move.alternatives else ""
    return f"{_name(move.pod)} {move.source} → {move.target}{others}"


def move_state(move: MigrationRecord) -> str:
    """Return how far a move is."""
    if move.phase == Phase.COMPLETED:
        return _ENDED.get(move.outcome, move.outcome)
    if move.phase == Phase.FAILED:
        return f"failed: {move.message}"
    steps = _SURGE if move.surge else _EVICTION
    step = next((step for step in steps if not move.done(step)), Step.CLEANED_UP)
    found = move.condition(step)
    if found is not None and found.reason == "Canary":
        return "waiting"
    return _DOING[step]


def line_of(observation: Observation) -> str:
    """Return the state of the cluster in one line."""
    seen = observation.utilization
    pods = f"{observation.ready} of {observation.pods} pods ready on {seen.nodes} nodes"
    if not seen.percent:
        return f"{pods}, no usage measured yet"
    highest = max(seen.percent.values())
    return f"{pods}: {seen.hot} hot, highest {highest:.0f} %, spread {seen.spread:.0f} points"


def summary(figures: Figures, disruption: str) -> list[tuple[str, str]]:
    """Return the results as pairs of a name and a text."""
    tally, before, after = figures.tally, figures.before, figures.after
    rows = [
        ("hot nodes", f"{before.hot} → {after.hot}  (above {after.ceiling:.0f} % CPU)"),
        (
            "spread",
            f"{_points(before)} → {_points(after)} points between highest and lowest",
        ),
        ("evictions", _evictions(tally.evictions, figures.lower_bound)),
        ("landed", f"{tally.as_planned} as planned, {tally.elsewhere} elsewhere"),
        ("evicted again", f"{tally.again}"),
        ("disruption", disruption),
        ("time", f"{figures.seconds:.0f} s"),
    ]
    if tally.failed or tally.not_replaced:
        rows.insert(
            4, ("failed", f"{_count(tally.failed, 'move')}, {tally.not_replaced} not replaced")
        )
    return rows


def _evictions(number: int, bound: int) -> str:
    if not number:
        return "none"
    needed = "the proven minimum" if number == bound else f"at least {bound} were needed"
    return f"{number}, {needed}"


def verdict(figures: Figures, progress: Progress) -> str:
    """Return the result in one line."""
    if progress.level:
        moved = figures.tally.evictions
        return "The cluster is level." if moved else "The cluster was level. No pod was moved."
    unmet = progress.plan.unmet if progress.plan is not None else ()
    if unmet:
        return f"As level as possible. Goal not met: {unmet[0].goal} ({unmet[0].why})."
    if figures.after.hot or not progress.over:
        return "Not level yet: time is up. Try a higher --speed."
    return "No node is hot. The remaining differences are within the configured limits."


def _hot(count: int) -> str:
    return "no node is" if not count else "1 node is" if count == 1 else f"{count} nodes are"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(pod: str) -> str:
    return pod.rpartition("/")[2]


def _plain(reason: str) -> str:
    """Remove the configuration key: `(allowed 80 %, cpuThreshold)`."""
    return _KEY.sub(")", reason)


def _points(seen: Utilization) -> str:
    return "?" if seen.spread is None else f"{seen.spread:.0f}"
