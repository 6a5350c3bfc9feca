# SPDX-License-Identifier: Apache-2.0
"""Which nodes take part, and the reasons of those that do not."""

from __future__ import annotations

import pytest

from common.cluster.records import NodeName
from rebalancer.strategies import Participation, Refused, participation
from simulator import build
from tests.support.worlds.strategies import NOW_S, Case, Scene, evictable, load_cases, scene_of
from tests.support.worlds.wire import wire_pod

ROLES = ("source", "target", "refuge", "spread")
NOWHERE = {"nodeSelector": {"disk": "none"}}


def refused(parts: Participation, role: str) -> Refused:
    roles = {
        "source": parts.sources_refused,
        "target": parts.targets_refused,
        "refuge": parts.refuges_refused,
        "spread": parts.spread_refused,
        "first": parts.last_resorts,
    }
    return roles[role]


@pytest.mark.parametrize("case", load_cases("participation"), ids=str)
def test_a_node_takes_part_unless_a_rule_says_why_not(case: Case) -> None:
    parts = participation(scene_of(case.row).cluster(), evictable)

    roles = (*ROLES, "first") if "first" in case.row["refused"] else ROLES
    found = {role: refused(parts, role) for role in roles}
    names = {role: [r.name for r in found[role].get(NodeName("n1"), ())] for role in roles}
    words = [r.message for role in ROLES for r in found[role].get(NodeName("n1"), ())]
    assert {role: why for role, why in names.items() if why} == case.row["refused"]
    assert not words or any(case.row.get("words", "") in word for word in words)
    assert {name for role in ROLES for name in found[role]} <= {"n1"}


def test_every_node_has_the_ceiling_of_the_configuration() -> None:
    scene = Scene({"n1": {}, "n2": {"ready": False}}, config={"cpuThreshold": 70.0})

    parts = participation(scene.cluster(), evictable)

    ceilings = {name: (c.cpu_percent, c.mem_percent) for name, c in parts.ceilings.items()}
    assert ceilings == {"n1": (70.0, 80.0), "n2": (70.0, 80.0)}


@pytest.mark.parametrize(
    ("label", "pools"),
    [
        pytest.param("", {"": ("n1", "n2", "n3", "n4")}, id="without a label all are one pool"),
        pytest.param(
            "team",
            {"": ("n3",), "a": ("n1", "n4"), "b": ("n2",)},
            id="nodes without the label are a pool of their own",
        ),
        pytest.param("gone", {"": ("n1", "n2", "n3", "n4")}, id="a label that no node has"),
    ],
)
def test_nodes_with_the_same_label_are_a_pool(label: str, pools: dict[str, object]) -> None:
    nodes = {"n2": "b", "n1": "a", "n4": "a"}
    given: dict[str, dict[str, object]] = {n: {"labels": {"team": t}} for n, t in nodes.items()}
    scene = Scene({**given, "n3": {}}, config={"poolLabel": label})

    assert participation(scene.cluster(), evictable).pools == pools


def test_kinds_of_pending_pods_that_were_not_tried_are_told_of() -> None:
    pods = {f"late-{i}": {"unschedulable": True} for i in range(66)}

    parts = participation(Scene({"n1": {}}, pods).cluster(), evictable)

    assert any("2 more kinds of pending pods" in note for note in parts.notes)


def test_a_namespace_with_many_kinds_of_pending_pods_does_not_crowd_out_others() -> None:
    greedy: dict[str, dict[str, object]] = {
        f"late-{i}": {"unschedulable": True, "namespace": "greedy", "spec": NOWHERE}
        for i in range(200)
    }
    parts = participation(
        Scene({"n1": {}}, {**greedy, "zz": {"unschedulable": True}}).cluster(), evictable
    )

    assert set(parts.targets_refused) == {"n1"}


def test_replicas_that_wait_are_one_kind() -> None:
    pods = {f"late-{i}": {"unschedulable": True, "owner": "batch"} for i in range(66)}

    parts = participation(Scene({"n1": {}}, pods).cluster(), evictable)

    assert parts.notes == ()
    assert set(parts.targets_refused) == {"n1"}


def kept(scene: Scene, now_s: float) -> dict[str, list[str]]:
    """Return which nodes are no targets at a moment, and for which pods."""
    found = participation(scene.cluster(now_s=now_s), evictable).targets_refused
    return {name: [refusal.message.split()[-1] for refusal in found[name]] for name in found}


@pytest.mark.parametrize("waits", [{"unschedulable": True}, {"nominated": "n1"}])
def test_a_node_is_kept_for_pods_that_do_not_use_it_for_ten_minutes(
    waits: dict[str, object],
) -> None:
    scene = Scene({"n1": {}}, {"late": waits})
    assert [bool(kept(scene, NOW_S + after_s)) for after_s in (0, 300, 599, 600, 4000)] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_a_namespace_that_waits_too_long_takes_nothing_from_another() -> None:
    scene = Scene({"n1": {}}, {"late": {"nominated": "n1", "namespace": "greedy"}})
    assert kept(scene, NOW_S) == {"n1": ["greedy/late"]}
    assert kept(scene, NOW_S + 600) == {}
    scene.add("zz", {"nominated": "n1"})
    assert kept(scene, NOW_S + 601) == {"n1": ["default/zz"]}


def test_pods_of_a_namespace_that_take_turns_wait_as_one() -> None:
    scene = Scene({"n1": {}}, {"late-0": {"nominated": "n1"}})
    assert kept(scene, NOW_S)
    scene.drop("late-0")
    assert not kept(scene, NOW_S + 300)
    scene.add("late-1", {"nominated": "n1"})
    assert kept(scene, NOW_S + 599)
    assert not kept(scene, NOW_S + 600)
    scene.drop("late-1")
    assert not kept(scene, NOW_S + 1200)
    scene.add("late-2", {"nominated": "n1"})
    assert kept(scene, NOW_S + 1201), "they have got what they waited for"


def test_an_empty_cluster_has_nobody_to_take_part() -> None:
    parts = participation(Scene({}).cluster(), evictable)

    assert (parts.pools, parts.ceilings, parts.spread_refused) == ({}, {}, {})


@pytest.mark.parametrize(
    ("reason", "words"), [("Deferred", "waits for room"), ("Infeasible", "is not possible")]
)
def test_a_resize_that_a_node_does_not_carry_out_is_shown_and_closes_nothing(
    reason: str, words: str
) -> None:
    scene = Scene({"n1": {}, "n2": {}})
    pending = {"type": "PodResizePending", "status": "True", "reason": reason}
    made = build.pod("web", node="n1")
    scene.state.pods.upsert(wire_pod(made, status={"conditions": [pending]}))

    parts = participation(scene.cluster(), evictable)

    [found] = parts.states[NodeName("n1")]
    assert found.name == "ResizePending"
    assert words in found.message
    assert not any(refused(parts, role) for role in ROLES)
    scene.state.pods.upsert(wire_pod(made))
    assert participation(scene.cluster(), evictable).states == {}
