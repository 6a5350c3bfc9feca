# SPDX-License-Identifier: Apache-2.0
"""The results of the arena as tables: every round, and the sums over all seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median
from typing import Any, Final

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


_SUMS: Final = (
    "scenario",
    "",
    "seeds",
    "bound",
    "evictions",
    "÷ bound",
    "repeated",
    "as planned",
    "level in the end",
    "level after",
    "hot nodes",
)


def print_sums(rounds: Sequence[Mapping[str, Any]]) -> None:
    """Print what every contestant did over all seeds, as a Markdown table of JSON results."""
    print(f"| {' | '.join(_SUMS)} |\n|{'---|' * len(_SUMS)}")
    for _, found in groupby(sorted(rounds, key=_who), key=_who):
        print(f"| {' | '.join(sums(list(found)))} |")


def _who(found: Mapping[str, Any]) -> tuple[str, int, str]:
    return found["scenario"], len(found["contestant"]), found["contestant"]


def sums(rounds: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the cells of one contestant in one scenario."""
    bound, evictions = (sum(each[key] for each in rounds) for key in ("bound", "evictions"))
    landed = [each["landedAsPlanned"] for each in rounds]
    level = [each["secondsUntilLevel"] for each in rounds]
    after = [seconds for seconds in level if seconds is not None]
    hot = (sum(each[key] for each in rounds) for key in ("hotBefore", "hotAfter"))
    return (
        rounds[0]["scenario"],
        rounds[0]["contestant"],
        str(len(rounds)),
        str(bound),
        str(evictions),
        f"{evictions / bound:.2f}" if bound else "–",
        str(sum(each["repeatEvictions"] for each in rounds)),
        "–" if None in landed else f"{sum(landed)} of {evictions}",
        f"{len(after)} of {len(rounds)}",
        f"{median(after):.0f} s ({min(after):.0f} to {max(after):.0f})" if after else "–",
        " → ".join(map(str, hot)),
    )


def level_text(figures: Figures) -> str:
    """Return since when the cluster was level."""
    if figures.level_s is None:
        return f"never in {figures.after.seconds:.0f} s"
    return f"{figures.level_s:.0f} s"


def progress(moment: Moment, evictions: int) -> str:
    """Return the state of a cluster in one line."""
    return f"{moment.hot} hot, spread {moment.spread:.0f} points, {evictions} evictions"
