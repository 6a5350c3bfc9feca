# SPDX-License-Identifier: Apache-2.0
"""Tables in which taking a node's measurement for its load would be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import read_table
from tests.support.worlds.load import MIB, LoadWorld

MINUTE_S = 60.0
CASES: list[dict[str, Any]] = read_table(Path(__file__).parent / "cases" / "naive.yaml")


def play(world: LoadWorld, step: dict[str, Any]) -> None:
    began_s = world.now_s
    world.pass_time(MINUTE_S)
    for name in step.get("pods", ()):
        world.pod(name)
    for name, asked in step.get("come", {}).items():
        moment = world.now_s if step.get("unseen") else began_s
        world.pod(name, scheduled_s=moment, requests=(f"{asked}m", f"{asked}Mi"))
    for name in step.get("leave", ()):
        world.leave(name)
    measured = {name: (float(x), float(x)) for name, x in step["measured"].items()}
    world.measure({"n1": (float(step["node"]), float(step["node"]))}, measured)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_load_is_right_where_the_node_measurement_is_wrong(case: dict[str, Any]) -> None:
    world = LoadWorld()
    world.node("n1")
    for step in case["steps"]:
        play(world, step)

    load = world.load()

    assert load.known
    assert load.cpu_milli == pytest.approx(case["load"])
    assert load.mem_bytes == pytest.approx(case.get("mib", case["load"]) * MIB)
    assert case["steps"][-1]["node"] == case["naive"]
    assert abs(case["naive"] - case["load"]) >= 0.09 * case["load"]
