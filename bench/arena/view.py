# SPDX-License-Identifier: Apache-2.0
"""The results of the arena as one table, both contestants side by side."""

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
    for each, following in zip(results, [*results[1:], None], strict=True):
        last = following is None or _where(following) != _where(each)
        table.add_row(*row(each), end_section=last)
    console = Console()
    console.width = max(console.width, _WIDTH)
    console.print(table, highlight=False)


def _where(figures: Figures) -> tuple[str, int]:
    return figures.run.scenario, figures.run.seed


def row(figures: Figures) -> tuple[str, ...]:
    """Return the cells of one contestant."""
    before, after, evictions = figures.before, figures.after, figures.evictions
    return (
        figures.run.scenario,
        str(figures.run.seed),
        figures.run.contestant,
        str(figures.bound),
        str(evictions.total),
        "–" if figures.ratio is None else f"{figures.ratio:.2f}",
        str(evictions.repeated),
        "–" if evictions.landed is None else f"{evictions.landed} of {evictions.total}",
        level_text(figures),
        f"{before.hot} → {after.hot}",
        f"{before.spread:.0f} → {after.spread:.0f}",
        f"{before.deviation:.1f} → {after.deviation:.1f}",
    )


def level_text(figures: Figures) -> str:
    """Return since when the cluster was level."""
    if figures.level_s is None:
        return f"never in {figures.after.seconds:.0f} s"
    return f"{figures.level_s:.0f} s"


def progress(moment: Moment, evictions: int) -> str:
    """Return the state of a cluster in one line."""
    return f"{moment.hot} hot, spread {moment.spread:.0f} points, {evictions} evictions"
