# SPDX-License-Identifier: Apache-2.0
"""What the judge reads from manifests, beside what the programs read: two readings, one meaning."""

from __future__ import annotations

import pytest

from bench.zoo.families import drawn_cluster
from bench.zoo.manifests import ATTACHED, controllers, host_ports, requested, ruled_out
from common.cluster.shapes import HostPort
from rebalancer.goals import Relocate
from tests.support.worlds.zoo import zoo_demand

READ = ("init-containers", "host-ports", "devices", "attach-limits", "no-requests")


@pytest.mark.parametrize("family", READ)
def test_both_read_the_same_requests_and_ports(family: str) -> None:
    cluster = drawn_cluster(family, 2)
    snapshot = zoo_demand(cluster).cluster.snapshot
    for made in cluster.objects["pods"]:
        shape, asked = (
            snapshot.pods[made["metadata"]["uid"]].shape,
            requested(made["spec"], cluster),
        )
        assert (asked["cpu"], asked["memory"]) == (
            shape.requests.cpu_milli,
            shape.requests.mem_bytes,
        )
        assert asked[f"{ATTACHED}disk.example.com"] == len(shape.claims)
        assert host_ports(made["spec"]) == {_words(port) for port in shape.host_ports}


def _words(port: HostPort) -> str:
    return f"{port.port}/{port.protocol}"


@pytest.mark.parametrize("family", ["labels-changed", "tainted-later", "node-affinity"])
def test_both_find_the_same_pods_on_nodes_that_are_ruled_out(family: str) -> None:
    cluster = drawn_cluster(family, 3)
    replicas = {w["metadata"]["name"]: w["spec"]["replicas"] for w in controllers(cluster)}
    nodes = {node["metadata"]["name"]: node for node in cluster.objects["nodes"]}
    wanted = {
        pod["metadata"]["name"]
        for pod in cluster.objects["pods"]
        if ruled_out(pod["spec"], nodes[pod["spec"]["nodeName"]])
        and replicas[pod["metadata"]["ownerReferences"][0]["name"]] > 1
    }
    goals = zoo_demand(cluster).assessment.goals
    named = (goal.name for goal in goals if isinstance(goal, Relocate))
    stated = {name.removeprefix("default/") for name in named}
    assert stated == (wanted if family != "node-affinity" else set())
    assert wanted or family == "node-affinity"
