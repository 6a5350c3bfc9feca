# SPDX-License-Identifier: Apache-2.0
"""Strategies about where pods run, on a real cluster: what is wrong is repaired with the fewest
evictions that are possible, and no replacement is evicted again.

`python -m bench.plugins` runs the same cases, and the descheduler's plugins beside them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plugins.cases import CASES, Case
from bench.plugins.contest import ours
from bench.stands.cluster import Cluster
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

ELSEWHERE = frozenset({"taints have come", "failed pods", "half-empty nodes"})
"""Cases like these have tests of their own, here or on the simulator."""


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.name not in ELSEWHERE], ids=lambda case: case.name
)
async def test_a_strategy_needs_the_fewest_evictions(
    cluster: Cluster, tmp_path: Path, case: Case, say: Say
) -> None:
    found = await ours(cluster, tmp_path, case)
    say(f"{case.strategy}: {found.evictions} evictions, {case.fewest} at least")
    assert (found.evictions, found.repeated, found.left) == (case.fewest, 0, 0)
