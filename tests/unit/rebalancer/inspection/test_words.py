# SPDX-License-Identifier: Apache-2.0
"""Answers have words for every gate and every rule about nodes."""

from __future__ import annotations

import pytest

from rebalancer.evictability import GATES
from rebalancer.inspection.words import passed
from rebalancer.strategies.participation import RULES

NAMES = sorted({gate.__name__ for gate in GATES} | {rule.name for rule in RULES})


@pytest.mark.parametrize("name", NAMES)
def test_a_gate_that_is_passed_says_so_in_words(name: str) -> None:
    assert passed(name) != name.replace("_", " "), "add it to _PASSED"


def test_a_gate_without_words_is_shown_by_its_name() -> None:
    assert passed("not_a_daemon_set_of_ours") == "not a DaemonSet of ours"
