# SPDX-License-Identifier: Apache-2.0
"""What a round says of pressure, and what holds while rounds say nothing."""

from __future__ import annotations

from common.cluster.records import NodeName
from common.usage.source import NodePressure, Sample
from tests.support.worlds.load import LoadWorld, usage

NODE = NodeName("n1")
EXPIRY_S = 180.0
ROUND_S = 15.0


def told(world: LoadWorld, pressure: NodePressure | None) -> NodePressure:
    """Take in a round, and return what is believed after it."""
    world.pass_time(ROUND_S)
    sample = Sample(
        nodes={NODE: usage(1000.0, 1000.0, world.now_s)},
        pods={},
        pressures={} if pressure is None else {NODE: pressure},
    )
    world.tracker.observe(sample, world.state.snapshot(), world.now_s)
    return world.view().nodes[NODE].pressure


def world_of_one() -> LoadWorld:
    made = LoadWorld()
    made.node(NODE)
    return made


def test_a_gap_changes_nothing_until_the_figure_has_expired() -> None:
    """A node whose tasks wait would get pods in every gap otherwise."""
    world, high = world_of_one(), NodePressure(45.0, 3.0)
    assert told(world, high) == high
    gap = [told(world, None) for _ in range(int(EXPIRY_S / ROUND_S))]
    assert gap == [high] * (len(gap) - 1) + [NodePressure()]
    assert told(world, None) == NodePressure()
    assert told(world, high) == high


def test_each_resource_has_gaps_of_its_own() -> None:
    world = world_of_one()
    told(world, NodePressure(45.0, 3.0))
    assert told(world, NodePressure(2.0, None)) == NodePressure(2.0, 3.0)
    assert told(world, NodePressure(None, 9.0)) == NodePressure(2.0, 9.0)


def test_another_node_of_the_same_name_inherits_nothing() -> None:
    world = world_of_one()
    told(world, NodePressure(45.0, 3.0))
    world.node(NODE, uid="another")
    assert told(world, None) == NodePressure()
