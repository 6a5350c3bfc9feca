# SPDX-License-Identifier: Apache-2.0
"""Which replicas go first (ActivePodsWithRanks in pkg/controller/controller_utils.go)."""

from __future__ import annotations

import pytest

from simulator.api import Json, condition, timestamp
from simulator.controllers.deletion_rank import deletion_cost, to_delete

NOW = 1_800_000_000.0
COST = "controller.kubernetes.io/pod-deletion-cost"


def pod(
    name: str,
    *,
    node: str = "n1",
    phase: str = "Running",
    ready_for_s: float | None = 100.0,
    age_s: float = 1000.0,
    cost: str | None = None,
    restarts: int = 0,
) -> Json:
    conditions = []
    if ready_for_s is not None:
        conditions = [condition("Ready", "True", timestamp(NOW - ready_for_s))]
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": timestamp(NOW - age_s),
            "annotations": {COST: cost} if cost is not None else {},
        },
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": [{"restartCount": restarts}],
        },
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("b", node="", phase="Pending", ready_for_s=None), pod("a")),
        (pod("b", phase="Pending", ready_for_s=None), pod("a")),
        (pod("b", ready_for_s=None), pod("a")),
        (pod("b", cost="-5"), pod("a", cost="0")),
        (pod("b", cost="1"), pod("a", cost="2")),
        (pod("b", ready_for_s=10), pod("a", ready_for_s=1000)),
        (pod("b", restarts=3), pod("a")),
        (pod("b", age_s=200), pod("a", age_s=5000)),
    ],
    ids=["unassigned", "pending", "unready", "cheap", "cheaper", "newly-ready", "fallen", "young"],
)
def test_the_less_useful_pod_goes_first(first: Json, second: Json) -> None:
    both = [second, first]
    assert to_delete(both, [], 1, NOW) == [first]


def test_a_crowded_node_gives_up_its_pods_first() -> None:
    alone, here, there = pod("a", node="n2"), pod("b"), pod("c")
    related = [alone, here, there]
    assert to_delete([alone, here, there], related, 2, NOW) == [here, there]


def test_nearly_equal_ages_are_equal_and_the_uid_decides() -> None:
    younger, older = pod("b", age_s=1010), pod("a", age_s=1020)
    assert to_delete([younger, older], [], 1, NOW) == [older]


@pytest.mark.parametrize(
    ("text", "cost"),
    [("7", 7), ("-7", -7), ("0", 0), ("+7", 0), ("007", 0), ("x", 0), ("", 0), ("--1", 0)],
)
def test_a_cost_that_is_no_number_is_none(text: str, cost: int) -> None:
    assert deletion_cost(pod("a", cost=text)) == cost
