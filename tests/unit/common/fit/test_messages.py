# SPDX-License-Identifier: Apache-2.0
"""What people read about a pod that fits nowhere, in kube-scheduler's words."""

from __future__ import annotations

from typing import Any

import msgspec

from common.cluster.records import NodeName
from common.fit import FitIndex, Question, World
from common.fit.cases import Case, candidate_of, snapshot_of
from simulator import build
from tests.support.oracles.fit_message import no_fit


def question(nodes: list[build.Manifest], pod: build.Manifest, **others: Any) -> Question:
    case = msgspec.convert({"nodes": nodes, "pod": pod, **others}, Case)
    return World(snapshot_of(case), FitIndex()).ask(candidate_of(case.pod))


def test_counts_every_reason_and_sorts_them_as_text() -> None:
    nodes = [build.node(f"small{n}", cpu="1", memory="1Gi") for n in range(10)]
    nodes += [build.node(f"closed{n}", unschedulable=True) for n in range(2)]
    asked = question(nodes, build.pod("p", cpu="2", memory="2Gi"))
    assert no_fit(asked) == (
        "0/12 nodes are available: "
        "10 Insufficient cpu, 10 Insufficient memory, 2 node(s) were unschedulable."
    )


def test_a_node_is_counted_with_the_first_plugin_that_refuses_it() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    asked = question([build.node("a", cpu="1", taints=[taint])], build.pod("p", cpu="2"))
    assert no_fit(asked) == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."


def test_a_reason_that_holds_everywhere_stands_alone() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    nodes = [build.node("a", unschedulable=True), build.node("b")]
    asked = question(nodes, build.pod("p", spec={"volumes": volumes}))
    missing = 'persistentvolumeclaim "data" not found'
    assert no_fit(asked) == f"0/2 nodes are available: {missing}."


def test_nodes_that_somebody_else_refused_are_counted_too() -> None:
    asked = question([build.node("a", unschedulable=True), build.node("b")], build.pod("p"))
    assert no_fit(asked, {NodeName("b"): "node is in maintenance"}) == (
        "0/2 nodes are available: 1 node is in maintenance, 1 node(s) were unschedulable."
    )


def test_an_empty_cluster_has_words_of_its_own() -> None:
    assert no_fit(question([], build.pod("p"))) == "no nodes available to schedule pods"
