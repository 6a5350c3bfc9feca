# SPDX-License-Identifier: Apache-2.0
"""The demo on a real control plane comes to what it comes to on the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stands.demo import demo, figures

pytestmark = pytest.mark.real

PATIENCE_S = 400.0


async def test_a_real_cluster_becomes_level_before_your_eyes(tmp_path: Path) -> None:
    async with demo(tmp_path, "--json", "--real") as running:
        assert await running.ended(PATIENCE_S) == 0, running.text
        assert running.left() == []
    found = figures(tmp_path)
    assert (found["hotBefore"], found["hotAfter"]) == (4, 0)
    assert found["landedElsewhere"] == found["evictedAgain"] == 0
    assert found["landedAsPlanned"] == found["evictions"] >= found["lowerBound"] > 0
    assert "The cluster is level." in running.text


async def test_even_a_killed_demo_leaves_no_control_plane(tmp_path: Path) -> None:
    async with demo(tmp_path, "--real") as running:
        await running.until(lambda: "Creating the scenario" in said(tmp_path), "it is there")
        assert any("kube-apiserver" in line for line in running.left())
        running.process.kill()
        await running.until(lambda: not running.left(), "nothing is left")


def said(folder: Path) -> str:
    return (folder / "out").read_text()
