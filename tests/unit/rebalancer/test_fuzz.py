# SPDX-License-Identifier: Apache-2.0
"""Five thousand clusters of extreme objects: no cycle fails, and no gate is passed over.

The objects are what the real API server accepts (`tests/e2e/test_fuzz_objects.py`); what may
be evicted is judged by an oracle of its own.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.support.worlds.fuzz_objects import fuzz_cluster
from tests.unit.rebalancer.fuzz_run import FuzzRun
from tests.unit.rebalancer.gate_oracle import GateOracle

CLUSTERS = 5000
TOGETHER = 100


@pytest.mark.parametrize("first", range(0, CLUSTERS, TOGETHER))
async def test_no_cycle_fails_and_nothing_forbidden_is_evicted(first: int) -> None:
    written = 0
    for seed in range(first, first + TOGETHER):
        cluster = fuzz_cluster(seed)
        with capture_logs() as logs:
            run = FuzzRun(cluster)
            plan = await run.cycle()
        trouble = [each for each in logs if each["log_level"] in ("warning", "error", "critical")]
        assert not trouble, seed
        assert not run.refused, seed
        assert not [note for note in plan.notes if "failed" in note], seed
        forbidden = GateOracle(cluster).forbidden(run.specs)
        assert not forbidden, (seed, forbidden)
        written += len(run.specs)
    # Otherwise nothing was put to the test.
    assert written > TOGETHER // 5
