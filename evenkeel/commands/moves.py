# SPDX-License-Identifier: Apache-2.0
"""Moves as a table: what moves and moved, with figures."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from common.grid import Grid
from common.visible import made_visible
from console.data import MigrationRow, UseOfNodes
from rebalancer.inspection.words import duration

_STYLES = {"AsPlanned": "green", "Failed": "red", "BackOnSource": "red", "Unguided": "red"}


def moves_grid(rows: Iterable[MigrationRow], now_s: float, *, wide: bool = False) -> Grid:
    """Return moves for people, in their order."""
    more = ("strategy", "replacement", "took") if wide else ()
    grid = Grid(("age", "pod", "from", "to", "state", *more, "predicted → actual", "why"))
    for row in map(made_visible, rows):
        state = row.outcome or row.phase
        extra = (row.strategy, row.replacement, took(row, now_s)) if wide else ()
        grid.add(
            duration(now_s - row.created_s),
            row.pod,
            row.source,
            row.target,
            Text(state, style=_STYLES.get(state, "")),
            *extra,
            figures(row),
            row.words or row.reason,
        )
    return grid


def took(row: MigrationRow, now_s: float) -> str:
    """Return how long a move took, or has been under way."""
    if row.finished_s is not None:
        return duration(row.finished_s - row.created_s)
    return f"{duration(now_s - row.created_s)} so far"


def figures(row: MigrationRow) -> str:
    """Return the CPU of source and target, predicted and actual: `71 → 70 %, 55 → 57 %`."""
    if row.predicted is None and row.actual is None:
        return ""
    source = _pair(_cpu(row.predicted, "source_cpu"), _cpu(row.actual, "source_cpu"))
    target = _pair(_cpu(row.predicted, "target_cpu"), _cpu(row.actual, "target_cpu"))
    return f"{source}, {target}"


def _cpu(found: UseOfNodes | None, name: str) -> float | None:
    return None if found is None else getattr(found, name)


def _pair(predicted: float | None, actual: float | None) -> str:
    return f"{_shown(predicted)} → {_shown(actual)} %"


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
