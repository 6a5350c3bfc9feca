# SPDX-License-Identifier: Apache-2.0
"""The plan for people: nodes before and after, moves, and what stays, folded by reason.

Read from top to bottom it answers: what is wrong, what will be done, how few evictions could
be enough, what will not be done, and why. A plain terminal loses only color; a narrow one loses
the bars, and moves are blocks of lines there, because no name is ever cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from common.grid import Fitting, Grid
from common.visible import made_visible, visible
from rebalancer.goals import Removal
from rebalancer.planner.plan import Level, Move, NodePlan, Plan, Refused
from rebalancer.refusals import Reason, Refusal

_BAR: Final = 10
_NODES: Final = 30
"""More rows than this are not read; the most loaded and all that change are shown."""
_NAMED: Final = 3
"""How many pods are named under a reason; the rest is counted."""


def render(plan: Plan, *, all_pods: bool = False, asides: Sequence[str] = ()) -> RenderableType:
    """Return the whole plan as text; pods that stay are folded by reason, or listed one by one.

    `asides` are notes that explain nothing of the plan.
    """
    # Texts from the cluster may contain line ends, and would look like our own lines.
    parts = _parts(made_visible(plan), all_pods=all_pods, asides=[visible(each) for each in asides])
    return Group(*(line for part in parts for line in (part, Text())))


def _parts(plan: Plan, *, all_pods: bool, asides: Sequence[str]) -> Iterator[RenderableType]:
    yield _headline(plan)
    if plan.goals:
        yield _listing("goals", _goals(plan))
    if plan.nodes:
        yield _nodes(plan.nodes)
    if plan.moves:
        yield _moves(plan.moves)
    if plan.removals:
        yield _listing("removed without a target", map(_removal, plan.removals))
    if plan.unmet:
        yield _listing("not met", (f"{each.goal}: {each.why.message}" for each in plan.unmet))
    if plan.opt_outs:
        yield _listing("opted out, but needed for a goal", _opted_out(plan))
    if all_pods and plan.refused:
        yield _listing("pods that stay", _each(plan.refused))
    if plan.refused or plan.staying:
        title = "pods that stay, by reason" if all_pods else "pods that stay"
        yield _listing(title, (*_folded(plan), *_elsewhere(plan)))
    if plan.notes or asides:
        yield _listing("notes", (*plan.notes, *asides))


def _removal(removal: Removal) -> str:
    later = f"; not now: {removal.deferred_by}" if removal.deferred_by else ""
    return f"{removal.key} on {removal.node}: {removal.message}{later}"


def _headline(plan: Plan) -> Text:
    count, bound = len(plan.moves), plan.lower_bound.evictions
    later = sum(not move.this_cycle for move in plan.moves)
    if not count:
        return Text.assemble(("0 evictions", "bold"), f": {_why_nothing(plan)}")
    for_these = "" if not plan.unmet else " for the goals that are met"
    needed = f", at least {bound} needed{for_these} ({plan.lower_bound.message})" if bound else ""
    rest = f"; {count - later} now, {later} later" if later else ""
    evictions = f"{count} eviction{'s' if count > 1 else ''}"
    figures = f"{needed}{rest}{_unmet(plan)}{_fewest(plan)}"
    return Text.assemble((evictions, "bold"), f"{figures}   plan {plan.plan_id}")


def _unmet(plan: Plan) -> str:
    if not plan.unmet:
        return ""
    least = plan.lower_bound_all.evictions
    at_least = f", for all of them at least {least} evictions are needed" if least else ""
    return f"; {len(plan.unmet)} of {len(plan.goals)} goals are not met{at_least}"


def _fewest(plan: Plan) -> str:
    """Return what priorities cost, where they do."""
    fewest = plan.fewest_evictions
    if fewest is None or fewest >= len(plan.moves):
        return ""
    return f"; priorityPolicy: FewestEvictions would need {fewest}"


def _goals(plan: Plan) -> Iterator[str]:
    """Yield the goals; where nothing is to be moved, those that are met say so."""
    unmet = {each.goal for each in plan.unmet}
    for goal in plan.goals:
        yield goal if plan.moves or goal in unmet else f"{goal}: met"


def _why_nothing(plan: Plan) -> str:
    if plan.goals and not plan.unmet:
        return "all goals are met"
    if plan.goals:
        return "no possible move would help"
    return "see the notes" if plan.notes else "nothing to do"


def _nodes(nodes: Sequence[NodePlan]) -> RenderableType:
    shown = _worth_showing(nodes)
    table = Fitting(_levels(shown, _bar), _levels(shown, _figure))
    hidden = len(nodes) - len(shown)
    more = [Text(f" {hidden} more nodes do not change", style="dim")] if hidden else []
    return Group(table, *more)


def _levels(nodes: Iterable[NodePlan], drawn: Callable[[float], Text]) -> Grid:
    shown = list(nodes)
    further = [name for name, _ in shown[0].before.further] if shown else []
    names = [f"{name} before → after" for name in ("cpu", "memory", *further)]
    table = Grid(("node", *names, "note"))
    unknown = Text("unknown", style="yellow")
    for node in shown:
        pairs = zip(_percents(node.before), _percents(node.after), strict=True)
        levels = [unknown if node.unknown else _change(*pair, drawn) for pair in pairs]
        table.add(node.name, *levels, _remark(node))
    return table


def _percents(level: Level) -> tuple[float, ...]:
    return (level.cpu, level.memory, *(percent for _, percent in level.further))


def _worth_showing(nodes: Sequence[NodePlan]) -> list[NodePlan]:
    ranked = sorted(nodes, key=lambda node: (not node.role, -_highest(node.before), node.name))
    return ranked[: max(_NODES, sum(bool(node.role) for node in nodes))]


def _highest(level: Level) -> float:
    return max((part for part in _percents(level) if part == part), default=-1.0)


def _change(before: float, after: float, drawn: Callable[[float], Text]) -> Text:
    if before != before:
        return Text("?", style="dim")
    text = drawn(before)
    if round(before) != round(after):
        text.append(" → ")
        text.append_text(drawn(after))
    return text


def _bar(percent: float) -> Text:
    filled = min(_BAR, round(percent / 100 * _BAR))
    rest = "·" * (_BAR - filled)
    return Text.assemble(("█" * filled, _style(percent)), (rest, "dim"), f"{percent:4.0f} %")


def _figure(percent: float) -> Text:
    return Text(f"{percent:3.0f} %", style=_style(percent))


def _style(percent: float) -> str:
    return "red" if percent >= 80 else "yellow" if percent >= 60 else "green"


def _remark(node: NodePlan) -> Text:
    if node.unknown:
        return Text(f"its load is unknown: {node.unknown}", style="yellow")
    state = sorted({each.name for each in node.state})
    if node.role:
        return Text(", ".join((node.role, *state)))
    reasons = sorted({each.name for each in (*node.source_refusals, *node.target_refusals)})
    return Text(", ".join((*reasons, *state)), style="dim")


def _moves(moves: Sequence[Move]) -> Grid:
    table = Grid(("move", "pod", "of", "from", "to", "or", "why"), right=("move",))
    for number, move in enumerate(moves, 1):
        when = Text(str(number), style="" if move.this_cycle else "dim")
        why = move.message if move.this_cycle else f"{move.message}; later: {move.deferred_by}"
        others = ", ".join(move.alternatives[:2])
        table.add(when, move.pod, move.owner, move.source, move.target, others, why)
    return table


def _opted_out(plan: Plan) -> Iterator[str]:
    for each in plan.opt_outs:
        yield f"{each.goal}: namespace {each.namespace}, {each.reason} ({_named(each.pods)})"


def _folded(plan: Plan) -> Iterator[str]:
    """Fold pods by reason, the commonest first."""
    pods: dict[str, set[str]] = defaultdict(set)
    sample: dict[str, Refusal] = {}
    for refused in plan.refused:
        for reason in refused.reasons:
            pods[reason.name].add(refused.pod)
            sample.setdefault(reason.name, reason)
    for name in sorted(pods, key=lambda name: (-len(pods[name]), name)):
        yield f"{len(pods[name])} {name}: {sample[name].message} ({_named(pods[name])})"


def _each(refused: Iterable[Refused]) -> Iterator[str]:
    for each in refused:
        reasons = "; ".join(f"{reason.name}: {reason.message}" for reason in each.reasons)
        yield f"{each.pod} on {each.node}: {reasons}"


def _elsewhere(plan: Plan) -> Iterator[str]:
    """Return how many pods stay on nodes that need not give, if they are not listed."""
    listed = {reason.name for refused in plan.refused for reason in refused.reasons}
    for each in plan.staying:
        if each.reason == Reason.NODE_NOT_ASKED and each.reason not in listed:
            yield f"{each.pods} {each.reason}: {Reason.NODE_NOT_ASKED.refusal().message} (--all)"


def _named(pods: Iterable[str]) -> str:
    names = sorted(pods)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _listing(title: str, lines: Iterable[str]) -> RenderableType:
    listed = Grid(("",), indent=2)
    for line in lines:
        listed.add(line)
    return Group(Text(title, style="bold"), listed)
