# SPDX-License-Identifier: Apache-2.0
"""How a demo is shown: a live screen in a terminal, plain lines elsewhere.

Closing the terminal ends the demo: a view that cannot write any more raises OSError from
`show` or `report`, and never on leaving its block.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from common.terminal import Visible
from common.visible import visible, visible_lines
from simulator.demo.progress import Stage
from simulator.demo.screen import DemoState, bars, screen
from simulator.demo.text import line_of, move_state, plan_head, plan_move, plan_reasons, stage_line
from simulator.figures import Utilization

_LEAST_LINES: Final = 16
_BELOW: Final = 26
"""Lines of a picture that is drawn below the results."""


class View(Protocol):
    """Shows a demo from its start to its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def report(self, line: str) -> None:
        """Print a line: a step of the setup, or an event."""

    def show(self, state: DemoState) -> None:
        """Show the current state."""

    def end(
        self, after: Utilization, verdict: str, rows: list[tuple[str, str]], next_: list[str]
    ) -> None:
        """Show the results."""


def view_for(*, as_json: bool) -> View:
    """Return the view that suits the output; with `--json` it writes to stderr."""
    console = Console()
    roomy = console.is_terminal and not console.is_dumb_terminal and console.height >= _LEAST_LINES
    if as_json or not roomy:
        return PlainView(sys.stderr if as_json else sys.stdout)
    return LiveView(console)


def kept(view: View) -> View:
    """Return the view that goes on after the results: the picture is drawn below them."""
    return view.below() if isinstance(view, LiveView) else view


class PlainView:
    """Prints a line for everything that has changed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: dict[str, str] = {}
        self._began = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def report(self, line: str) -> None:
        print(visible_lines(line), file=self._file, flush=True)

    def show(self, state: DemoState) -> None:
        if not self._began:
            self._began = True
            self.report(f"scenario {state.title}: {state.description}")
            self.report(state.waits)
        stamp = f"{state.seconds:5.1f} s  "
        self._changed("cluster", stamp, line_of(state.observation))
        if state.progress.stage is not Stage.PLANNED:
            self._changed("stage", stamp, stage_line(state.progress, state.observation))
        self._plan(state, stamp)
        for move in state.observation.migrations:
            way = f"{move.pod_name} {move.source} → {move.target}: "
            self._changed(move.name, stamp, way + move_state(move))

    def end(
        self, after: Utilization, verdict: str, rows: list[tuple[str, str]], next_: list[str]
    ) -> None:
        self.report(f"\n{verdict}")
        for name, text in rows:
            self.report(f"  {name:<14} {text}")
        self.report("\n".join(["", *next_]))

    def _plan(self, state: DemoState, stamp: str) -> None:
        plan = state.progress.plan
        if plan is None or not plan.moves:
            return
        if self._changed("plan", stamp, f"plan {plan.plan_id}: {plan_head(plan)}"):
            for line in (*plan_reasons(plan), *map(plan_move, plan.moves)):
                self.report(f"{'':9}- {visible(line)}")
            for unmet in plan.unmet:
                self.report(f"{'':9}- not possible: {visible(f'{unmet.goal} ({unmet.why})')}")

    def _changed(self, what: str, stamp: str, line: str) -> bool:
        changed = self._last.get(what) != line
        self._last[what] = line
        if changed:
            self.report(stamp + visible(line))
        return changed


class LiveView:
    """Draws on the terminal's alternate screen; the results stay on the main one."""

    def __init__(self, console: Console, *, alternate: bool = True) -> None:
        """Without the alternate screen the picture follows what was printed before."""
        self._console = console
        self._alternate = alternate
        self._live: Live | None = None

    def below(self) -> LiveView:
        """Return a view that draws below what was printed."""
        self._leave()
        return LiveView(self._console, alternate=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def report(self, line: str) -> None:
        if self._alternate:
            self._leave()
        self._console.print(visible_lines(line), style="dim", highlight=False, markup=False)

    def show(self, state: DemoState) -> None:
        if self._live is None:
            # Refreshed by hand: a thread that draws would outlive a closed terminal.
            on_top = self._alternate
            self._live = Live(console=self._console, screen=on_top, auto_refresh=False)
            self._live.start()
        height = self._console.height if self._alternate else min(self._console.height - 2, _BELOW)
        shown = Visible(screen(state, self._console.width, height))
        self._live.update(shown, refresh=True)

    def end(
        self, after: Utilization, verdict: str, rows: list[tuple[str, str]], next_: list[str]
    ) -> None:
        self._leave()
        self._console.print(f"Measured CPU utilization; ┃ {after.ceiling:.0f} %", highlight=False)
        self._console.print(Visible(bars(after, (), min(self._console.width, 100), 40)))
        self._console.print()
        self._console.print(Visible(summary_table(verdict, rows)))
        self._console.print()
        for line in next_:
            said = visible_lines(line)
            self._console.print(said, highlight=False, markup=False, soft_wrap=True)

    def _leave(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):
                live.stop()


def summary_table(verdict: str, rows: list[tuple[str, str]]) -> RenderableType:
    """Return the summary for a terminal."""
    table = Table(box=None, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(name, text)
    return Group(Text(verdict, style="bold"), table)
