# SPDX-License-Identifier: Apache-2.0
"""Tables keep names whole: wrapped between words, or as blocks where they do not fit."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from common.grid import Fitting, Grid

LONG = "long-" + "x" * 200


def drawn(shown: RenderableType, width: int) -> list[str]:
    target = io.StringIO()
    Console(file=target, width=width, color_system=None).print(shown, crop=False)
    return target.getvalue().splitlines()


def grid(*rows: tuple[str, str, str]) -> Grid:
    made = Grid(("node", "cpu", "note"), right=("cpu",))
    for row in rows:
        made.add(*row)
    return made


def test_one_name_that_is_too_long_does_not_spoil_the_table() -> None:
    rows = [(f"node-{n}", f"{n} %", "") for n in range(9)]
    lines = drawn(grid(*rows[:4], (LONG, "5 %", ""), *rows[4:]), 60)
    assert lines[:2] == [" node    cpu  note", " node-0  0 %"]
    assert lines[9] == " node-8  8 %"
    assert lines[10:] == ["", f" node  {LONG}", " cpu   5 %"]


def test_most_rows_that_are_too_long_make_all_of_them_blocks() -> None:
    lines = drawn(grid(("a", "1 %", ""), (LONG, "2 %", ""), (f"{LONG}2", "3 %", "")), 60)
    assert lines[:3] == [" node  a", " cpu   1 %", ""]


def test_sentences_are_wrapped_between_words() -> None:
    lines = drawn(grid(("node-1", "1 %", "its last sample is too old to say anything")), 44)
    assert lines[1:] == [
        " node-1  1 %  its last sample is too old to",
        "              say anything",
    ]


def test_the_first_table_that_fits_is_shown() -> None:
    wide, narrow = grid(("node-1", "█" * 40, "source")), grid(("node-1", "94 %", "source"))
    assert drawn(Fitting(wide, narrow), 80)[1].split() == ["node-1", "█" * 40, "source"]
    assert drawn(Fitting(wide, narrow), 40)[1].split() == ["node-1", "94", "%", "source"]
    assert drawn(Fitting(wide, narrow), 10)[0] == " node  node-1"


def test_a_grid_without_rows_is_its_headings() -> None:
    assert drawn(grid(), 40) == [" node  cpu  note"]


words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=70)


@given(
    st.lists(st.tuples(words, words, st.lists(words, max_size=6).map(" ".join)), max_size=8),
    st.integers(20, 120),
)
def test_no_word_is_ever_cut_or_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = " ".join(drawn(grid(*rows), width)).split()
    for word in " ".join(cell for row in rows for cell in row).split():
        assert word in shown
