# SPDX-License-Identifier: Apache-2.0
"""What budgets allow one pod, and many in a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api.objects import PodDisruptionBudget
from common.cluster.disruption import MAX_DISRUPTED_PODS
from common.cluster.interning import Interner
from common.cluster.records import PodRecord, pod_record
from common.cluster.workloads import BudgetRecord, budget_record
from rebalancer.evictability import Budgets, Ledger
from simulator import build
from tests.support.worlds.wire import stamped, wire, wire_pod

SHARED = Interner()
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from("abc"),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from("xyz"), min_size=1, unique=True),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from("abc"),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)


def pod(
    name: str, labels: dict[str, str] | None = None, *, ready: bool = True, namespace: str = "shop"
) -> PodRecord:
    made = build.pod(name, namespace=namespace, node="n1", labels=labels or {"app": "web"})
    status: dict[str, Any] | None = None if ready else {"conditions": []}
    return pod_record(wire_pod(made, status=status), SHARED)


def budget(
    name: str = "web",
    *,
    allowed: int = 0,
    healthy: int = 3,
    desired: int = 2,
    expected: int = 3,
    expressions: Sequence[object] | None = None,
    namespace: str = "shop",
) -> BudgetRecord:
    made = build.pdb(name, match={"app": "web"}, namespace=namespace, min_available=desired)
    if expressions is not None:
        made["spec"]["selector"] = {"matchExpressions": list(expressions)}
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    return budget_record(wire(PodDisruptionBudget, stamped({**made, "status": status})), SHARED)


@given(labels=LABELS, selectors=st.lists(st.lists(EXPRESSIONS, max_size=3), max_size=6))
def test_the_budgets_of_a_pod_are_those_whose_selector_matches(
    labels: dict[str, str], selectors: list[list[object]]
) -> None:
    made = [budget(f"b{n}", expressions=each) for n, each in enumerate(selectors)]
    elsewhere = budget("far", expressions=[], namespace="other")
    found = Budgets([*reversed(made), elsewhere]).matching(pod("p", labels))
    assert found == tuple(b for b in made if b.selector.matches(pod("p", labels).labels))


def test_equal_labels_in_another_namespace_are_other_pods() -> None:
    budgets = Budgets([budget()])
    here, there = pod("p"), pod("p", namespace="other")
    assert here.labels is there.labels
    assert [len(budgets.matching(each)) for each in (here, there, here)] == [1, 0, 1]


def test_what_one_pod_took_the_next_does_not_get() -> None:
    ledger = Ledger(Budgets([budget(allowed=1)]))
    assert ledger.take(pod("a")) is None
    refused = ledger.take(pod("b"))
    assert refused is not None
    assert refused.name == "PdbExhausted"
    assert refused.message == (
        "PDB web allows 0 more disruptions: 3 of 3 pods healthy, 2 needed, 1 spent by this plan"
    )
    assert not refused.permanent


def test_what_is_given_back_can_be_taken_again() -> None:
    ledger = Ledger(Budgets([budget(allowed=1)]))
    assert ledger.take(pod("a")) is None
    ledger.give_back(pod("a"))
    assert ledger.take(pod("b")) is None


def test_a_pod_is_charged_once_and_gives_back_once() -> None:
    ledger = Ledger(Budgets([budget(allowed=2)]))
    assert [ledger.take(pod("a")), ledger.take(pod("a")), ledger.take(pod("b"))] == [None] * 3
    for _ in range(2):
        ledger.give_back(pod("a"))
    assert ledger.take(pod("c")) is None
    assert ledger.take(pod("d")) is not None


def test_a_refused_pod_is_not_charged() -> None:
    ledger = Ledger(Budgets([budget(allowed=1)]))
    assert ledger.take(pod("a")) is None
    assert ledger.take(pod("b")) is not None
    ledger.give_back(pod("b"))
    assert ledger.take(pod("b")) is not None


def test_a_pod_that_is_not_ready_passes_until_the_plan_disturbs_the_workload() -> None:
    """Three healthy, two needed: after one of them left there is no room for the sick one."""
    ledger = Ledger(Budgets([budget(allowed=1, healthy=3, desired=3, expected=4)]))
    sick = pod("sick", ready=False)
    assert ledger.take(sick) is None
    ledger.give_back(sick)
    assert ledger.take(pod("a")) is None
    assert ledger.take(sick) is not None


def test_a_pod_without_a_budget_costs_nothing() -> None:
    ledger = Ledger(Budgets([]))
    assert [ledger.take(pod(name)) for name in "abc"] == [None] * 3
    ledger.give_back(pod("a"))


@pytest.mark.parametrize(("unconfirmed", "refused"), [(0, False), (1, True)])
def test_too_many_unconfirmed_evictions_let_none_through(unconfirmed: int, refused: bool) -> None:
    names = frozenset(f"p{n}" for n in range(MAX_DISRUPTED_PODS + unconfirmed))
    crowded = msgspec.structs.replace(budget(allowed=1), disrupted=names)
    found = Budgets([crowded]).refusal(pod("a"))
    assert (found is not None) is refused
    assert found is None or (found.name, found.permanent) == ("PdbUnsettled", False)


@given(
    allowed=st.integers(0, 4),
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=30),
)
def test_no_order_of_taking_and_giving_back_overspends(
    allowed: int, steps: list[tuple[bool, int]]
) -> None:
    pods = [pod(f"p{n}") for n in range(8)]
    ledger, holding = Ledger(Budgets([budget(allowed=allowed, healthy=8, expected=8)])), set()
    for take, number in steps:
        if not take:
            ledger.give_back(pods[number])
            holding.discard(number)
            continue
        room = number in holding or len(holding) < allowed
        assert (ledger.take(pods[number]) is None) is room
        holding |= {number} if room else set()
