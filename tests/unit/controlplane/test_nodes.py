# SPDX-License-Identifier: Apache-2.0
"""The fake nodes: size, marks, names, zones."""

from __future__ import annotations

from controlplane.nodes import ZONE, NodeSpec, manifest, manifests

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


def test_a_node_offers_8_cpu_32_gib_and_110_pods_unless_told_otherwise() -> None:
    status = manifest("n", NodeSpec())["status"]
    assert status["allocatable"] == {"cpu": "8", "memory": "32Gi", "pods": "110"}
    assert status["capacity"] == status["allocatable"]
    small = manifest("n", NodeSpec(cpu="500m", memory="1Gi", pods=3))["status"]
    assert small["allocatable"] == {"cpu": "500m", "memory": "1Gi", "pods": "3"}


def test_a_node_is_played_by_kwok_and_measured_by_metrics_server() -> None:
    assert manifest("n-1", NodeSpec())["metadata"]["annotations"] == {
        "kwok.x-k8s.io/node": "fake",
        "metrics.k8s.io/resource-metrics-path": "/metrics/nodes/n-1/metrics/resource",
    }


def test_labels_and_taints_are_added_to_the_usual_labels() -> None:
    node = manifest("n", NodeSpec(labels={"pool": "a"}, taints=[TAINT]), zone="z")
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "n",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "pool": "a",
        ZONE: "z",
    }
    assert node["spec"]["taints"] == [TAINT]


def test_names_sort_like_numbers() -> None:
    names = [node["metadata"]["name"] for node in manifests(12, NodeSpec(), first=95)]
    assert names == sorted(names)
    assert names[0] == "node-095"
    assert len(set(names)) == 12


def test_zones_differ_by_at_most_one_node() -> None:
    labels = [node["metadata"]["labels"] for node in manifests(8, NodeSpec(), zones=3)]
    zones = [label[ZONE] for label in labels]
    assert [zones.count(zone) for zone in ("zone-1", "zone-2", "zone-3")] == [3, 3, 2]


def test_without_zones_there_is_no_zone_label() -> None:
    assert all(ZONE not in node["metadata"]["labels"] for node in manifests(2, NodeSpec()))
