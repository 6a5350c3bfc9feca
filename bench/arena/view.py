"""The arena's results for people: one table, both contestants side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.arena.figures import Figures, Moment

_HEAD: Final = (
    "scenario",
    "seed",
    "",
    "bound",
    "evictions",
    "÷ bound",
    "repeated",
    "as planned",
    "level after",
    "hot nodes",
    "spread",
    "deviation",
)
_WIDTH: Final = 160


def show(results: Sequence[Figures], title: str) -> None:
    """Print all results; wide enough also where the output goes into a file."""
    table = Table(*_HEAD, title=title, title_justify="left")
    for number, column in enumerate(table.columns):
        column.justify, column.no_wrap = "right" if number > 2 else "left", True
    for number, each in enumerate(results, 1):
        table.add_row(*row(each), end_section=number % 2 == 0)
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(table, highlight=False)


def row(figures: Figures) -> tuple[str, ...]:
    """Return what the table says of one contestant."""
    before, after = figures.before, figures.after
    return (
        figures.scenario,
        str(figures.seed),
        figures.contestant,
        str(figures.bound),
        str(figures.evictions),
        "–" if figures.ratio is None else f"{figures.ratio:.2f}",
        str(figures.repeats),
        "–" if figures.landed is None else f"{figures.landed} of {figures.evictions}",
        level_words(figures),
        f"{before.hot} → {after.hot}",
        f"{before.spread:.0f} → {after.spread:.0f}",
        f"{before.deviation:.1f} → {after.deviation:.1f}",
    )


def level_words(figures: Figures) -> str:
    """Say when the cluster was level for good."""
    if figures.level_s is None:
        return f"never in {figures.watched_s:.0f} s"
    return f"{figures.level_s:.0f} s"


def progress(moment: Moment, evictions: int) -> str:
    """Say how a cluster is while somebody works on it."""
    return f"{moment.hot} hot, spread {moment.spread:.0f} points, {evictions} evictions"
