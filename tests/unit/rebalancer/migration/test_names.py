# SPDX-License-Identifier: Apache-2.0
"""Names and label values that are derived from other names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.selectors import parse
from rebalancer.migration.names import (
    HOST_LIMIT,
    NAME_LIMIT,
    label_value,
    replacement_name,
    temporary_pdb_name,
)

NOW_S = 1_800_000_000.7
LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = re.compile(rf"{LABEL}(\.{LABEL})*")
ANY_NAME = st.from_regex(SUBDOMAIN, fullmatch=True).filter(lambda name: len(name) <= NAME_LIMIT)


@pytest.mark.parametrize(
    ("pod", "copy"),
    [
        ("solo", "rescheduled-solo-1800000000"),
        ("rescheduled-solo-1700000000", "rescheduled-solo-1800000000"),
        ("rescheduled-once", "rescheduled-rescheduled-once-1800000000"),
    ],
)
def test_a_copy_is_named_after_the_original_and_the_time(pod: str, copy: str) -> None:
    assert replacement_name(pod, NOW_S) == copy


def test_a_temporary_budget_is_named_after_its_workload() -> None:
    assert temporary_pdb_name("web") == "web-rescheduler-pdb"


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    one, other = "w" * 252 + "a", "w" * 252 + "b"
    assert temporary_pdb_name(one) != temporary_pdb_name(other)
    assert replacement_name(one, NOW_S) != replacement_name(other, NOW_S)


@given(ANY_NAME)
def test_every_name_is_valid(name: str) -> None:
    for made, limit in (
        (temporary_pdb_name(name), NAME_LIMIT),
        (replacement_name(name, NOW_S), HOST_LIMIT),
    ):
        assert len(made) <= limit
        assert SUBDOMAIN.fullmatch(made)


@given(ANY_NAME)
def test_a_copy_has_the_name_of_its_original_in_its_own(name: str) -> None:
    assert replacement_name(name, NOW_S).startswith(f"rescheduled-{name[:20].rstrip('-.')}")


@pytest.mark.parametrize("ending", [".", "-"])
def test_a_name_is_not_cut_after_a_dot_or_a_dash(ending: str) -> None:
    for length in (*range(20, 40), *range(215, 235)):
        name = "w" * length + ending + "x" * (NAME_LIMIT - length - 1)
        assert SUBDOMAIN.fullmatch(temporary_pdb_name(name))
        assert SUBDOMAIN.fullmatch(replacement_name(name, NOW_S))


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
def test_every_node_name_becomes_a_valid_label(name: str) -> None:
    value = label_value(name)
    assert len(value) <= 63
    assert parse(f"key={value}").matches({"key": value})
    assert value == name or len(name) > 63


def test_long_names_stay_different_as_labels() -> None:
    names = [f"{'n' * 70}-{number}" for number in range(50)]
    assert len({label_value(name) for name in names}) == 50
