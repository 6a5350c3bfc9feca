"""Answers from entries that were written beforehand are those that would be written now."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.answers import prioritize_answer
from extender.asking import Marks
from extender.scoring import STRANGER
from extender.scoring.entries import Entries
from tests.support.advisor_world import AdvisorWorld

LETTERS = st.characters(exclude_categories=["Cs"])
SAME_LENGTH = st.lists(st.text("abc-.", min_size=6, max_size=6), min_size=1, max_size=8)
ANY_LENGTH = st.lists(st.text("abc-.", min_size=9, max_size=12), min_size=1, max_size=8)
ANY_LETTER = st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=8)
SCORES = st.lists(st.integers(0, 10), min_size=1, max_size=12)


def written(names: list[str], rows: list[int], scores: list[int]) -> bytes | None:
    return Entries(names).written(np.array(rows, np.intp), np.array(scores, np.int64))


@given(names=SAME_LENGTH | ANY_LENGTH, scores=SCORES)
def test_an_answer_has_the_rows_in_their_order(names: list[str], scores: list[int]) -> None:
    rows = [(7 * i) % len(names) for i in range(len(scores))]
    asked = [names[row] for row in rows]
    assert written(names, rows, scores) == prioritize_answer(asked, scores)


@given(names=ANY_LETTER, scores=SCORES)
def test_names_of_any_letters_are_written_right_or_not_at_all(
    names: list[str], scores: list[int]
) -> None:
    rows = [i % len(names) for i in range(len(scores))]
    asked = [names[row] for row in rows]
    assert written(names, rows, scores) in (None, prioritize_answer(asked, scores))


def test_nothing_is_written_for_strangers_and_for_nobody() -> None:
    assert written(["a", "b"], [0, STRANGER], [5, 5]) is None
    assert written(["a", "b"], [], []) is None
    assert written([], [], []) is None


def test_one_long_name_does_not_fill_a_table_with_zeros() -> None:
    assert written(["x" * 253, *"abcdefgh"], [0, 1], [5, 5]) is None


@pytest.mark.parametrize(
    "came",
    [
        b'["n20","n40"]',
        b'["n20", "n40"]',
        b'[ "n20","n40"]',
        b'["\\u006e20","n40"]',
        b'[\n"n20",\n"n40"\n]',
    ],
    ids=["compact", "spaced", "indented", "spelt out", "lines"],
)
def test_names_go_back_in_the_form_in_which_they_came(came: bytes) -> None:
    names = ["n20", "n40"]
    told = written(names, [0, 1], [10, 3])
    assert told is not None
    assert prioritize_answer(names, Marks([10, 3], told), came) == prioritize_answer(
        names, [10, 3], came
    )


def test_scores_come_with_their_answer_unless_a_node_is_not_known() -> None:
    world = AdvisorWorld()
    world.loads(n20=20.0, n40=40.0)
    found = world.advisor.prioritize(world.pod("web"), ["n40", "n20"])
    assert isinstance(found, Marks)
    assert found.written == prioritize_answer(["n40", "n20"], list(found))
    found = world.advisor.prioritize(world.pod("web"), ["n40", "ghost"])
    assert isinstance(found, Marks)
    assert found.written is None


def test_a_node_that_joins_gets_an_entry() -> None:
    world = AdvisorWorld()
    world.loads(b=20.0, d=40.0)
    for name in ("a", "c", "e"):
        world.loads(**{name: 30.0})
    names = ["e", "d", "c", "b", "a"]
    told: Any = world.advisor.prioritize(world.pod("web"), names)
    assert [entry["Host"] for entry in json.loads(told.written)] == names
