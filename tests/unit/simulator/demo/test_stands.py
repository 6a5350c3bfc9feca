# SPDX-License-Identifier: Apache-2.0
"""The cluster of a demo, where it cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.clock import SYSTEM
from simulator.demo import stands
from simulator.demo.programs import Programs
from simulator.demo.stands import StandOptions, real
from simulator.process import CommandError
from simulator.scenarios import load_scenario


async def test_an_installed_package_says_that_a_real_cluster_needs_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stands, "find_spec", lambda _: None)
    options = StandOptions(
        name="hot-spots",
        scenario=load_scenario("hot-spots"),
        seed=1,
        speed=1.0,
        scheduler=tmp_path / "scheduler.yaml",
        rebalancer=tmp_path / "rebalancer.yaml",
    )
    programs = Programs(tmp_path, lambda _: None, clock=SYSTEM)
    with pytest.raises(CommandError, match="--real needs a checkout of the repository"):
        async with real(options, programs, lambda _: None, clock=SYSTEM):
            pass
