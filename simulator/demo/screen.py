# SPDX-License-Identifier: Apache-2.0
"""A demo as a terminal screen: bars, the plan, the moves, and the stage.

Pure: a state in, something that rich can draw out. It is made for 100 columns and 30 lines;
on a smaller terminal it shows fewer lines and shorter text in the same layout.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from common.api.migrations import Outcome, Phase
from common.cluster.migrations import MigrationRecord
from simulator.demo.client import Observation, ReportedPlan
from simulator.demo.progress import Progress, Stage
from simulator.demo.text import move_state, plan_head, plan_reasons, stage_line
from simulator.figures import Utilization, natural

BLOCK: Final = "█"
HOT, WARM, COOL = "red", "yellow", "green"
_NARROW: Final = 90
_AROUND: Final = 5
"""Lines that are always shown: the title, the frame of the columns, the stages."""
_TALL: Final = 28
_ROOMY: Final = 46
# The alphabet of generated names (apimachinery, pkg/util/rand/rand.go).
_HASHED: Final = re.compile(
    r"^(.+)-[bcdfghjklmnpqrstvwxz2456789]{7,10}-([bcdfghjklmnpqrstvwxz2456789]{5})$"
)
_STAGES: Final = {
    Stage.HEATING: "heating up",
    Stage.WATCHING: "observing",
    Stage.PLANNED: "planned",
    Stage.MOVING: "moving",
    Stage.LEVEL: "level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoState:
    """Everything that is shown at one moment of a demo."""

    title: str
    description: str
    waits: str
    progress: Progress
    observation: Observation
    seconds: float
    console: str = ""
    """Address of the console; empty before it is there."""


def screen(state: DemoState, width: int, height: int) -> RenderableType:
    """Return the whole screen."""
    about, waits = _about(state, width, height), wrap(state.waits, width)
    room = max(4, height - _AROUND - len(about) - len(waits))
    return Group(
        _head(state, width),
        Text("\n".join(about)),
        _columns(state, width, room),
        _stages(state),
        Text(
            stage_line(state.progress, state.observation),
            style="bold",
            no_wrap=True,
            overflow="ellipsis",
        ),
        Text("\n".join(waits), style="dim"),
    )


def left_width(width: int) -> int:
    """Return how many columns the nodes get."""
    return width // 2 - 3 if width >= _NARROW else width * 9 // 20


def bars(
    utilization: Utilization, moves: Sequence[MigrationRecord], width: int, rows: int
) -> Table:
    """Return a bar for every node, or for the hottest where there is no room for all."""
    shown, rest = _fitting(utilization, rows)
    leaving = Counter(str(m.source) for m in moves if m.open)
    coming = Counter(str(m.target) for m in moves if m.open)
    table = Table.grid(padding=(0, 1), expand=False)
    names = max((len(name) for name in shown), default=6)
    length = max(8, width - names - 10)
    for name in shown:
        percent = utilization.percent[name]
        table.add_row(
            Text(name, no_wrap=True),
            bar(percent, utilization.ceiling, length),
            Text(f"{percent:3.0f} %", style=_heat(percent, utilization.ceiling), justify="right"),
            _traffic(leaving[name], coming[name]),
        )
    if rest:
        table.add_row("…", Text(f"{len(rest)} more, ≤ {max(rest):.0f} %", style="dim"))
    return table


def bar(percent: float, ceiling: float, length: int) -> Text:
    """Return a bar with a mark at the ceiling."""
    filled, mark = round(min(percent, 100.0) / 100 * length), round(ceiling / 100 * length)
    color = _heat(percent, ceiling)
    text = Text(no_wrap=True)
    text.append(BLOCK * min(filled, mark), style=color)
    text.append("·" * (mark - filled), style="bright_black")
    text.append("┃", style=f"white on {color}" if filled > mark else "white")
    text.append(BLOCK * (filled - mark - 1), style=color)
    return text.append("·" * (length - max(filled, mark + 1)), style="bright_black")


def plan_lines(plan: ReportedPlan | None, width: int, rows: int) -> Text:
    """Return the plan with its reasons."""
    if plan is None:
        return Text("None yet: the rebalancer has not started.", style="dim")
    text = Text(_capital(plan_head(plan)), style="bold" if plan.moves else "")
    why = [*plan_reasons(plan), *(f"not possible: {each.goal} ({each.why})" for each in plan.unmet)]
    first = _first(plan)
    for line in _at_most([*why, *(() if plan.moves else plan.notes)], width, rows - len(first) - 1):
        text.append(f"\n{line}", style="not bold")
    for part in first:
        text.append("\n").append_text(part)
    return text


def _first(plan: ReportedPlan) -> list[Text]:
    """Return the first move and its alternatives."""
    if not plan.moves:
        return []
    move = plan.moves[0]
    way = Text.assemble(
        (f"first: {_pod(move.pod)} ", "not bold dim"),
        (f"{move.source} → {move.target}", "not bold cyan"),
    )
    others = Text(f"  or {', '.join(move.alternatives[:3])}", style="not bold dim")
    return [way, others] if move.alternatives else [way]


def move_table(moves: Sequence[MigrationRecord], width: int, rows: int) -> RenderableType:
    """Return the moves, those under way first, then the latest."""
    if not moves:
        return Text("No pod has moved.", style="dim")
    ordered = sorted(moves, key=lambda m: (not m.open, -m.created_s, m.name))
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(no_wrap=True, overflow="ellipsis", width=14)
    for move in ordered[: rows if len(ordered) <= rows else rows - 1]:
        table.add_row(_pod(move.pod_name), _way(move, width), _state(move))
    if len(ordered) > rows:
        rest = ordered[rows - 1 :]
        landed = sum(m.outcome == Outcome.AS_PLANNED for m in rest)
        table.add_row(Text(f"… {len(rest)} more", style="dim"), "", f"{landed} as planned")
    return table


def _head(state: DemoState, width: int) -> Text:
    text = Text(no_wrap=True)
    text.append(" Evenkeel ", style="bold reverse").append(f" demo: {state.title}", style="bold")
    if state.console:
        text.append(f"  {state.console}", style="cyan")
    clock = f" {state.seconds:3.0f} s"
    text.truncate(width - len(clock), overflow="ellipsis", pad=True)
    return text.append(clock, style="dim")


def _about(state: DemoState, width: int, height: int) -> list[str]:
    lines = 2 if height >= _TALL else 1
    return wrap(state.description, width, max_lines=lines, placeholder=" …")


def _columns(state: DemoState, width: int, room: int) -> Table:
    left = left_width(width)
    observation = state.observation
    table = Table.grid()
    ceiling = f"Measured CPU utilization; ┃ {observation.utilization.ceiling:.0f} %"
    measured = bars(observation.utilization, observation.migrations, left - 4, room)
    unmeasured = Text("No usage measured yet.", style="dim")
    nodes = _panel(ceiling, measured if observation.utilization.percent else unmeasured, left, room)
    # The plan gets the lines that it needs, the moves get the rest.
    above = min(max(4, room // 2 - 2), 9)
    right, below = width - left, room - above - 2
    lines = plan_lines(state.progress.plan, right - 4, above)
    moves = move_table(observation.migrations, right - 4, below)
    plan = _panel("Plan and reasons", lines, right, above)
    table.add_row(nodes, Group(plan, _panel("Moves", moves, right, below)))
    return table


def _panel(title: str, content: RenderableType, width: int, rows: int) -> Panel:
    return Panel(
        content,
        title=Text(title, style="bold white"),
        title_align="left",
        box=box.ROUNDED,
        border_style="bright_black",
        width=width,
        height=rows + 2,
    )


def _stages(state: DemoState) -> Padding:
    text = Text(no_wrap=True, overflow="ellipsis")
    for stage, name in _STAGES.items():
        if stage.value > 1:
            text.append(" ── ", style="bright_black")
        here, past = stage is state.progress.stage, stage.value <= state.progress.furthest.value
        style = "bold cyan" if here else "" if past else "bright_black"
        text.append(f"{'●' if here or past else '○'} {name}", style=style)
    return Padding(text, (0, 0))


def _fitting(utilization: Utilization, rows: int) -> tuple[list[str], list[float]]:
    if len(utilization.percent) <= rows:
        return list(utilization.percent), []
    hottest = sorted(utilization.percent, key=lambda name: -utilization.percent[name])
    shown, rest = hottest[: rows - 1], hottest[rows - 1 :]
    return sorted(shown, key=natural), [utilization.percent[name] for name in rest]


def _heat(percent: float, ceiling: float) -> str:
    return HOT if percent > ceiling else WARM if percent > ceiling - 10 else COOL


def _traffic(leaving: int, coming: int) -> Text:
    if leaving:
        return Text(f"-{leaving}", style=HOT)
    return Text(f"+{coming}" if coming else "  ", style="cyan")


def _state(move: MigrationRecord) -> Text:
    if move.phase == Phase.FAILED:
        return Text(f"✗ {move_state(move)}", style=HOT)
    if move.phase == Phase.COMPLETED:
        planned = move.outcome == Outcome.AS_PLANNED
        return Text(f"✓ {move_state(move)}", style=COOL if planned else WARM)
    return Text(f"… {move_state(move)}", style=WARM)


def _at_most(points: Sequence[str], width: int, most: int) -> list[str]:
    """Return wrapped bullet points; an ellipsis replaces what does not fit."""
    wrapped = [wrap(point, width, initial_indent="· ", subsequent_indent="  ") for point in points]
    lines = [line for each in wrapped for line in each]
    return lines if len(lines) <= most else [*lines[: most - 1], "  …"]


def _way(move: MigrationRecord, width: int) -> str:
    if width >= _ROOMY:
        return f"{move.source} → {move.target}"
    return f"{move.source.removeprefix('node-')}→{move.target.removeprefix('node-')}"


def _pod(name: str) -> str:
    """Remove the hash in the middle: search-1-7f7fd599c8-49rgb is search-1-49rgb."""
    return _HASHED.sub(r"\1-\2", name.rpartition("/")[2])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
