"""What is said in a demo, line by line: the stage, the plan, each move, the summary. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from common.cluster.migrations import MigrationRecord, Outcome, Phase, Step
from simulator.demo.sight import PlannedMove, PlanSeen, Sight
from simulator.demo.story import Stage, Story
from simulator.figures import Figures, Look

_KEY: Final = re.compile(r", [a-z][A-Za-z]+\)")
_DOING: Final[Mapping[Step, str]] = {
    Step.BUDGET_CHECKED: "asks budgets",
    Step.MARKED: "marks it",
    Step.ACKNOWLEDGED: "sends intent",
    Step.PROTECTED: "adds budget",
    Step.EVICTED: "evicts",
    Step.REPLACED: "is placed",
    Step.READY: "starts",
    Step.CLEANED_UP: "tidies up",
}
_ENDED: Final[Mapping[str, str]] = {
    Outcome.AS_PLANNED: "as planned",
    Outcome.ALTERNATIVE: "alternative",
    Outcome.ELSEWHERE: "elsewhere",
    Outcome.BACK_ON_SOURCE: "came back",
    Outcome.UNGUIDED: "unguided",
    Outcome.NOT_REPLACED: "not replaced",
}


def stage_line(story: Story, sight: Sight) -> str:
    """Say where the story is."""
    hot, done = sight.look.hot, sum(not each.open for each in sight.migrations)
    match story.stage:
        case Stage.HEATING if not sight.look.percent:
            return f"The plain scheduler has placed {sight.pods} pods; nothing is measured yet."
        case Stage.HEATING:
            return f"The plain scheduler looks at requests only: {_hot(hot)} above the ceiling."
        case Stage.WATCHING if story.moved:
            return "The moves are over; new samples must show what is left."
        case Stage.WATCHING:
            return "The rebalancer watches: new samples must agree before anything moves."
        case Stage.PLANNED if story.plan is not None:
            return f"A plan: {plan_head(story.plan)}."
        case Stage.MOVING:
            return f"Pods move, each with its intent: {done} of {len(sight.migrations)} are done."
        case Stage.LEVEL if story.moved:
            return "The cluster is level; it is watched for a while that it stays so."
        case _:
            return "The cluster is level: there is nothing to do."


def plan_head(plan: PlanSeen) -> str:
    """Say how many evictions a plan has, and how few could do."""
    if not plan.moves:
        return "nothing is to be moved"
    evictions = _count(len(plan.moves), "eviction")
    if len(plan.moves) == plan.lower_bound:
        return f"{evictions}, proven to be the fewest"
    return f"{evictions}; {plan.lower_bound} at least are proven to be needed"


def plan_reasons(plan: PlanSeen) -> list[str]:
    """Say why, one line a reason, with the number of moves."""
    counts = Counter(move.words for move in plan.moves)
    return [f"{_plain(words)}: {_count(number, 'move')}" for words, number in counts.items()]


def plan_move(move: PlannedMove) -> str:
    """Say where a pod is to go, and where else it may."""
    others = f" (or {', '.join(move.alternatives[:2])})" if move.alternatives else ""
    return f"{_name(move.pod)} {move.source} → {move.target}{others}"


def move_state(move: MigrationRecord) -> str:
    """Say how far a move is."""
    if move.phase == Phase.COMPLETED:
        return _ENDED.get(move.outcome, move.outcome)
    if move.phase == Phase.FAILED:
        return f"given up: {move.message}"
    step = next((step for step in Step if not move.done(step)), Step.CLEANED_UP)
    found = move.condition(step)
    if found is not None and found.reason == "Canary":
        return "waits"
    return _DOING[step]


def line_of(sight: Sight) -> str:
    """Say in one line how the cluster is."""
    seen = sight.look
    if not seen.percent:
        return f"{sight.ready} of {sight.pods} pods run on {seen.nodes} nodes, nothing measured yet"
    return (
        f"{sight.ready} of {sight.pods} pods run on {seen.nodes} nodes: {seen.hot} hot, "
        f"highest {max(seen.percent.values()):.0f} %, spread {seen.spread:.0f} points"
    )


def summary(figures: Figures, disruption: str) -> list[tuple[str, str]]:
    """Return what it came to, as pairs of a name and words."""
    tally, before, after = figures.tally, figures.before, figures.after
    rows = [
        ("hot nodes", f"{before.hot} → {after.hot}  (above {after.ceiling:.0f} % of their CPU)"),
        ("spread", f"{_points(before)} → {_points(after)} points between highest and lowest"),
        ("evictions", _evictions(tally.evictions, figures.lower_bound)),
        ("landed", f"{tally.as_planned} as planned, {tally.elsewhere} elsewhere"),
        ("evicted again", f"{tally.again}"),
        ("disruption", disruption),
        ("time", f"{figures.seconds:.0f} s"),
    ]
    if tally.failed or tally.not_replaced:
        rows.insert(4, ("given up", f"{tally.failed} moves; {tally.not_replaced} not replaced"))
    return rows


def _evictions(number: int, bound: int) -> str:
    if not number:
        return "none"
    fewest = "proven to be the fewest" if number == bound else f"{bound} at least were needed"
    return f"{number}; {fewest}"


def verdict(figures: Figures, story: Story) -> str:
    """Say how it ended, in one line."""
    if story.level:
        moved = figures.tally.evictions
        return (
            "The cluster is level." if moved else "There was nothing to do, and nothing was done."
        )
    unmet = story.plan.unmet if story.plan is not None else ()
    if unmet:
        return f"As level as it gets: {unmet[0].goal} cannot be met, because {unmet[0].why}."
    if figures.after.hot or not story.over:
        return "Not level yet: the time is over. A higher --speed gets further."
    return "As level as the rebalancer makes it: what is left is within its limits."


def _hot(count: int) -> str:
    return "no node is" if not count else "1 node is" if count == 1 else f"{count} nodes are"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _name(pod: str) -> str:
    return pod.rpartition("/")[2]


def _plain(words: str) -> str:
    """Leave out the name of the key: `(allowed 80 %, cpuThreshold)`."""
    return _KEY.sub(")", words)


def _points(seen: Look) -> str:
    return "?" if seen.spread is None else f"{seen.spread:.0f}"
