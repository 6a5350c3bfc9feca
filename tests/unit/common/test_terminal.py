# SPDX-License-Identifier: Apache-2.0
"""What is printed where no terminal is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from common.grid import Grid
from common.terminal import as_text, print_out

if TYPE_CHECKING:
    import pytest


def table(width: int) -> Table:
    found = Table(box=None)
    found.add_column("name")
    found.add_column("words")
    found.add_row("a", "x" * width)
    return found


def test_no_line_ends_with_blanks() -> None:
    lines = as_text(table(20)).splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert len(lines) == 2


def test_a_line_is_not_cut_at_the_eightieth_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_out(table(140))
    assert "x" * 140 in capsys.readouterr().out


def test_a_name_that_is_longer_than_the_terminal_stays_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    grid = Grid(("node", "note"))
    grid.add("n" * 200, "")
    print_out(grid)
    assert "n" * 200 in capsys.readouterr().out
