# SPDX-License-Identifier: Apache-2.0
"""Which nodes the real kube-scheduler found for pods of random clusters; we find the same."""

from __future__ import annotations

import pytest

from common.fit import FitIndex, World
from tests.support.worlds.fit_cases import pods_to_judge, random_case, snapshot
from tests.support.worlds.fit_records import FIT, recorded

VERDICTS = recorded(FIT)


@pytest.mark.parametrize("seed", VERDICTS)
def test_finds_the_nodes_that_kube_scheduler_found(seed: str) -> None:
    case = random_case(int(seed))
    world = World(snapshot(case), FitIndex())
    found = {pod.name: list(world.feasible(pod)) for pod in pods_to_judge(case)}
    assert found == VERDICTS[seed]
