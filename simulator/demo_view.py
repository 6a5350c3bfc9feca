"""What a demo looks like: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from simulator.figures import HOT_PERCENT, Look

_BAR: Final = 40
_WARM_PERCENT: Final = 70.0


class View(Protocol):
    """Shows a cluster while something happens in it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, seen: Look, seconds: float, *, pods: int) -> None:
        """Show how it is now."""

    def end(self, words: str) -> None:
        """Say what it came to."""


def view_for(name: str, description: str) -> View:
    """Return the view that suits where the output goes."""
    if sys.stdout.isatty():
        return LiveView(name, description)
    return PlainView(name, description)


class PlainView:
    """One line a look, when something has changed."""

    def __init__(self, name: str, description: str) -> None:
        self._last = ""
        print(f"scenario {name}: {description}", flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, seen: Look, seconds: float, *, pods: int) -> None:
        line = line_of(seen, pods)
        if line != self._last:
            self._last = line
            print(f"{seconds:5.1f} s  {line}", flush=True)

    def end(self, words: str) -> None:
        print(words, flush=True)


class LiveView:
    """A bar for every node."""

    def __init__(self, name: str, description: str) -> None:
        self._console = Console()
        self._console.print(f"[bold]{name}[/bold]: {description}\n", highlight=False)
        self._live = Live(console=self._console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, seen: Look, seconds: float, *, pods: int) -> None:
        self._live.update(table_of(seen, f"{seconds:.0f} s · {line_of(seen, pods)}"))

    def end(self, words: str) -> None:
        self._console.print(words, highlight=False)


def line_of(seen: Look, pods: int) -> str:
    """Return one look in one line."""
    if not seen.percent:
        return f"{pods} pods on {seen.nodes} nodes, nothing measured yet"
    hottest = max(seen.percent.values())
    return (
        f"{pods} pods on {seen.nodes} nodes, {len(seen.percent)} measured: "
        f"{seen.hot} hot, highest {hottest:.0f} %, spread {seen.spread:.0f} points"
    )


def table_of(seen: Look, caption: str) -> Table:
    """Return one look as a table with bars."""
    table = Table(caption=caption, caption_justify="left", box=None, pad_edge=False)
    table.add_column("node")
    table.add_column("CPU in use", min_width=_BAR)
    table.add_column("", justify="right")
    for name, percent in seen.percent.items():
        table.add_row(name, _bar(percent), f"{percent:.0f} %")
    return table


def _bar(percent: float) -> Text:
    filled = round(min(percent, 100.0) / 100 * _BAR)
    style = "red" if percent > HOT_PERCENT else "yellow" if percent > _WARM_PERCENT else "green"
    return Text("█" * filled, style=style) + Text("░" * (_BAR - filled), style="dim")
