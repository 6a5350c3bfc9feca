# SPDX-License-Identifier: Apache-2.0
"""`why` names the rules that hold, those that match too, and every figure that decides."""

from __future__ import annotations

from typing import Any

import msgspec

from common.cluster.records import NodeName
from common.config import RebalancerConfiguration
from common.load import Belief, LoadTracker
from common.usage.source import FurtherSample, NodePressure, Sample, Usage
from console.data import WhyDocument
from rebalancer.inspection import Inspection, cluster_document, why_node, why_pod
from tests.support.worlds.migrations import migration, spec_of
from tests.support.worlds.planner import NOW_S, PlannerWorld

CLOSED = [{"schedule": "0 0 1 1 *", "duration": "1h", "timeZone": "Europe/Berlin"}]
OPEN = [{"schedule": "* * * * *", "duration": "1m"}]
GPU = {"name": "gpu", "nodeQuery": "a", "podQuery": "b", "capacity": 8.0, "threshold": 60.0}


def asked(waits: NodePressure, gpu: float, *, moving: bool = False, **config: Any) -> Inspection:
    """Return a node that uses 30 %, with one pod, and so much of everything else."""
    world = PlannerWorld()
    world.node("n1", labels={"pool": "web", "disk": "ssd"})
    world.pod("web-0", "n1", 30.0, owner="web", namespace="shop")
    if moving:
        world.state.migrations.upsert(migration(spec_of(source="n1", target="n2")))
    snapshot, name = world.state.snapshot(), NodeName("n1")
    used = {"shop/web-0": Usage(3000.0, 3e9, NOW_S, 60.0)}
    sample = Sample(
        nodes={name: used["shop/web-0"]},
        pods=used,
        pressures={name: waits},
        further=(FurtherSample(nodes={name: gpu}, offered={name: 8.0}, pods={}),),
    )
    given = RebalancerConfiguration.model_validate(
        {
            "usageSource": "prometheus",
            "prometheus": {"url": "http://prometheus:9090", "resources": [GPU]},
            **config,
        }
    )
    tracker = LoadTracker(given)
    tracker.observe(sample, snapshot, NOW_S)
    return Inspection(Belief(snapshot, tracker.view(snapshot, NOW_S)), given, NOW_S)


def facts(found: WhyDocument | None) -> dict[str, str]:
    assert found is not None
    # As the console and `--output json` have it.
    return {fact["label"]: fact["text"] for fact in msgspec.to_builtins(found)["facts"]}


def of_node(**given: Any) -> dict[str, str]:
    return facts(why_node(asked(NodePressure(45.0, None), 2.0, **given), "n1"))


def of_pod(**given: Any) -> dict[str, str]:
    return facts(why_pod(asked(NodePressure(), 2.0, **given), "shop/web-0"))


def test_pressure_is_shown_where_it_is_judged() -> None:
    assert "Pressure" not in of_node()
    assert of_node(pressure={"cpu": 20.0})["Pressure"] == "45 % CPU (allowed 20 %)"
    both = of_node(pressure={"cpu": 20.0, "memory": 7.5})["Pressure"]
    assert both == "45 % CPU (allowed 20 %), unknown memory (allowed 7.5 %)"


def test_while_a_node_settles_that_is_said() -> None:
    assert "Settling" not in of_node(pressure={"cpu": 20.0})
    assert of_node(pressure={"cpu": 20.0}, moving=True)["Settling"].startswith("pods came or left")


def test_a_further_resource_is_shown_with_the_threshold_of_the_pool() -> None:
    assert of_node()["Load"] == "30 % CPU, 29 % memory, 25 % gpu"
    assert of_node()["Ceilings"] == "80 % CPU, 80 % memory, 60 % gpu"
    pools = [{"name": "web", "nodeSelector": "pool=web", "resourceThresholds": {"gpu": 20.0}}]
    found = of_node(pools=pools)
    assert found["Ceilings"] == "80 % CPU, 80 % memory, 20 % gpu"
    assert found["Pool rule"] == "pool web (pool=web) sets resourceThresholds"


