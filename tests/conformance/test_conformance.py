# SPDX-License-Identifier: Apache-2.0
"""The same expectations, held against the simulator and against kube-apiserver."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.stands.cluster import Cluster
from tests.conformance.real import real_stand
from tests.support.stands.conformance import all_cases
from tests.support.stands.simulated import simulated_stand

CASES = all_cases()


@pytest.mark.parametrize("name", CASES)
async def test_simulator(name: str, tmp_path: Path) -> None:
    async with simulated_stand(tmp_path) as stand:
        await CASES[name](stand)


@pytest.mark.parametrize("name", CASES)
async def test_real_server(name: str, cluster: Cluster) -> None:
    async with real_stand(cluster) as stand:
        await CASES[name](stand)
