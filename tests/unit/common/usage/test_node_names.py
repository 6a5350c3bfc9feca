# SPDX-License-Identifier: Apache-2.0
"""Which node a series is about."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName, NodeRecord
from common.usage.node_names import NodeNames, host_of

NODES = [
    NodeRecord(name=NodeName("worker-1"), uid="1", addresses=("10.0.0.1", "ip-10-0-0-1.internal")),
    NodeRecord(name=NodeName("worker-2"), uid="2", addresses=("10.0.0.2", "fd00::2", "shared")),
    NodeRecord(name=NodeName("worker-3"), uid="3", addresses=("10.0.0.3", "shared", "worker-1")),
    NodeRecord(name=NodeName("worker-4"), uid="4", addresses=("10.0.0.4", "10.0.0.4")),
]


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        pytest.param({"node": "worker-1"}, "worker-1", id="the node label"),
        pytest.param(
            {"node": "worker-1", "instance": "10.0.0.2:9100"}, "worker-1", id="comes first"
        ),
        pytest.param({"node": "ip-10-0-0-1.internal"}, "worker-1", id="a host name as node label"),
        pytest.param({"node": "", "instance": "10.0.0.2:9100"}, "worker-2", id="empty node label"),
        pytest.param({"instance": "10.0.0.1:9100"}, "worker-1", id="an address with port"),
        pytest.param({"instance": "10.0.0.1"}, "worker-1", id="an address"),
        pytest.param({"instance": "ip-10-0-0-1.internal:9100"}, "worker-1", id="a host name"),
        pytest.param({"instance": "worker-2:9100"}, "worker-2", id="the name with port"),
        pytest.param({"instance": "[fd00::2]:9100"}, "worker-2", id="IPv6 with port"),
        pytest.param({"instance": "fd00::2"}, "worker-2", id="IPv6"),
        pytest.param({"instance": "10.0.0.4:9100"}, "worker-4", id="an address named twice"),
        pytest.param({"instance": "shared:9100"}, None, id="two nodes answer to it"),
        pytest.param({"instance": "worker-1"}, "worker-1", id="a name beats another's address"),
        pytest.param({"instance": "192.168.0.9:9100"}, None, id="a machine outside"),
        pytest.param({"node": "gone", "instance": "10.0.0.1:9100"}, None, id="another node"),
        pytest.param({}, None, id="no labels"),
    ],
)
def test_a_series_is_matched_to_a_node(labels: dict[str, str], node: str | None) -> None:
    assert NodeNames(NODES).find(labels) == node


def test_the_node_label_is_a_setting() -> None:
    assert NodeNames(NODES, "kubernetes_node").find({"kubernetes_node": "worker-2"}) == "worker-2"


@pytest.mark.parametrize(
    ("instance", "host"),
    [
        ("worker-1:9100", "worker-1"),
        ("worker-1", "worker-1"),
        ("10.0.0.1:9100", "10.0.0.1"),
        ("[fd00::1]:9100", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("fd00::1", "fd00::1"),
        ("", ""),
        (":9100", ""),
    ],
)
def test_the_port_is_taken_off(instance: str, host: str) -> None:
    assert host_of(instance) == host
