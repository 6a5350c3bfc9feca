# SPDX-License-Identifier: Apache-2.0
"""Both programs judge random nodes by the same random pools, and alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from common.cluster.records import NodeName
from common.config import ExtenderConfiguration, RebalancerConfiguration, load_settings_hash
from common.load import Belief, LoadTracker
from common.usage.source import FurtherSample, NodePressure, Sample, Usage
from extender.scoring.board import USE_CPU, USE_MEM, Board
from rebalancer.goals import dimensions_of
from rebalancer.strategies.participation import participation
from rebalancer.strategies.pools import percent_now
from rebalancer.strategies.pressure import under_pressure
from tests.support.worlds.planner import CPU_MILLI, MEM_MIB, MIB, NOW_S, PlannerWorld, view_of

NODES = 40
KEYS, VALUES = ("pool", "disk", "example.com/zone"), ("a", "b", "c")
Labels = Mapping[str, str]


class Drawn(NamedTuple):
    """A pool of a file, and which nodes a person takes it to mean."""

    pool: dict[str, Any]
    means: Callable[[Labels], bool]


def drawn_pool(dice: random.Random, number: int) -> Drawn:
    key, one, other = dice.choice(KEYS), *dice.sample(VALUES, 2)
    selector, means = dice.choice(
        [
            ({key: one}, lambda labels: labels.get(key) == one),
            (f"{key} in ({one}, {other})", lambda labels: labels.get(key) in (one, other)),
            (f"{key} notin ({one})", lambda labels: labels.get(key) != one),
            (f"{key}!={one},pool", lambda labels: labels.get(key) != one and "pool" in labels),
            (f"!{key}", lambda labels: key not in labels),
            ("", lambda _: True) if number > 2 else (key, lambda labels: key in labels),
        ]
    )
    pool: dict[str, Any] = {"name": f"p{number}", "nodeSelector": selector}
    for threshold in ("cpuThreshold", "memoryThreshold"):
        if dice.random() < 0.6:
            pool[threshold] = dice.choice([20.0, 45.0, 70.0, 95.0])
    if dice.random() < 0.4:
        pool["resourceThresholds"] = {"gpu": dice.choice([30.0, 60.0])}
    return Drawn(pool, means)


def expected(pools: list[Drawn], labels: Labels) -> tuple[float, float, float]:
    found = next((each.pool for each in pools if each.means(labels)), {})
    gpu = found.get("resourceThresholds", {}).get("gpu", 80.0)
    return found.get("cpuThreshold", 75.0), found.get("memoryThreshold", 80.0), gpu


@pytest.mark.parametrize("seed", range(12))
def test_both_programs_find_the_same_nodes_overloaded(seed: int) -> None:
    dice = random.Random(seed)
    pools = [drawn_pool(dice, number) for number in range(dice.randint(0, 5))]
    gpu = {"name": "gpu", "nodeQuery": "a", "podQuery": "b", "capacity": 100.0}
    given = {
        "cpuThreshold": 75.0,
        "usageSource": "prometheus",
        "prometheus": {"url": "http://prometheus:9090", "resources": [gpu]},
        "pressure": {"cpu": 20.0},
        "pools": [each.pool for each in pools],
    }
    extender = ExtenderConfiguration.model_validate(given)
    rebalancer = RebalancerConfiguration.model_validate(given)
    assert load_settings_hash(extender) == load_settings_hash(rebalancer)

    world, usage, further, waits = PlannerWorld(), {}, {}, {}
    for number in range(NODES):
        name = NodeName(f"n{number}")
        labels = {key: dice.choice(VALUES) for key in KEYS if dice.random() < 0.6}
        world.node(name, labels=labels)
        cpu, memory = dice.uniform(0.0, 100.0), dice.uniform(0.0, 100.0)
        mem_bytes = memory * MEM_MIB * MIB / 100.0
        usage[name] = Usage(cpu * CPU_MILLI / 100.0, mem_bytes, NOW_S, 60.0)
        further[name] = dice.uniform(0.0, 100.0)
        waits[name] = NodePressure(dice.choice([None, 5.0, 20.0, 40.0]), None)
    snapshot, tracker = world.state.snapshot(), LoadTracker(rebalancer)
    offered = dict.fromkeys(usage, 100.0)
    sample = FurtherSample(nodes=further, offered=offered, pods={})
    tracker.observe(
        Sample(nodes=usage, pods={}, pressures=waits, further=(sample,)), snapshot, NOW_S
    )
    load = tracker.view(snapshot, NOW_S)

    board = Board.after(None, Belief(snapshot, load), extender)
    parts = participation(view_of(snapshot, load, rebalancer), lambda _: True)
    for row, name in enumerate(map(NodeName, board.names)):
        node, ceiling, known = load.nodes[name], parts.ceilings[name], snapshot.nodes[name].node
        wanted = expected(pools, known.labels)
        assert (ceiling.cpu_percent, ceiling.mem_percent, *ceiling.further) == wanted, known.labels
        over = [percent_now(node, d) >= ceiling.of(d) for d in dimensions_of(rebalancer)]
        over_cpu = over[0] or over[2] or bool(under_pressure(node, rebalancer))
        found = board.table[USE_CPU, row] >= 1.0, board.table[USE_MEM, row] >= 1.0
        assert found == (over_cpu, over[1])