def test_the_cluster_says_which_pressure_and_further_resource_is_too_high() -> None:
    def note(**given: Any) -> str:
        [cell] = cluster_document(asked(NodePressure(45.0, None), 6.0, **given)).nodes
        return cell.note

    pools = [{"name": "web", "nodeSelector": "pool=web", "resourceThresholds": {"gpu": 80.0}}]
    assert note(pools=pools) == note(pools=pools, pressure={"cpu": 50.0}) == ""
    assert note() == "75 % gpu (allowed 60 %)"
    assert note(pressure={"cpu": 20.0}) == (
        "45 % CPU pressure (allowed 20 %, pressure.cpu), 75 % gpu (allowed 60 %)"
    )


def test_the_first_pool_holds_and_the_others_that_match_are_named() -> None:
    pools = [
        {"name": "db", "nodeSelector": "pool=db"},
        {"name": "fast", "nodeSelector": {"disk": "ssd"}, "cpuThreshold": 60.0},
        {"name": "web", "nodeSelector": "pool=web", "cpuThreshold": 95.0},
        {"name": "rest", "nodeSelector": ""},
    ]
    found = of_node(pools=pools)
    assert found["Pool rule"] == (
        "pool fast (disk=ssd) sets cpuThreshold; pool web and pool rest match too, without effect"
    )
    assert found["Ceilings"].startswith("60 % CPU")
    assert of_node(pools=pools[2:])["Pool rule"].endswith("; pool rest matches too, without effect")
    assert of_node(pools=pools[:1])["Pool rule"] == "none matches: the configuration holds"


def test_the_first_rule_of_a_namespace_holds_and_the_others_are_named() -> None:
    rules = [
        {"selector": {"kubernetes.io/metadata.name": "shop"}, "schedule": OPEN},
        {"selector": "", "modes": {"LoadBalancing": "act"}, "limits": {"maxPerNamespace": 1}},
    ]
    assert of_pod(namespaces=rules)["Namespace rule"] == (
        "namespaces[0] (kubernetes.io/metadata.name=shop) sets schedule; "
        "namespaces[1] (all) matches too, without effect"
    )
    assert (
        of_pod(namespaces=rules[1:])["Namespace rule"] == "namespaces[0] (all) sets modes, limits"
    )
    other = [{"selector": "team=x"}]
    assert of_pod(namespaces=other)["Namespace rule"] == "none matches: the configuration holds"


def test_limits_are_shown_with_the_rule_that_sets_them() -> None:
    pool = {
        "name": "web",
        "nodeSelector": "pool=web",
        "imbalanceThreshold": 7.5,
        "limits": {"maxInboundPerNode": 2, "maxReschedulePods": 3},
    }
    shop = {"selector": "", "limits": {"maxPerNamespace": 1}}
    found = of_pod(pools=[pool], namespaces=[shop])
    assert found["Limits"] == (
        "imbalanceThreshold 7.5, by pool web; maxReschedulePods 3, by pool web; "
        "maxInboundPerNode 2, by pool web; maxPerNamespace 1, by namespaces[0] (all)"
    )
    assert found["Namespace rule"] == "namespaces[0] (all) sets limits"
    assert "maxPerNamespace" not in of_node(pools=[pool], namespaces=[shop])["Limits"]
    assert "Limits" not in of_pod(namespaces=[{"selector": "", "limits": {}}])


def test_modes_and_schedules_are_shown_with_what_decided() -> None:
    found = of_pod(
        mode="act",
        modes={"LoadBalancing": "observe"},
        schedules={"ResourceOptimization": CLOSED},
        enabledStrategies=[
            "LoadBalancing",
            "ResourceOptimization",
            "Violations",
            "NodeMaintenance",
        ],
    )
    assert found["LoadBalancing"] == "observe, by the configuration"
    assert found["ResourceOptimization"] == (
        "act, by the configuration; it waits for the schedule of ResourceOptimization, "
        "which opens 2028-01-01 00:00 Europe/Berlin"
    )
    assert found["Violations"] == found["NodeMaintenance"] == "act, by the configuration"
    # A namespace says nothing about its node.
    rules = [{"selector": "", "schedule": CLOSED}]
    assert "waits" in of_pod(namespaces=rules)["LoadBalancing"]
    assert "waits" not in of_node(namespaces=rules)["LoadBalancing"]
