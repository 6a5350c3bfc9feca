# SPDX-License-Identifier: Apache-2.0
"""Nothing that a terminal would act on is printed, logged or served."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from common import logs
from common.cluster.records import NodeName, PodUid
from common.terminal import Visible, as_text, print_out
from common.visible import made_visible, visible, visible_json, visible_lines
from rebalancer.planner.plan import Refused, Unmet
from rebalancer.refusals import Refusal
from rebalancer.report import as_json, render
from tests.support.restored_logs import restored_logs
from tests.support.worlds.planner import PlannerWorld

CLEAR = "\x1b[2J\x1b]52;c;ZXZpbA==\x07"
BIDI = "\u202eevil\u2066\u202c"
HOSTILE = f"a{CLEAR}{BIDI}\x9b31m\x7f\x00\r\b\u2028z"
DANGEROUS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words, 80 %", "plain words, 80 %"),
        ("Größe → 3 █", "Größe → 3 █"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202e", "\\u202e"),
        ("\x9b\x7f", "\\x9b\\x7f"),
        ("\U000e0001", "\\U000e0001"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_its_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_every_text_becomes_printable(text: str) -> None:
    assert visible(text).isprintable()
    assert all(line.isprintable() for line in visible_lines(text).split("\n"))


@given(st.text() | st.dictionaries(st.text(), st.text()))
def test_json_stays_the_same_json(value: Any) -> None:
    made = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(made) == value
    assert not DANGEROUS.search(made)


def hostile_table() -> Table:
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE, style="red"))
    return table


def test_tables_keep_their_lines_and_nothing_else() -> None:
    assert not DANGEROUS.search(as_text(hostile_table()))


def test_tables_keep_their_colours_and_nothing_else_on_a_terminal() -> None:
    file = io.StringIO()
    Console(file=file, force_terminal=True, color_system="standard", width=200).print(
        Visible(hostile_table())
    )
    colours = re.findall("\x1b\\[[0-9;]*m", file.getvalue())
    assert colours
    assert not DANGEROUS.search(re.sub("\x1b\\[[0-9;]*m", "", file.getvalue()))


def test_what_is_printed_on_stdout_is_visible(capsys: pytest.CaptureFixture[str]) -> None:
    print_out(hostile_table())
    assert not DANGEROUS.search(capsys.readouterr().out)


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_logs_hold_nothing_that_a_terminal_would_act_on(fmt: logs.Format) -> None:
    stream = io.StringIO()
    odd: dict[str, Any] = {HOSTILE: BIDI, "bare": BIDI, "list": [HOSTILE]}
    with restored_logs():
        logs.configure(0, fmt, stream)
        structlog.get_logger().info(HOSTILE, error=HOSTILE, **odd)
    assert stream.getvalue().count("\n") == 1
    assert not DANGEROUS.search(stream.getvalue())


def test_plans_hold_nothing_that_a_terminal_would_act_on() -> None:
    world = PlannerWorld()
    world.node("n1")
    words = f"evil\n  not met: forged{HOSTILE}"
    why = Refusal("Any", words)
    plan = made_plan(world, why)
    text = as_text(render(plan))
    assert not DANGEROUS.search(text)
    assert "\n  not met: forged" not in text
    document = as_json(plan)
    assert not DANGEROUS.search(document)
    assert json.loads(document)["unmet"][0]["why"] == words


def made_plan(world: PlannerWorld, why: Refusal) -> Any:
    plan = world.plan()
    unmet = Unmet(goal=HOSTILE, strategy=world.cluster().config.enabled_strategies[0], why=why)
    refused = Refused(pod=HOSTILE, uid=PodUid(HOSTILE), node=NodeName("n1"), reasons=(why,))
    return msgspec.structs.replace(plan, unmet=(unmet,), refused=(refused,), notes=(HOSTILE,))


def test_values_keep_everything_else() -> None:
    why = Refusal("Any", "plain", permanent=False)
    assert made_visible(why) == why
    assert made_visible(Refusal("Any", "\x1b")).message == "\\x1b"
