# SPDX-License-Identifier: Apache-2.0
"""Names, label keys and label values."""

from __future__ import annotations

import random
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import names
from simulator.api.metadata import generate_name, new_uid, timestamp


@pytest.mark.parametrize("text", ["a", "a-b", "0", "a.b", "a" * 253, "a-1.b-2"])
def test_subdomains(text: str) -> None:
    assert names.dns_subdomain(text) == ()


@pytest.mark.parametrize("text", ["", "A", "a_b", "-a", "a-", ".a", "a..b", "a" * 254, "a\n"])
def test_no_subdomains(text: str) -> None:
    assert names.dns_subdomain(text)


@pytest.mark.parametrize("text", ["a.b", "a" * 64, "", "A"])
def test_no_labels(text: str) -> None:
    assert names.dns_label(text)


def test_dots_in_a_label_are_named() -> None:
    assert names.dns_label("a.b") == ("must not contain dots",)


@pytest.mark.parametrize("text", ["a", "A_b.c-d", "example.com/a", "x" * 63, "e" * 253 + "/a"])
def test_label_keys(text: str) -> None:
    assert names.label_key(text) == ()


@pytest.mark.parametrize("text", ["", "/a", "a/", "a/b/c", "a b", "-a", "x" * 64, "E.com/a"])
def test_no_label_keys(text: str) -> None:
    assert names.label_key(text)


@pytest.mark.parametrize("text", ["", "a", "A_b.c-d", "x" * 63])
def test_label_values(text: str) -> None:
    assert names.label_value(text) == ()


@pytest.mark.parametrize("text", ["a b", "-a", "a-", "x" * 64, "ä", "a\n"])
def test_no_label_values(text: str) -> None:
    assert names.label_value(text)


@given(st.integers())
def test_uids_are_random_uuids(seed: int) -> None:
    made = uuid.UUID(new_uid(random.Random(seed)))
    assert (made.version, made.variant) == (4, uuid.RFC_4122)


@given(st.integers(), st.text("abc-", max_size=80))
def test_generated_names_fit_into_a_label(seed: int, base: str) -> None:
    name = generate_name(base, random.Random(seed))
    assert len(name) <= 63
    assert re.fullmatch(re.escape(base[:58]) + "[bcdfghjklmnpqrstvwxz2456789]{5}", name)


def test_times_have_whole_seconds() -> None:
    assert timestamp(1_800_000_000.9) == "2027-01-15T08:00:00Z"
