# SPDX-License-Identifier: Apache-2.0
"""Namespaces that observe some strategies and act for others: other pods go instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.worlds.planner import PlannerWorld

LEVELING, CEILINGS = "LoadBalancing", "ResourceOptimization"
BANK = {"kubernetes.io/metadata.name": "bank"}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
TOLERANT = {"tolerations": [{"key": "team", "operator": "Exists"}]}


def world(observed: list[str], **config: Any) -> PlannerWorld:
    """Return a cluster that acts, with a bank that only observes some strategies."""
    modes = dict.fromkeys(observed, "observe")
    rules = [{"selector": BANK, "modes": modes}]
    return PlannerWorld(config={"mode": "act", "namespaces": rules, **config})


def bank_and_shop(made: PlannerWorld, node: str, bank: float, shop: float, **given: Any) -> None:
    """Add five pods of each; the bank's are the larger ones, so fewer of them would have to go."""
    for number in range(5):
        made.pod(f"ledger-{number}", node, bank, owner="ledger", namespace="bank", **given)
        made.pod(f"cart-{number}", node, shop, owner="cart", namespace="shop", **given)


@pytest.mark.parametrize(
    ("observed", "banks"),
    [([], True), ([LEVELING], True), ([CEILINGS], False), ([CEILINGS, LEVELING], False)],
)
def test_a_ceiling_takes_no_pods_of_a_namespace_that_observes_it(
    observed: list[str], banks: bool
) -> None:
    made = world(observed, enabledStrategies=[LEVELING, CEILINGS], imbalanceThreshold=100.0)
    made.node("hot")
    made.node("cool")
    bank_and_shop(made, "hot", 13.0, 4.0)
    plan = made.plan()
    assert {move.strategy for move in plan.moves} == {CEILINGS}
    assert any(move.pod.startswith("bank/") for move in plan.moves) == banks
    assert plan.unmet == ()
    assert all(move.this_cycle or move.deferred_by == "workload" for move in plan.moves)


@pytest.mark.parametrize(("observed", "banks"), [([CEILINGS], True), ([LEVELING], False)])
def test_a_spread_takes_no_pods_of_a_namespace_that_observes_it(
    observed: list[str], banks: bool
) -> None:
    made = world(observed, enabledStrategies=[LEVELING, CEILINGS])
    made.node("high")
    made.node("low")
    bank_and_shop(made, "high", 6.0, 7.0)
    plan = made.plan()
    assert {move.strategy for move in plan.moves} == {LEVELING}
    assert any(move.pod.startswith("bank/") for move in plan.moves) == banks
    assert plan.unmet == ()


def test_a_pod_that_its_node_no_longer_fits_leaves_although_others_of_its_namespace_stay() -> None:
    made = world([CEILINGS], enabledStrategies=["Violations", CEILINGS])
    made.node("hot", taints=[TAINT])
    made.node("cool")
    made.pod("strange-0", "hot", 1.0, owner="strange", namespace="bank")
    bank_and_shop(made, "hot", 13.0, 4.0, spec=TOLERANT)
    plan = made.plan()
    assert {move.strategy for move in plan.moves} == {"Violations", CEILINGS}
    assert [m.pod for m in plan.moves if m.pod.startswith("bank/")] == ["bank/strange-0"]
    assert plan.unmet == ()


@pytest.mark.parametrize("observed", [[], ["Consolidation"]])
def test_a_node_with_a_pod_that_observes_consolidation_is_not_emptied(observed: list[str]) -> None:
    config = {"enabledStrategies": ["Consolidation", CEILINGS]}
    made = world(observed, **config, consolidation={"minNodeAge": "0s"})
    made.node("small")
    made.node("large")
    made.pod("ledger-0", "small", 10.0, owner="ledger", namespace="bank")
    made.pod("cart-0", "large", 30.0, owner="cart", namespace="shop")
    plan = made.plan()
    assert plan.kept_empty == (("small",) if not observed else ("large",))
