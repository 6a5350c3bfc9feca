# SPDX-License-Identifier: Apache-2.0
"""Responses made of entries encoded in advance are the same as those encoded now."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.protocol import Scores
from extender.responses import prioritize_response
from extender.scoring import UNKNOWN_ROW
from extender.scoring.entries import Entries
from tests.support.worlds.advisor import AdvisorWorld

LETTERS = st.characters(exclude_categories=["Cs"])
SAME_LENGTH = st.lists(st.text("abc-.", min_size=6, max_size=6), min_size=1, max_size=8)
ANY_LENGTH = st.lists(st.text("abc-.", min_size=9, max_size=12), min_size=1, max_size=8)
ANY_LETTER = st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=8)
SCORES = st.lists(st.integers(0, 10), min_size=1, max_size=12)


def encoded(names: list[str], rows: list[int], scores: list[int]) -> bytes | None:
    return Entries(names).encode(np.array(rows, np.intp), np.array(scores, np.int64))


@given(names=SAME_LENGTH | ANY_LENGTH, scores=SCORES)
def test_an_answer_has_the_rows_in_their_order(names: list[str], scores: list[int]) -> None:
    rows = [(7 * i) % len(names) for i in range(len(scores))]
    asked = [names[row] for row in rows]
    assert encoded(names, rows, scores) == prioritize_response(asked, Scores(scores))


@given(names=ANY_LETTER, scores=SCORES)
def test_names_of_any_letters_are_encoded_correctly_or_not_at_all(
    names: list[str], scores: list[int]
) -> None:
    rows = [i % len(names) for i in range(len(scores))]
    asked = [names[row] for row in rows]
    assert encoded(names, rows, scores) in (None, prioritize_response(asked, Scores(scores)))


def test_nothing_is_encoded_for_unknown_nodes_and_for_an_empty_list() -> None:
    assert encoded(["a", "b"], [0, UNKNOWN_ROW], [5, 5]) is None
    assert encoded(["a", "b"], [], []) is None
    assert encoded([], [], []) is None


def test_one_long_name_does_not_fill_a_table_with_padding() -> None:
    assert encoded(["x" * 253, *"abcdefgh"], [0, 1], [5, 5]) is None


@pytest.mark.parametrize(
    "came",
    [
        b'["n20","n40"]',
        b'["n20", "n40"]',
        b'[ "n20","n40"]',
        b'["\\u006e20","n40"]',
        b'[\n"n20",\n"n40"\n]',
    ],
    ids=["compact", "spaced", "indented", "escaped", "lines"],
)
def test_names_go_back_in_the_form_in_which_they_came(came: bytes) -> None:
    names = ["n20", "n40"]
    whole = encoded(names, [0, 1], [10, 3])
    assert whole is not None
    assert prioritize_response(names, Scores([10, 3], whole), came) == prioritize_response(
        names, Scores([10, 3]), came
    )


def test_scores_come_with_their_answer_unless_a_node_is_not_known() -> None:
    world = AdvisorWorld()
    world.loads(n20=20.0, n40=40.0)
    found = world.advisor.prioritize(world.pod("web"), ["n40", "n20"])
    assert found.encoded == prioritize_response(["n40", "n20"], Scores(found.values))
    found = world.advisor.prioritize(world.pod("web"), ["n40", "ghost"])
    assert found.encoded is None


def test_a_node_that_joins_gets_an_entry() -> None:
    world = AdvisorWorld()
    world.loads(b=20.0, d=40.0)
    for name in ("a", "c", "e"):
        world.loads(**{name: 30.0})
    names = ["e", "d", "c", "b", "a"]
    found = world.advisor.prioritize(world.pod("web"), names)
    assert found.encoded is not None
    assert [entry["Host"] for entry in json.loads(found.encoded)] == names
