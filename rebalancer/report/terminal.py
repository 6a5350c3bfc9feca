"""The plan for people: nodes before and after, moves, and what stays, folded by reason.

Read from top to bottom it answers: what is wrong, what will be done, how few evictions could
do, what will not be done, and why. On a narrow or plain terminal nothing is lost but colour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from common.visible import made_visible
from rebalancer.planner.plan import Level, Move, NodePlan, Plan
from rebalancer.reasons import Refusal

_BAR: Final = 10
_NODES: Final = 30
"""More rows than this are not read; the most loaded and all that change are shown."""
_NAMED: Final = 3
"""So many pods are named under a reason; the rest is counted."""


def render(plan: Plan) -> RenderableType:
    """Return everything that there is to say about a plan."""
    # Words of others may hold line ends too, and would look like lines of ours.
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in _parts(made_visible(plan))))


def _parts(plan: Plan) -> Iterator[RenderableType]:
    yield _headline(plan)
    if plan.goals:
        yield _listing("goals", plan.goals)
    if plan.nodes:
        yield _nodes(plan.nodes)
    if plan.moves:
        yield _moves(plan.moves)
    if plan.unmet:
        yield _listing("not met", (f"{each.goal}: {each.why.words}" for each in plan.unmet))
    if plan.opt_outs:
        yield _listing("opted out, and in the way of a goal", _opted_out(plan))
    if plan.refused:
        yield _listing("pods that stay", _folded(plan))
    if plan.notes:
        yield _listing("notes", plan.notes)


def _headline(plan: Plan) -> Text:
    count, bound = len(plan.moves), plan.lower_bound.evictions
    later = sum(not move.this_cycle for move in plan.moves)
    if not count:
        return Text.assemble(("evictions 0", "bold"), f", {_why_nothing(plan)}")
    needed = f", at least {bound} needed ({plan.lower_bound.words})" if bound else ""
    rest = f"; {count - later} now, {later} later" if later else ""
    return Text.assemble((f"evictions {count}", "bold"), f"{needed}{rest}   plan {plan.plan_id}")


def _why_nothing(plan: Plan) -> str:
    if plan.goals:
        return "for no move brings a goal nearer"
    return "see the notes" if plan.notes else "nothing to do"


def _nodes(nodes: Sequence[NodePlan]) -> Table:
    shown = _worth_showing(nodes)
    hidden = len(nodes) - len(shown)
    caption = f"{hidden} more nodes do not change" if hidden else None
    table = Table(box=None, header_style="bold", caption=caption, caption_justify="left")
    table.add_column("node")
    table.add_column("cpu before → after", no_wrap=True)
    table.add_column("memory before → after", no_wrap=True)
    table.add_column("")
    for node in shown:
        table.add_row(
            node.name,
            _change(node.before.cpu, node.after.cpu),
            _change(node.before.memory, node.after.memory),
            _remark(node),
        )
    return table


def _worth_showing(nodes: Sequence[NodePlan]) -> list[NodePlan]:
    ranked = sorted(nodes, key=lambda node: (not node.role, -_highest(node.before), node.name))
    return ranked[: max(_NODES, sum(bool(node.role) for node in nodes))]


def _highest(level: Level) -> float:
    return max((part for part in (level.cpu, level.memory) if part == part), default=-1.0)


def _change(before: float, after: float) -> Text:
    if before != before:
        return Text("?", style="dim")
    text = _bar(before)
    if round(before) != round(after):
        text.append(" → ")
        text.append_text(_bar(after))
    return text


def _bar(percent: float) -> Text:
    filled = min(_BAR, round(percent / 100 * _BAR))
    style = "red" if percent >= 80 else "yellow" if percent >= 60 else "green"
    rest = "·" * (_BAR - filled)
    return Text.assemble(("█" * filled, style), (rest, "dim"), f"{percent:4.0f} %")


def _remark(node: NodePlan) -> Text:
    if node.unknown:
        return Text(f"unknown: {node.unknown}", style="yellow")
    if node.role:
        return Text(node.role)
    reasons = sorted({each.name for each in (*node.source_refusals, *node.target_refusals)})
    return Text(", ".join(reasons), style="dim")


def _moves(moves: Sequence[Move]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("", "pod", "of", "from", "to", "or", "why"):
        table.add_column(title, overflow="fold")
    for number, move in enumerate(moves, 1):
        when = Text(str(number), style="" if move.this_cycle else "dim")
        why = move.words if move.this_cycle else f"{move.words}; later: {move.deferred_by}"
        others = ", ".join(move.alternatives[:2])
        table.add_row(when, move.pod, move.owner, move.source, move.target, others, why)
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
        yield f"{len(pods[name])} {name}: {sample[name].words} ({_named(pods[name])})"


def _named(pods: Iterable[str]) -> str:
    names = sorted(pods)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _listing(title: str, lines: Iterable[str]) -> Text:
    text = Text(title, style="bold")
    for line in lines:
        text.append(f"\n  {line}", style="not bold")
    return text
