# SPDX-License-Identifier: Apache-2.0
"""The screen of a demo: the same layout in any terminal."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from simulator.demo.progress import Progress
from simulator.demo.recording import Recorder
from simulator.demo.screen import bar, bars, move_table, plan_lines, screen
from simulator.demo.views import LiveView, PlainView, kept
from simulator.figures import Utilization
from tests.support.worlds.demo import HOT, LEVEL, landed, move, observation, plan, state, unmet

MANY = {f"node-{number}": 50.0 + number % 40 for number in range(1, 61)}


def drawn(shown: RenderableType, width: int = 100, height: int = 30) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def begin() -> Progress:
    return Progress(points=20.0, nodes=3)


@pytest.mark.parametrize("size", [(100, 30), (80, 24), (60, 20), (160, 50)], ids=str)
@pytest.mark.parametrize("percent", [{}, HOT, MANY], ids=["nothing", "few", "many"])
def test_it_fits_any_terminal(size: tuple[int, int], percent: dict[str, float]) -> None:
    moves = [move(1), landed(2), *(landed(number) for number in range(3, 30))]
    shown = state(begin(), observation(percent, moves, plan=plan(9, 9, unmet=(unmet(),))))
    lines = drawn(screen(shown, *size), *size)
    assert len(lines) <= size[1]
    assert max(map(cell_len, lines)) <= size[0]


def test_it_shows_nodes_plan_moves_stage_and_waits() -> None:
    shown = state(begin(), observation(HOT, [move()], plan=plan()))
    text = "\n".join(drawn(screen(shown, 100, 30)))
    for shown_text in (
        "94 % -1",
        "52 % +1",
        "2 evictions, the proven minimum",
        "node-1 uses 94 % CPU (allowed 80 %): 2 moves",
        "search-1-49rgb",
        "or node-10, node-11, node-12",
        "node-1 → node-2",
        "checking PDB",
        "Moving pods: 0 of 1 done.",
        "cycle every 3 s (default 30 s)",
    ):
        assert shown_text in text


def test_a_bar_has_its_mark_at_the_ceiling() -> None:
    cool, hot = bar(50.0, 80.0, 20), bar(95.0, 80.0, 20)
    assert cool.plain == "█" * 10 + "·" * 6 + "┃" + "·" * 3
    assert hot.plain == "█" * 16 + "┃" + "██" + "·"
    assert [str(span.style) for span in hot.spans] == [
        *("red", "white on red", "red", "bright_black")
    ]


def test_more_than_everything_is_a_full_bar() -> None:
    assert len(bar(140.0, 80.0, 20).plain) == 20


def test_the_hottest_nodes_are_shown_where_not_all_have_room() -> None:
    lines = drawn(bars(Utilization(MANY, 60), (), 60, 10), 60)
    assert len(lines) == 10
    assert "51 more, ≤ 80 %" in lines[-1]
    assert any("node-39" in line for line in lines)


def test_moves_under_way_come_first_and_the_rest_is_counted() -> None:
    moves = [*(landed(number) for number in range(1, 9)), move(9)]
    lines = drawn(move_table(moves, 49, 4), 49)
    assert "search-9-49rgb" in lines[0]
    assert lines[-1].split() == ["…", "6", "more", "6", "as", "planned"]


def test_a_plan_without_moves_gives_its_notes() -> None:
    notes = ("node-1 above 80 % CPU in 1 of 2 samples",)
    assert notes[0] in plan_lines(plan(0, 0, notes=notes), 60, 8).plain


def test_a_long_reason_is_wrapped_and_what_has_no_room_is_hinted_at() -> None:
    notes = ("word " * 20, "another " * 20)
    lines = plan_lines(plan(0, 0, notes=notes), 40, 5).plain.splitlines()
    assert [line[:2] for line in lines] == ["No", "· ", "  ", "  ", "  "]
    assert lines[-1] == "  …"
    assert max(map(len, lines)) <= 40


def test_lines_tell_only_what_is_new() -> None:
    progress, file = begin(), io.StringIO()
    before = state(progress, observation(HOT, [landed(1), move(2)], plan=plan()))
    lines = PlainView(file)
    lines.show(before)
    length = len(file.getvalue())
    lines.show(before)
    assert len(file.getvalue()) == length
    lines.show(state(progress, observation(HOT, [landed(1), landed(2)], plan=plan())))
    said = file.getvalue()[length:]
    assert "search-2-7f7fd599c8-49rgb node-1 → node-2: as planned" in said
    assert "search-1" not in said
    assert "plan plan-1" not in said


def test_a_picture_that_is_kept_is_drawn_below_the_results() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=30)
    now = replace(state(begin(), observation(HOT, plan=plan())), console="http://127.0.0.1:9")
    with kept(LiveView(console)) as view:
        console.print("the results")
        view.show(now)
        view.report("the extender has exited")
        view.show(now)
    said = file.getvalue()
    assert "\x1b[?1049h" not in said  # the alternate screen would hide the results
    assert said.index("the results") < said.index("node-1")
    assert "the extender has exited" in said
    assert "http://127.0.0.1:9" in said


def test_a_recording_plays_every_change_and_rests_on_the_summary(tmp_path: Path) -> None:
    recorder, progress = Recorder(), begin()
    for number, percent in enumerate((HOT, HOT, LEVEL)):
        recorder.take(
            replace(state(progress, observation(percent, plan=plan())), seconds=float(number))
        )
    recorder.end(Utilization(LEVEL, 3), "It is <level> & done.", [("evictions", "2")], 9.0)
    recorder.write(tmp_path / "images" / "demo.svg")
    text = (tmp_path / "images" / "demo.svg").read_text()
    root = ET.fromstring(text)
    frames = root.findall(".//*[@class='film']/*")
    assert len(frames) == 3
    drawn_ = {f"#{each.get('id')}" for each in root.iter("{http://www.w3.org/2000/svg}g")}
    assert {use.get("href") for use in root.iter("{http://www.w3.org/2000/svg}use")} <= drawn_
    assert "It is &lt;level&gt; &amp; done." in text
    assert text.count("translateX(") == len(frames) + 1
