# SPDX-License-Identifier: Apache-2.0
"""Tables whose names stay whole: as wide as they need, wrapped between words, or one row a block.

Names in Kubernetes have up to 253 characters. A column that is narrower than its names cuts them
in the middle, and a name that is cut can neither be read nor copied. So a grid never makes a
column narrower than its longest word: where the terminal is too narrow it wraps its last column
between words, and if that is not enough, it shows each row as a block of lines; if most rows fit,
only the others, below the table. Somewhere without a width (a pipe) everything is on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_GAP: Final = 2
_LEAST: Final = 24
"""A column of sentences is not wrapped to less than this."""
_MOST: Final = 0.75
"""If fewer of the rows fit into a table, all are blocks."""
_BOLD: Final = Style(bold=True)

Cell = Text | str


class Grid:
    """Rows of cells under headings."""

    def __init__(
        self, headings: Sequence[str], *, right: Iterable[str] = (), indent: int = 1
    ) -> None:
        """`right` names the columns with numbers; the last column may hold sentences."""
        self._headings = tuple(headings)
        self._right = frozenset(right)
        self._indent = indent
        self._rows: list[tuple[Text, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, *cells: Cell) -> None:
        """Add a row, with a cell for each heading."""
        if len(cells) != len(self._headings):
            raise ValueError(f"{len(cells)} cells under {len(self._headings)} headings")
        self._rows.append(tuple(c if isinstance(c, Text) else Text(c) for c in cells))

    def fits(self, width: int) -> bool:
        """Tell whether it is a table at this width, and not blocks of lines."""
        return self._fitting(width) == len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        limit = options.max_width
        shown = self._fitting(limit)
        if shown < len(self._rows) * _MOST:
            yield from self._stacked(console, limit, self._rows)
            return
        # A single name that is too long, which anyone may give, does not spoil the table of others.
        fitting = sorted(sorted(range(len(self._rows)), key=self._width_of)[:shown])
        rows = [self._rows[i] for i in fitting]
        *widths, last = self._widths(rows)
        before = self._indent + sum(widths) + _GAP * len(widths)
        yield from self._aligned(console, (*widths, min(last, limit - before)), rows)
        if left := sorted(set(range(len(self._rows))).difference(fitting)):
            yield Segment.line()
            yield from self._stacked(console, limit, [self._rows[i] for i in left])

    def _widths(self, rows: Iterable[Sequence[Text]]) -> tuple[int, ...]:
        found = [[cell_len(heading) for heading in self._headings]]
        found += [[cell.cell_len for cell in row] for row in rows]
        return tuple(max(column) for column in zip(*found, strict=True))

    def _width_of(self, number: int) -> int:
        """Return how wide a row is at least: its last column may be wrapped between words."""
        *cells, last = self._rows[number]
        return sum(cell.cell_len for cell in cells) + _least_width(last)

    def _fitting(self, limit: int) -> int:
        """Return how many rows a table of this width can hold, the narrowest ones first."""
        *widths, last = (cell_len(heading) for heading in self._headings)
        gaps = self._indent + _GAP * len(widths)
        for count, number in enumerate(sorted(range(len(self._rows)), key=self._width_of)):
            *cells, end = self._rows[number]
            widths = [max(w, c.cell_len) for w, c in zip(widths, cells, strict=True)]
            last = max(last, _least_width(end))
            if gaps + sum(widths) + last > limit:
                return count
        return len(self._rows)

    def _aligned(
        self, console: Console, widths: Sequence[int], rows: Iterable[Sequence[Text]]
    ) -> Iterator[Segment]:
        if any(self._headings):
            titles = [Text(heading, style=_BOLD) for heading in self._headings]
            yield from self._line(console, titles, widths)
        for row in rows:
            first, *more = wrapped(console, row[-1], widths[-1])
            yield from self._line(console, [*row[:-1], first], widths)
            for line in more:
                yield from self._line(console, [*(Text() for _ in row[:-1]), line], widths)

    def _line(
        self, console: Console, cells: Sequence[Text], widths: Sequence[int]
    ) -> Iterator[Segment]:
        line = Text(" " * self._indent, end="")
        last = max((i for i, cell in enumerate(cells) if cell.plain), default=0)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = " " * (width - cell.cell_len)
            right = self._headings[number] in self._right
            line.append_text(Text(space) + cell if right else cell)
            if number >= last:
                break
            line.append(("" if right else space) + " " * _GAP)
        yield from console.render(_unwrapped(line))
        yield Segment.line()

    def _stacked(
        self, console: Console, limit: int, rows: Iterable[Sequence[Text]]
    ) -> Iterator[Segment]:
        """Show each row as a block; a name that is longer than the terminal is left whole."""
        label = max(map(cell_len, self._headings), default=0)
        start = self._indent + label + _GAP
        for number, row in enumerate(rows):
            if number:
                yield Segment.line()
            for heading, cell in zip(self._headings, row, strict=True):
                if not cell.plain:
                    continue
                title = Text(" " * self._indent) + Text(heading.ljust(label), style=_BOLD)
                for text in wrapped(console, cell, max(_LEAST, limit - start)):
                    yield from console.render(_unwrapped(title + Text(" " * _GAP) + text))
                    yield Segment.line()
                    title = Text(" " * (self._indent + label))


class Fitting:
    """The first of several grids that is a table at the width at hand; else the last one."""

    def __init__(self, *grids: Grid) -> None:
        self._grids = grids

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (grid for grid in self._grids if grid.fits(options.max_width))
        yield next(fitting, self._grids[-1])


def _least_width(cell: Text) -> int:
    """Return how narrow a last column can be: sentences are wrapped, but not into slivers."""
    longest = max((cell_len(word) for word in cell.plain.split()), default=0)
    return min(cell.cell_len, max(_LEAST, longest))


def _unwrapped(line: Text) -> Text:
    line.end, line.no_wrap, line.overflow = "", True, "ignore"
    return line


def wrapped(console: Console, text: Text, width: int) -> list[Text]:
    """Return lines of at most this width, broken between words only."""
    if text.cell_len <= width:
        return [text]
    lines: list[Text] = []
    line = Text()
    for word in text.split(" "):
        if line.plain and line.cell_len + 1 + word.cell_len > width:
            lines.append(line)
            line = word
        else:
            line = line + Text(" ") + word if line.plain else word
    return [*lines, line]
