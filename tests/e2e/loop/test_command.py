# SPDX-License-Identifier: Apache-2.0
"""The command on a real cluster: a reviewed plan, and a drifted one.

The rebalancer waits for more observations than will ever come, so what moves for load was applied
by the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.stands.cluster import Cluster
from bench.stands.episode import episode, was_evicted
from bench.stands.rebalancer_process import LOAD, QUICK
from simulator.scenarios import load_scenario
from tests.support.stands.command import Answer, evenkeel
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

PATIENT = {**LOAD, "observations": 1000}


def flags(cluster: Cluster, folder: Path, kubeconfig: Path | None = None) -> list[str]:
    found = kubeconfig or cluster.kubeconfig
    config = str(folder / "rebalancer.yaml")
    return ["--kubeconfig", str(found), "--config", config, "--timeout", "60s"]


async def test_a_reviewed_plan_is_carried_out_and_a_drifted_one_is_refused(
    cluster: Cluster, tmp_path: Path, say: Say
) -> None:
    settings = {**QUICK, "enabledStrategies": ["ResourceOptimization"]}
    scenario = load_scenario("hot-spots")
    async with episode(
        cluster, tmp_path, scenario, seed=1, settings=settings, load=PATIENT
    ) as loop:
        given, file = flags(cluster, tmp_path), tmp_path / "plan.yaml"
        planned = await evenkeel(*given, "plan", "--file", str(file), "-o", "json")
        assert planned.code == 0, planned.err
        plan: dict[str, Any] = yaml.safe_load(file.read_text())
        await refused(given, tmp_path, plan)
        applied = await evenkeel(*given, "apply", str(file), "--wait", "-o", "json")
        assert applied.code == 0, applied.err
        moved = [m for m in await loop.migrations() if was_evicted(m)]
        outcomes = [row["outcome"] for row in applied.json["rows"]]
    now = [move for move in plan["moves"] if move["thisCycle"]]
    say(f"{len(moved)} of {len(plan['moves'])} moves applied, {outcomes}")
    assert len(moved) == len(now) > 0
    assert set(outcomes) == {"AsPlanned"}


async def refused(given: list[str], folder: Path, plan: dict[str, Any]) -> Answer:
    """Apply a plan of which one pod is another one by now."""
    drifted = folder / "drifted.yaml"
    first = {**plan["moves"][0], "uid": "00000000-0000-4000-8000-000000000000"}
    drifted.write_text(yaml.safe_dump({**plan, "moves": [first, *plan["moves"][1:]]}))
    found = await evenkeel(*given, "apply", str(drifted))
    assert found.code == 3, found
    assert "the cluster has changed" in found.err
    return found
