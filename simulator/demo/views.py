"""How a demo is shown: a live picture in a terminal, plain lines elsewhere.

Whoever closes the terminal ends the demo; a view that cannot write any more says so by an
OSError from `show` or `say`, and never from leaving its block.
"""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from common.printing import Visible
from common.visible import visible, visible_lines
from simulator.demo.screen import Scene, bars, screen
from simulator.demo.story import Stage
from simulator.demo.words import line_of, move_state, plan_head, plan_move, plan_reasons, stage_line
from simulator.figures import Look

_LEAST_LINES: Final = 16


class View(Protocol):
    """Shows a demo from its start to its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def say(self, line: str) -> None:
        """Tell of a step of the setting up, or of anything else that happened."""

    def show(self, scene: Scene) -> None:
        """Show how it is now."""

    def end(self, after: Look, verdict: str, rows: list[tuple[str, str]], next_: list[str]) -> None:
        """Say what it came to."""


def view_for(*, as_json: bool) -> View:
    """Return the view that suits where the output goes; with `--json` that is stderr."""
    console = Console()
    roomy = console.is_terminal and not console.is_dumb_terminal and console.height >= _LEAST_LINES
    if as_json or not roomy:
        return PlainView(sys.stderr if as_json else sys.stdout)
    return LiveView(console)


def in_lines(view: View, last: Scene | None) -> PlainView:
    """Return a view that goes on in lines after the scene that the other one has shown last."""
    return view if isinstance(view, PlainView) else PlainView(sys.stdout, after=last)


class PlainView:
    """Lines, and only about what has changed."""

    def __init__(self, file: TextIO, *, after: Scene | None = None) -> None:
        """Tell only what differs from the scene `after` which it begins, if there is one."""
        self._file: TextIO = io.StringIO()
        self._last: dict[str, str] = {}
        self._began = False
        if after is not None:
            self.show(after)
        self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, line: str) -> None:
        print(visible_lines(line), file=self._file, flush=True)

    def show(self, scene: Scene) -> None:
        if not self._began:
            self._began = True
            self.say(f"scenario {scene.title}: {scene.description}")
            self.say(scene.waits)
        stamp = f"{scene.seconds:5.1f} s  "
        self._changed("cluster", stamp, line_of(scene.sight))
        if scene.story.stage is not Stage.PLANNED:
            self._changed("stage", stamp, stage_line(scene.story, scene.sight))
        self._plan(scene, stamp)
        for move in scene.sight.migrations:
            way = f"{move.pod_name} {move.source} → {move.target}: "
            self._changed(move.name, stamp, way + move_state(move))

    def end(self, after: Look, verdict: str, rows: list[tuple[str, str]], next_: list[str]) -> None:
        self.say(f"\n{verdict}")
        for name, words in rows:
            self.say(f"  {name:<14} {words}")
        self.say("\n".join(["", *next_]))

    def _plan(self, scene: Scene, stamp: str) -> None:
        plan = scene.story.plan
        if plan is None or not plan.moves:
            return
        if self._changed("plan", stamp, f"plan {plan.plan_id}: {plan_head(plan)}"):
            for line in (*plan_reasons(plan), *map(plan_move, plan.moves)):
                self.say(f"{'':9}- {visible(line)}")
            for unmet in plan.unmet:
                self.say(f"{'':9}- cannot be met: {visible(f'{unmet.goal}: {unmet.why}')}")

    def _changed(self, what: str, stamp: str, line: str) -> bool:
        changed = self._last.get(what) != line
        self._last[what] = line
        if changed:
            self.say(stamp + visible(line))
        return changed


class LiveView:
    """A picture on the terminal's other screen; what it came to stays on the first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def say(self, line: str) -> None:
        self._leave()
        self._console.print(visible_lines(line), style="dim", highlight=False, markup=False)

    def show(self, scene: Scene) -> None:
        if self._live is None:
            # Drawn by hand: a thread that draws would outlive a closed terminal.
            self._live = Live(console=self._console, screen=True, auto_refresh=False)
            self._live.start()
        shown = Visible(screen(scene, self._console.width, self._console.height))
        self._live.update(shown, refresh=True)

    def end(self, after: Look, verdict: str, rows: list[tuple[str, str]], next_: list[str]) -> None:
        self._leave()
        self._console.print(f"CPU in use, measured; ┃ {after.ceiling:.0f} %", highlight=False)
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
    for name, words in rows:
        table.add_row(name, words)
    return Group(Text(verdict, style="bold"), table)
