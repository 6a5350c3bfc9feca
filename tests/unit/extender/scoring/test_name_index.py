# SPDX-License-Identifier: Apache-2.0
"""Lists of names are recognized as a whole, with the same rows as name by name."""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import BadRequest
from extender.requests import NameLists
from extender.scoring import KnownNames, NameIndex

NUMBERED = [f"node-{number:05}.example.internal" for number in range(5_000)]
MIXED = [f"ip-10-0-{number // 200}-{number % 200}.ec2.internal" for number in range(1_000)]


def listed(names: list[str]) -> bytes:
    return msgspec.json.encode(names)


def shuffled(names: list[str], seed: int = 1) -> list[str]:
    return random.Random(seed).sample(names, len(names))


@pytest.mark.parametrize("count", [32, 33, 500, 5_000])
def test_numbered_names_are_recognized(count: int) -> None:
    index, names = NameIndex(NUMBERED), shuffled(NUMBERED)[:count]

    found = index.find(listed(names))

    assert isinstance(found, KnownNames)
    assert found.rows.tolist() == [index[name] for name in names]
    assert list(found) == names
    assert (found[3], found[-1], list(found[2:5])) == (names[3], names[-1], names[2:5])
    assert names[7] in found
    assert (set(NUMBERED) - set(names) == set()) or (set(NUMBERED) - set(names)).pop() not in found


def test_names_of_several_widths_are_recognized() -> None:
    index = NameIndex([*MIXED, *NUMBERED])
    same = [name for name in MIXED if len(name) == len(MIXED[-1])]

    assert len(set(map(len, MIXED))) > 2
    for names in (NUMBERED, same, shuffled(MIXED), shuffled([*MIXED, *NUMBERED])):
        found = index.find(listed(names))
        assert found is not None
        assert list(found) == names


def test_a_few_names_are_looked_up_one_by_one() -> None:
    assert NameIndex(NUMBERED).find(listed(NUMBERED[:31])) is None
    assert NameIndex(MIXED).find(listed(MIXED[:31])) is None
    assert NameIndex(NUMBERED[:20]).find(listed(NUMBERED[:20])) is None


def test_names_of_many_widths_are_looked_up_one_by_one() -> None:
    names = ["n" * number for number in range(1, 41)]
    assert NameIndex(names).find(listed(names)) is None
    assert NameIndex(names[:12]).find(listed(names[:12] * 3)) is not None


def test_a_width_that_only_one_node_has_is_recognized() -> None:
    names = [*NUMBERED, "control-plane"]
    found = NameIndex(names).find(listed(names))
    assert found is not None
    assert list(found) == names


def test_names_are_recognized_wherever_they_differ() -> None:
    names = ["".join("b" if bit == number else "a" for bit in range(40)) for number in range(40)]
    found = NameIndex(names).find(listed(names))
    assert found is not None
    assert list(found) == names


def test_names_that_no_node_can_have_are_looked_up() -> None:
    names = [f"{number:0257}" for number in range(40)]
    assert NameIndex(names).find(listed(names)) is None


@pytest.mark.parametrize("names", [NUMBERED[:100], [*NUMBERED[:100], "another"]])
@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text[1:],
        lambda text: b"{" + text[1:],
        lambda text: text[:-1] + b"}",
        lambda text: text[:-1] + b",",
        lambda text: text.replace(b",", b";", 1),
        lambda text: text.replace(b"00003", b"99999"),
        lambda text: text.replace(b"node-00003", b"node\\00003"),
        lambda text: text.replace(b'"node-00003', b"'node-00003"),
        lambda text: text.replace(b'internal",', b"internal,,", 1),
        lambda _: b"",
        lambda _: b"[",
        lambda _: b'["',
        lambda _: b"null",
    ],
)
def test_any_other_text_has_to_be_read(broken: object, names: list[str]) -> None:
    assert callable(broken)
    index = NameIndex([*NUMBERED, "another"])
    assert index.find(listed(names)) is not None
    assert index.find(broken(listed(names))) is None


@given(
    st.sampled_from(["n{:03}", "n{}"]),
    st.lists(st.integers(0, 199), min_size=1, max_size=80),
    st.binary(max_size=3),
    st.integers(0, 2_000),
)
def test_what_is_recognized_is_what_the_text_says(
    form: str, numbers: list[int], noise: bytes, place: int
) -> None:
    index = NameIndex([form.format(number) for number in range(150)])
    text = listed([form.format(number) for number in numbers])
    cut = place % len(text)
    text = text[:cut] + noise + text[cut + len(noise) :]

    found = index.find(text)

    if found is not None:
        assert list(found) == json.loads(text)


def test_lists_that_are_not_recognized_are_read_or_refused() -> None:
    index = NameIndex(NUMBERED)
    lists = NameLists(lambda: index)

    assert isinstance(lists.read(listed(NUMBERED))[0], KnownNames)
    assert lists.read(listed([*NUMBERED, "another"]))[0] == [*NUMBERED, "another"]
    with pytest.raises(BadRequest):
        lists.read(listed(NUMBERED)[:-1])
