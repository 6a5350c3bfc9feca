# SPDX-License-Identifier: Apache-2.0
"""Quantities mean here what they mean to Kubernetes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.cluster.quantities import QuantityError, exact_milli, milli, whole
from tests.support.tables import read_table

TABLE: list[dict[str, Any]] = read_table(Path(__file__).parent / "quantities.yaml")
READ = [case for case in TABLE if "milli" in case]
REFUSED = [case["text"] for case in TABLE if "milli" not in case]
LARGEST = 2**63 - 1
UNITS = {
    "n": Fraction(1, 1000**3),
    "u": Fraction(1, 1000**2),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
    **{unit + "i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
    **{
        f"{e}{power}": Fraction(10) ** int(power) for e in "eE" for power in ("-12", "0", "+3", "7")
    },
}


def ceiling(value: Fraction) -> int:
    return -int(-value.numerator // value.denominator)


@st.composite
def amounts(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Draw a text that is a quantity, and the number that it stands for."""
    number, unit = draw(st.integers(0, 10**15)), draw(st.sampled_from(sorted(UNITS)))
    zeros, places = "0" * draw(st.integers(0, 3)), draw(st.integers(0, 12))
    fraction = f"{draw(st.integers(0, 10**places - 1)):0{places}}" if places else ""
    point = "." if places else draw(st.sampled_from(("", ".")))
    value = number + (Fraction(int(fraction), 10**places) if places else 0)
    sign = draw(st.sampled_from(("", "+")))
    return f"{sign}{zeros}{number}{point}{fraction}{unit}", value * UNITS[unit]


@pytest.mark.parametrize("case", READ, ids=lambda case: repr(case["text"]))
def test_reads_what_kubernetes_reads(case: dict[str, Any]) -> None:
    assert (milli(case["text"]), whole(case["text"])) == (case["milli"], case["whole"])


@pytest.mark.parametrize("case", READ, ids=lambda case: repr(case["text"]))
def test_the_api_servers_form_of_an_amount_means_the_same(case: dict[str, Any]) -> None:
    negative = str(case["text"]).startswith("-")
    # How a negative amount is rounded depends on how it is written, in Go as here.
    assert negative or (milli(case["canonical"]), whole(case["canonical"])) == (
        case["milli"],
        case["whole"],
    )


@pytest.mark.parametrize("text", REFUSED, ids=repr)
@pytest.mark.parametrize("read", [milli, whole, exact_milli])
def test_refuses_what_kubernetes_refuses(text: str, read: Any) -> None:
    with pytest.raises(QuantityError) as caught:
        read(text)
    assert str(text).strip().lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1ki", "'1ki' is not a quantity: there is no unit 'ki'"),
        ("Pi", "'Pi' is not a quantity: it has no digits"),
        ("many", "'many' is not a quantity: expected a number with a unit, such as 500m"),
        ("9" * 1001 + "x", f"'{'9' * 40}…' is not a quantity: "),
        ("9" * 1001 + "q" * 1001, f"'{'9' * 40}…' is not a quantity: "),
        ("1." + "9" * 1001, f"'1.{'9' * 38}…' is not a quantity: it is too long"),
        ("9" * 1001 + "e" + "9" * 6000, f"'{'9' * 40}…' is not a quantity: it is too long"),
        ("9" * 1001 + "e-1001", f"'{'9' * 40}…' is not a quantity: it is too long"),
    ],
)
def test_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(QuantityError) as caught:
        milli(text)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("unit", ["", "m", "Ki", "e3"])
@pytest.mark.parametrize("length", [1001, 5000, 1_000_000])
def test_a_number_of_any_length_is_more_than_anything_else(length: int, unit: str) -> None:
    text = "9" * length + unit
    assert (milli(text), whole(text), exact_milli(text)) == (LARGEST, LARGEST, 1000 * LARGEST)
    assert exact_milli("-" + text) == -1000 * LARGEST


@given(amounts())
def test_results_are_the_exact_number_rounded_up(drawn: tuple[str, Fraction]) -> None:
    text, value = drawn
    value = Fraction(ceiling(value * 10**9), 10**9)
    expected = ceiling(value * 1000)
    assert exact_milli(text) == min(expected, LARGEST * 1000)
    if expected <= LARGEST:
        assert (milli(text), whole(text)) == (expected, ceiling(value))


@given(st.integers(0, 10**18), st.sampled_from(sorted(UNITS)))
def test_the_short_cut_for_plain_numbers_is_no_different(number: int, unit: str) -> None:
    plain, general = f"{number}{unit}", f"+{number}{unit}"
    assert milli(plain) == milli(general)
    assert whole(plain) == whole(general)
    assert exact_milli(plain) == exact_milli(general)


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_milli_reads_back_what_it_would_print(number: int) -> None:
    assert milli(f"{number}m") == number
    assert whole(str(number)) == number
    assert whole(number) == number


@given(amounts(), amounts())
def test_a_larger_amount_never_reads_as_less(
    one: tuple[str, Fraction], other: tuple[str, Fraction]
) -> None:
    (less, _), (more, _) = sorted((one, other), key=lambda drawn: drawn[1])
    assert exact_milli(less) <= exact_milli(more)


@given(st.text() | st.text("0123456789.+-eEinumkKMGTP "))
@example("0" * 5000 + "x")
@example("1e" + "9" * 900)
@example("1e-999999999")
@example("1234567890123456789e999999999")
def test_any_text_is_read_within_64_bits_or_refused(text: str) -> None:
    try:
        results = milli(text), whole(text)
    except QuantityError:
        return
    assert all(-LARGEST - 1 <= result <= LARGEST for result in results)
    assert abs(exact_milli(text)) <= LARGEST * 1000


@given(st.floats(0, 1e15))
def test_bare_json_numbers_are_read_as_their_text(number: float) -> None:
    assert milli(number) == milli(str(number))


def test_infinity_is_not_an_amount() -> None:
    with pytest.raises(QuantityError):
        milli(float("inf"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1Ei", 1000 * 2**60), ("10P", 10**19), ("1e30", LARGEST * 1000), ("-1e30", -LARGEST * 1000)],
)
def test_sums_are_taken_of_amounts_that_do_not_wrap(text: str, expected: int) -> None:
    assert exact_milli(text) == expected
    assert milli(text) != expected
