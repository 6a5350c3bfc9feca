# SPDX-License-Identifier: Apache-2.0
"""A drain gives up soft rules only where there is no other way, even if that takes a move more."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from bench.zoo.__main__ import judged
from bench.zoo.families import drawn_cluster
from bench.zoo.model import Model
from bench.zoo.program import Planned
from rebalancer.planner import make_plan
from rebalancer.report import as_json
from rebalancer.solver import solve
from tests.support.worlds.zoo import zoo_demand


def test_a_sibling_moves_first_where_soft_spread_would_yield() -> None:
    """Six pods have to leave; one of them finds a place in its zone only if a seventh goes."""
    cluster = drawn_cluster("mixture", 3)
    plan = make_plan(replace(zoo_demand(cluster), solve=solve))
    found = Planned(msgspec.json.decode(as_json(plan)), 0.0)
    result = judged("mixture", 3, Model(cluster), found, 10.0)
    assert (result.broken, result.unmet, result.evictions) == ((), (), 7)
    (helper,) = (move for move in found.moves if move["source"] != "n0")
    assert helper["reason"] == "MakesRoom"
