# SPDX-License-Identifier: Apache-2.0
"""The simulator's half of the conformance suite, which needs no control plane."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stands.conformance import all_cases
from tests.support.stands.simulated import simulated_stand

CASES = all_cases()


@pytest.mark.parametrize("name", CASES)
async def test_simulator_behaves_as_the_real_server(name: str, tmp_path: Path) -> None:
    async with simulated_stand(tmp_path) as stand:
        await CASES[name](stand)
