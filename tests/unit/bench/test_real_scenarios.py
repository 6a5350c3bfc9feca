# SPDX-License-Identifier: Apache-2.0
"""Scenarios on the real control plane begin as they say."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.stands.real_scenario import Json, fewest, placement, use_of
from common.cluster import quantities as quantity
from simulator.scenarios import Scenario, load_scenario
from simulator.scenarios.manifests import workload_manifests

NODES = {f"node-{number}": f"here-{number:02}" for number in range(1, 21)}
SEEDS = (1, 2, 3, 4, 5)


def pods_of(scenario: Scenario) -> list[Json]:
    made = [each for w in scenario.workloads for each in workload_manifests(w)]
    return [
        {
            "metadata": {
                **each["spec"]["template"]["metadata"],
                "namespace": "default",
                "name": f"{name}-{number}",
            },
            "spec": dict(each["spec"]["template"]["spec"]),
        }
        for each in made
        if (name := each["metadata"]["name"])
        for number in range(each["spec"].get("replicas", 0))
    ]


def placed(name: str, seed: int) -> list[Json]:
    scenario = load_scenario(name)
    pods = pods_of(scenario)
    where = placement(scenario, pods, NODES, seed)
    for pod in pods:
        pod["spec"]["nodeName"] = where[pod["metadata"]["name"]]
    return pods


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["hot-spots", "requests-mislead"])
def test_four_nodes_are_hot_and_each_takes_at_least_one_eviction(name: str, seed: int) -> None:
    pods = placed(name, seed)
    used: Counter[str] = Counter()
    for pod in pods:
        used[pod["spec"]["nodeName"]] += use_of(pod)
    assert sum(milli > 6_400 for milli in used.values()) == 4
    assert len(used) == 20
    assert fewest(pods, 80.0) >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_where_requests_mislead_the_hot_nodes_look_emptiest(seed: int) -> None:
    used: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for pod in placed("requests-mislead", seed):
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        used[pod["spec"]["nodeName"]] += use_of(pod)
        asked[pod["spec"]["nodeName"]] += quantity.milli(requests["cpu"])
    hot = {node for node, milli in used.items() if milli > 6_400}
    assert max(asked[node] for node in hot) < min(asked[node] for node in asked.keys() - hot)
