# SPDX-License-Identifier: Apache-2.0
"""A scenario for another number of nodes shows the same picture."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest

from common.cluster import quantities as quantity
from common.config import ConfigError
from simulator.rng import Rng
from simulator.scenarios import Scenario, load_scenario, names, scaled
from simulator.scenarios.manifests import names_of, node_names, nodes_of
from simulator.scenarios.placing import Piece, Place, drawn_levels, place
from simulator.scenarios.schema import Budget, Level, Pool, Usage, Workload

OVERHEAD_MILLI = 100
SIZES = (5, 20, 60, 200)


def drawn(scenario: Scenario, seed: int = 0) -> dict[str, float]:
    """Return the CPU utilization of each node at the start, in percent."""
    pools = [pool for pool in scenario.pools if not pool.joins_after]
    cpu = {name: quantity.milli(pool.cpu) for pool in pools for name in node_names(pool)}
    levels = drawn_levels(scenario, list(cpu), Rng(seed))
    places = [
        Place(name, cpu[name] * percent / 100 - OVERHEAD_MILLI, cpu[name], 2**35, 110)
        for name, percent in sorted(levels.items())
    ]
    pods = [
        Piece(f"{name}-{number}", name, quantity.milli(group.usage.cpu or "1m"), 100, 2**20)
        for group in scenario.workloads
        for name in names_of(group)
        for number in range(group.replicas)
    ]
    place(pods, places)
    return {p.name: 100 * (p.used_milli + OVERHEAD_MILLI) / cpu[p.name] for p in places}


def pods_of(scenario: Scenario) -> int:
    return sum(each.count * each.replicas for each in scenario.workloads)


@pytest.mark.parametrize("nodes", SIZES)
def test_hot_nodes_keep_their_share_and_their_load(nodes: int) -> None:
    for seed in range(3 if nodes < 200 else 1):
        used = drawn(scaled(load_scenario("hot-spots"), nodes), seed)
        hot = [percent for percent in used.values() if percent > 80]
        rest = [percent for percent in used.values() if percent <= 80]
        assert len(used) == nodes
        assert len(hot) == nodes // 5
        assert 84 <= mean(hot) <= 98
        assert 52 <= mean(rest) <= 58


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("nodes", [5, 7, 13, 33])
def test_every_shipped_scenario_can_be_drawn_in_every_size(name: str, nodes: int) -> None:
    own, other = load_scenario(name), scaled(load_scenario(name), nodes)
    before, after = drawn(own), drawn(other)
    late = sum(pool.count for pool in other.pools if pool.joins_after)
    assert len(after) == nodes - late
    assert mean(after.values()) == pytest.approx(mean(before.values()), abs=3)
    per_node = pods_of(own) / len(before)
    assert pods_of(other) / len(after) == pytest.approx(per_node, rel=0.08)


@pytest.mark.parametrize("name", names())
def test_its_own_number_of_nodes_changes_nothing(name: str) -> None:
    own = load_scenario(name)
    assert scaled(own, sum(pool.count for pool in own.pools)) == own


def test_workloads_keep_their_size() -> None:
    for nodes in SIZES:
        found = scaled(load_scenario("hot-spots"), nodes)
        assert {group.replicas for group in found.workloads} <= {4, 5, 6}
        sizes = Counter(
            {group.name.split("-")[0]: group.usage.cpu for group in found.workloads}.items()
        )
        assert dict(sizes.keys()) == {"search": "700m", "web": "400m", "mail": "300m"}


def test_names_are_those_of_one_group() -> None:
    found = scaled(load_scenario("hot-spots"), 5)
    given = [name for group in found.workloads for name in names_of(group)]
    assert len(given) == len(set(given))
    assert [n for n in given if n.startswith("mail")] == [f"mail-{n}" for n in range(1, 5)]


def test_zones_are_assigned_in_turn() -> None:
    (pool,) = scaled(load_scenario("hot-spots"), 60).pools
    zones = Counter(n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in nodes_of(pool))
    assert zones == {"a": 20, "b": 20, "c": 20}


def test_pools_keep_their_shares_and_late_ones_stay_late() -> None:
    ten_and_one = load_scenario("new-empty-node")
    assert [pool.count for pool in scaled(ten_and_one, 33).pools] == [30, 3]
    assert [pool.count for pool in scaled(ten_and_one, 5).pools] == [4, 1]
    assert scaled(ten_and_one, 5).load == (ten_and_one.load[0].model_copy(update={"nodes": 4}),)


def test_a_budget_allows_as_many_disruptions_as_before() -> None:
    group = Workload(
        name="db", replicas=5, usage=Usage(cpu="1"), pdb=Budget.model_validate({"minAvailable": 4})
    )
    found = scaled(Scenario(pools=(Pool(count=5),), workloads=(group,)), 3).workloads
    assert [(each.replicas, each.pdb and each.pdb.min_available) for each in found] == [(3, 2)]


def test_pods_with_nodes_of_their_own_go_to_the_same_share_of_nodes() -> None:
    group = Workload(name="web", replicas=4, usage=Usage(cpu="1"), nodes=("node-1", "node-4"))
    scenario = Scenario(pools=(Pool(count=4),), workloads=(group,))
    (grown,) = scaled(scenario, 8).workloads
    assert grown.nodes == ("node-1", "node-2", "node-7", "node-8")
    (shrunk,) = scaled(scenario, 1).workloads
    assert shrunk.nodes == ("node-1", "node-1")


def test_too_few_nodes_for_the_picture_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few nodes: each of its 2 levels of load needs one"):
        scaled(load_scenario("hot-spots"), 1)


def test_a_load_for_another_number_of_nodes_is_refused_in_every_size() -> None:
    wrong = Scenario(
        pools=(Pool(count=3),),
        load=(Level.model_validate({"nodes": 2, "from": 50, "to": 60}, by_alias=True),),
    )
    with pytest.raises(ConfigError, match="2 nodes given, but the pools have 3"):
        scaled(wrong, 6)
