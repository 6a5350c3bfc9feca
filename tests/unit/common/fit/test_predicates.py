# SPDX-License-Identifier: Apache-2.0
"""Every predicate by its tables: which nodes can take a pod, and in which words others cannot."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName
from tests.unit.common.fit.tables import FitCase, load_cases

CASES = load_cases()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finds_the_nodes_that_can_take_the_pod(case: FitCase) -> None:
    assert list(case.question().feasible()) == case.feasible


@pytest.mark.parametrize("case", CASES, ids=str)
def test_says_why_the_others_cannot(case: FitCase) -> None:
    question = case.question()
    nodes = question.world.snapshot.nodes
    words = {name: [r.message for r in question.rejections(name)] for name in nodes}
    assert {name: said for name, said in words.items() if said} == case.refused


@pytest.mark.parametrize("case", CASES, ids=str)
def test_stops_at_the_first_plugin_as_the_scheduler_does(case: FitCase) -> None:
    question = case.question()
    for name in map(NodeName, case.refused):
        first = question.rejections(name, first=True)
        assert first == question.rejections(name)[: len(first)]
        assert len({refusal.plugin for refusal in first}) == 1
