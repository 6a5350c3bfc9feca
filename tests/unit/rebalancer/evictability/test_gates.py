# SPDX-License-Identifier: Apache-2.0
"""Every gate by name: passing and failing, alone and together, for load and for maintenance."""

from __future__ import annotations

from functools import cache

import pytest

from common.api.migrations import Purpose
from common.cluster.records import PodRecord
from rebalancer import evictability
from rebalancer.evictability import GATES, Context, Gate, judge
from tests.support.worlds.evictability import EvictCase, EvictWorld, load_cases

CASES = {str(case): case for case in load_cases()}


@cache
def look(name: str) -> tuple[PodRecord, Context]:
    world = CASES[name].world()
    return world.pod, world.context()


def told(name: str, purpose: Purpose = Purpose.LOAD) -> list[str]:
    pod, context = look(name)
    return [reason.name for reason in judge(pod, context.for_purpose(purpose))]


def names_of(gate: Gate) -> set[str]:
    """Return the reasons that a gate gives anywhere in the tables."""
    answers = [gate(*look(name)) for name in CASES]
    return {answer.name for answer in answers if answer is not None}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_reasons_against_a_load_move(case: EvictCase) -> None:
    found = judge(*look(str(case)))
    assert {reason.name: reason.message for reason in found} == case.words
    assert {reason.name for reason in found if reason.permanent} == case.for_good


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_the_reasons_against_emptying_the_node(case: EvictCase) -> None:
    assert set(told(str(case), Purpose.MAINTENANCE)) == case.maintenance


def test_one_look_serves_both_purposes() -> None:
    pod, context = look("timing: a young pod settles first, unless its node is emptied")
    other = context.for_purpose(Purpose.MAINTENANCE)
    assert other.budgets is context.budgets
    assert [len(judge(pod, each)) for each in (context, other)] == [1, 0]


@pytest.mark.parametrize("purpose", Purpose)
def test_replicas_that_share_a_judgement_would_each_get_the_same(purpose: Purpose) -> None:
    for name in CASES:
        context = look(name)[1].for_purpose(purpose)
        for pod in context.snapshot.pods.values():
            each = [found for gate in GATES if (found := gate(pod, context)) is not None]
            assert list(judge(pod, context)) == each


def test_alike_pods_of_different_namespaces_are_judged_apart() -> None:
    (case,) = (c for c in CASES.values() if "kube-system is excluded" in str(c))
    world = EvictWorld({**case.row, "others": {"web-a": {"namespace": "shop"}}})
    context = world.context()
    pods = context.snapshot.pods_by_name
    found = [bool(judge(pods[f"{name}/web-a"], context)) for name in ("kube-system", "shop")]
    assert found == [True, False]


def test_alike_pods_with_and_without_an_owner_are_judged_apart() -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u-x"}
    row = {"workload": {"kind": "none"}, "others": {"web-b": {"owners": [owner]}}}
    context = EvictWorld(row).context()
    pods = context.snapshot.pods_by_name
    found = [judge(pods[f"default/{name}"], context)[0].name for name in ("web-a", "web-b")]
    assert found == ["BarePod", "OwnerWithoutControl"]


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.__name__)
def test_no_gate_can_be_taken_out_unnoticed(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {name: told(name) for name in CASES}
    for registry in ("TEMPLATE_GATES", "POD_GATES"):
        others = tuple(g for g in getattr(evictability, registry) if g is not gate)
        monkeypatch.setattr(evictability, registry, others)
    assert {name: told(name) for name in CASES} != whole


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.__name__)
def test_every_gate_refuses_some_pod_for_one_reason_alone(gate: Gate) -> None:
    alone = [case for case in CASES.values() if list(case.words) in ([n] for n in names_of(gate))]
    assert alone


def test_reasons_come_in_the_order_of_the_gates() -> None:
    place = {name: number for number, gate in enumerate(GATES) for name in names_of(gate)}
    for name in CASES:
        found = [place[reason] for reason in told(name)]
        assert found == sorted(found)


def test_no_two_gates_share_a_reason() -> None:
    names = [name for gate in GATES for name in names_of(gate)]
    assert len(names) == len(set(names))
