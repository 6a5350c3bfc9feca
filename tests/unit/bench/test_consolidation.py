# SPDX-License-Identifier: Apache-2.0
"""The running program frees what the exact judge can free, on a few small clusters."""

from __future__ import annotations

import json

import pytest

from bench.consolidation import FAMILIES, Drawn, Judge, Node, Pod, compared
from bench.zoo.cluster import GIB, Use
from bench.zoo.program import Planned
from tests.support.stands.warm_python import run_program

SMALL = Use(1000, GIB)


async def planned(*flags: str) -> Planned:
    """Run the program, which need not import everything first."""
    ended = await run_program("rebalancer", *flags)
    assert ended.code == 0, ended.err
    return Planned(json.loads(ended.out), cpu_s=0.0)


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_program_frees_at_least_95_percent_of_the_optimum(family: str) -> None:
    results = [await compared(family, seed, planned) for seed in (1, 2)]
    assert [result.broken for result in results] == [(), ()]
    assert sum(r.freed for r in results) >= 0.95 * sum(r.most for r in results)


@pytest.mark.parametrize(("family", "seed"), [("zoned", 705), ("mixed", 5), ("firm", 11)])
async def test_a_set_that_fits_in_one_way_only_is_freed_too(family: str, seed: int) -> None:
    result = await compared(family, seed, planned)
    assert result.broken == ()
    assert result.freed == pytest.approx(result.most)


def drawn(*loads: int) -> Drawn:
    """Return nodes of 8 cores, each with one pod that uses so many millicores."""
    found = Drawn()
    for number, milli in enumerate(loads):
        found.nodes[f"n{number}"] = Node(8000, 32 * GIB, 1.0, "z")
        use = Use(milli, GIB)
        found.pods[f"p{number}"] = Pod(f"n{number}", use, SMALL, f"w{number}", "", firm=False)
    return found


@pytest.mark.parametrize(
    ("loads", "most"), [((2000, 2000, 1000), 2.0), ((2700, 2700, 2700), 0.0), ((5000, 100), 1.0)]
)
def test_the_judge_knows_the_optimum_of_small_clusters(loads: tuple[int, ...], most: float) -> None:
    assert Judge(drawn(*loads)).most() == pytest.approx(most)
