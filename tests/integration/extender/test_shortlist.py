# SPDX-License-Identifier: Apache-2.0
"""Shortlists through the running service: who gets one, what is on it, what it never hides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from extender.rules import OVERLOADED, ROOM_RESERVED, UNDER_MAINTENANCE
from extender.siblings import REMEMBER_S
from tests.support.stands.shortlist import (
    ZONES,
    Json,
    ShortlistWorld,
    asking,
    new_pod,
    not_scheduled,
)

SIZE = 50
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
MIB = 1 << 20
IMAGE = "registry.invalid/app:1"
"""The image of every pod here."""

NODE_TERM = {
    "weight": 1,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
}

EPHEMERAL = {
    "name": "scratch",
    "ephemeral": {
        "volumeClaimTemplate": {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
    },
}


def pod_term(**more: Any) -> Json:
    return {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "new"}},
        **more,
    }


def weighted(**more: Any) -> Json:
    return {"weight": 1, "podAffinityTerm": pod_term(**more)}


def spread(when: str) -> Json:
    selector = {"matchLabels": {"app": "new"}}
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": when,
        "labelSelector": selector,
    }


def taint(key: str = "flaky") -> Json:
    return {"key": key, "value": "yes", "effect": "PreferNoSchedule"}


def tolerate(**more: Any) -> Json:
    return {"tolerations": [{"key": "flaky", "operator": "Exists", **more}]}


Prepare = Callable[[ShortlistWorld], None]


def nothing(_: ShortlistWorld) -> None:
    pass


def tainted(*keys: str) -> Prepare:
    return lambda world: world.node(world.names[-1], taints=[taint(key) for key in keys])


def neighbor(namespace: str = "default", node: str = "n150", **affinity: Any) -> Prepare:
    """Return a world in which a pod on a node has these affinity terms."""
    return lambda world: world.place(
        "neighbor", node, namespace=namespace, spec={"affinity": affinity}
    )


def pulled(**more: Any) -> Json:
    return {PREFERRED: [weighted(**more)]}


def gone(prepare: Prepare) -> Prepare:
    def prepared(world: ShortlistWorld) -> None:
        prepare(world)
        world.state.pods.forget("default/neighbor")

    return prepared


def image(size: int, nodes: slice, name: str = IMAGE) -> Prepare:
    def prepared(world: ShortlistWorld) -> None:
        for node in world.names[nodes]:
            world.node(node, images={name: size})

    return prepared


CASES: dict[str, tuple[Prepare, Json, str]] = {
    # own preferences
    "a plain pod": (nothing, {}, "given"),
    "preferred node affinity": (
        nothing,
        {"affinity": {"nodeAffinity": {PREFERRED: [NODE_TERM]}}},
        "own_preferences",
    ),
    "required node affinity": (
        nothing,
        {
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [NODE_TERM["preference"]]}}
            }
        },
        "given",
    ),
    "preferred pod affinity": (
        nothing,
        {"affinity": {"podAffinity": pulled()}},
        "own_preferences",
    ),
    "preferred pod anti-affinity": (
        nothing,
        {"affinity": {"podAntiAffinity": pulled()}},
        "own_preferences",
    ),
    "required pod anti-affinity": (
        nothing,
        {"affinity": {"podAntiAffinity": {REQUIRED: [pod_term()]}}},
        "given",
    ),
    "soft spread": (
        nothing,
        {"topologySpreadConstraints": [spread("DoNotSchedule"), spread("ScheduleAnyway")]},
        "own_preferences",
    ),
    "hard spread": (nothing, {"topologySpreadConstraints": [spread("DoNotSchedule")]}, "given"),
    "resource claims": (nothing, {"resourceClaims": [{"name": "gpu"}]}, "devices"),
    "a volume claim": (
        nothing,
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
        "volume_claims",
    ),
    "a claim of its own": (nothing, {"volumes": [EPHEMERAL]}, "volume_claims"),
    "volumes without a claim": (
        nothing,
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "b"}}]},
        "given",
    ),
    "a pod group": (nothing, {"schedulingGroup": {"podGroupName": "gang"}}, "pod_group"),
    # taints
    "a soft taint": (tainted("flaky"), {}, "soft_taints"),
    "a soft taint that is tolerated": (tainted("flaky"), tolerate(), "given"),
    "a soft taint that is tolerated by its effect": (
        tainted("flaky"),
        tolerate(effect="PreferNoSchedule"),
        "given",
    ),
    "a soft taint whose hard form is tolerated": (
        tainted("flaky"),
        tolerate(effect="NoSchedule"),
        "soft_taints",
    ),
    "one of two soft taints is tolerated": (tainted("flaky", "old"), tolerate(), "soft_taints"),
    # other pods
    "pulled by another pod": (neighbor(podAffinity=pulled()), {}, "others_preferences"),
    "pushed by another pod": (neighbor(podAntiAffinity=pulled()), {}, "others_preferences"),
    "pulled by the requirement of another pod": (
        neighbor(podAffinity={REQUIRED: [pod_term()]}),
        {},
        "others_preferences",
    ),
    "refused by another pod": (neighbor(podAntiAffinity={REQUIRED: [pod_term()]}), {}, "given"),
    "another pod wants other pods": (
        neighbor(podAffinity=pulled(labelSelector={"matchLabels": {"app": "other"}})),
        {},
        "given",
    ),
    "another pod wants pods of its own namespace": (
        neighbor("elsewhere", podAffinity=pulled()),
        {},
        "given",
    ),
    "another pod names this namespace": (
        neighbor("elsewhere", podAffinity=pulled(namespaces=["default"])),
        {},
        "others_preferences",
    ),
    "another pod selects namespaces": (
        neighbor("elsewhere", podAffinity=pulled(namespaceSelector={})),
        {},
        "others_preferences",
    ),
    "the other pod has no node": (neighbor(node="", podAffinity=pulled()), {}, "given"),
    "the other pod is gone": (gone(neighbor(podAffinity=pulled())), {}, "given"),
    # images
    "half of the nodes have the image": (image(500 * MIB, slice(0, 100)), {}, "images"),
    "all nodes have the image": (image(500 * MIB, slice(None)), {}, "given"),
    "some nodes have another image": (
        image(500 * MIB, slice(0, 100), "registry.invalid/other:1"),
        {},
        "given",
    ),
    "the image is too small to count": (image(20 * MIB, slice(0, 100)), {}, "given"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_who_gets_a_shortlist(case: tuple[Prepare, Json, str]) -> None:
    prepare, spec, result = case
    world = ShortlistWorld()
    prepare(world)
    world.refresh()
    async with asking(world) as scheduler:
        kept = await scheduler.filter(new_pod(spec=spec), world.names)
        assert scheduler.count(result) == 1
        assert (kept == world.names) is (result != "given")
        assert len(kept) >= SIZE


async def test_an_image_without_a_tag_is_the_latest() -> None:
    world = ShortlistWorld()
    image(500 * MIB, slice(0, 100), "registry.invalid/app:latest")(world)
    pod = new_pod()
    pod["spec"]["containers"][0]["image"] = "registry.invalid/app"
    async with asking(world) as scheduler:
        assert await scheduler.filter(pod, world.names) == world.names


@pytest.mark.parametrize(
    ("configured", "nodes", "expected", "result"),
    [
        ("auto", 50, 50, "few_nodes"),
        ("auto", 51, 50, "given"),
        ("auto", 400, 50, "given"),
        ("auto", 1_100, 55, "given"),
        (7, 200, 7, "given"),
        (1, 200, 1, "given"),
        (500, 200, 200, "few_nodes"),
        ("off", 200, 200, "turned_off"),
    ],
)
async def test_how_long_a_shortlist_is(
    configured: str | int, nodes: int, expected: int, result: str
) -> None:
    world = ShortlistWorld(nodes, shortlist=configured)
    async with asking(world) as scheduler:
        kept = await scheduler.filter(new_pod(), world.names)
        assert len(kept) == expected
        assert scheduler.count(result) == 1


async def test_the_coolest_of_every_zone_are_on_it_in_the_order_of_the_request() -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        names = world.names[::-1]
        kept = await scheduler.filter(new_pod(), names)
    assert kept == [name for name in names if name in kept]
    zones = Counter(ZONES[world.names.index(name) % len(ZONES)] for name in kept)
    assert set(zones.values()) <= {16, 17}
    assert set(kept) <= set(world.names[:54])


async def test_a_small_zone_is_not_left_out() -> None:
    world = ShortlistWorld()
    world.node("n199", zone="d")
    world.refresh()
    async with asking(world) as scheduler:
        assert "n199" in await scheduler.filter(new_pod(), world.names)


async def test_nodes_that_are_left_out_are_not_named() -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        found = await scheduler.answer(new_pod(), world.names)
        assert (found["FailedNodes"], found["FailedAndUnresolvableNodes"]) == ({}, {})
        assert found["Error"] == ""


async def test_whole_nodes_are_shortened_too() -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        kept = await scheduler.filter_nodes(new_pod(), world.names)
        assert len(kept) == SIZE


async def test_load_counts_as_it_will_be_once_the_pod_has_landed() -> None:
    """A pod of 60 % overloads a small idle node, and not a large one that is used to 20 %."""
    world = ShortlistWorld(shortlist=1)
    world.node("large", extended={"cpu": "40", "memory": "40000Mi"})
    world.busy("large", 60.0)
    world.measure()
    async with asking(world) as scheduler:
        names = [*world.names, "large"]
        small = await scheduler.filter(new_pod("small", cpu="100m"), names)
        big = await scheduler.filter(new_pod("big", cpu="6", memory="1Gi"), names)
    assert small == ["n000"]
    assert big == ["large"]


async def test_nodes_without_a_sibling_are_on_it() -> None:
    world = ShortlistWorld()
    for number in range(60):
        world.place(f"web-{number}", world.names[number], owner="web")
    world.measure()
    async with asking(world) as scheduler:
        kept = await scheduler.filter(new_pod(owner="web"), world.names)
        alone = [name for name in kept if name >= "n060"]
        assert len(kept) - len(alone) == SIZE
        assert Counter(ZONES[int(name[1:]) % 3] for name in alone).keys() == set(ZONES)
        assert set(alone) <= set(world.names[60:80])
        other = await scheduler.filter(new_pod("other", owner="api"), world.names)
        assert len(other) == SIZE


async def test_siblings_are_counted_as_they_come_and_go() -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        assert len(await scheduler.filter(new_pod("p0", owner="web"), world.names)) == SIZE
        for number in range(60):
            world.place(f"web-{number}", world.names[number], owner="web")
        assert len(await scheduler.filter(new_pod("p1", owner="web"), world.names)) > SIZE
        for number in range(60):
            world.state.pods.forget(f"default/web-{number}")
        assert len(await scheduler.filter(new_pod("p2", owner="web"), world.names)) == SIZE


async def test_where_every_node_has_a_sibling_those_with_the_fewest_are_on_it() -> None:
    world = ShortlistWorld()
    for number, name in enumerate(world.names):
        for copy in range(1 if number >= 190 else 2):
            world.place(f"web-{number}-{copy}", name, owner="web")
    world.measure()
    async with asking(world) as scheduler:
        kept = await scheduler.filter(new_pod(owner="web"), world.names)
        assert set(world.names[190:]) <= set(kept)


async def test_the_nominated_node_is_never_hidden() -> None:
    world = ShortlistWorld()
    status = {"phase": "Pending", "nominatedNodeName": "n199"}
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(status=status), ["n199"]) == ["n199"]
        kept = await scheduler.filter(new_pod(status=status), world.names)
        assert "n199" in kept
        assert len(kept) == SIZE + 1


@pytest.mark.parametrize("offered", [slice(None), slice(0, 199), slice(0, 198)])
async def test_planned_nodes_are_never_hidden(offered: slice) -> None:
    world = ShortlistWorld()
    world.migration("m", owner="web", source="n000", target="n199", alternatives=("n198",))
    async with asking(world) as scheduler:
        names = world.names[offered]
        kept = await scheduler.filter(new_pod(owner="web"), names)
        assert kept == (names[1:] if names[-1] == "n197" else [names[-1]])


async def test_before_plans_are_known_no_node_is_hidden() -> None:
    world = ShortlistWorld()
    world.intents._live = False  # what `begin` changes, and nothing else does
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(owner="web"), world.names) == world.names
        assert scheduler.count("directed") == 1


async def test_without_the_migration_crd_there_are_shortlists() -> None:
    world = ShortlistWorld()
    world.intents._live, world.intents._absent = False, lambda: True
    async with asking(world) as scheduler:
        assert len(await scheduler.filter(new_pod(owner="web"), world.names)) == SIZE


async def test_unknown_nodes_are_neither_hidden_nor_preferred() -> None:
    world = ShortlistWorld()
    unknown = world.names[::10]
    names = [*world.names, "stranger"]
    world.world.pass_time(100.0)
    world.measure(only=[name for name in world.names if name not in unknown])
    world.world.pass_time(100.0)
    world.refresh()
    pod = new_pod()
    async with asking(world) as scheduler:
        kept = await scheduler.filter(pod, names)
        scores = await scheduler.scores(pod, kept)
        whole = await scheduler.scores(new_pod("other"), names)
    assert len(kept) == SIZE + len(unknown) + 1
    assert {*unknown, "stranger"} <= set(kept)
    assert {scores[name] for name in (*unknown, "stranger")} == {whole["stranger"]}
    assert max(scores.values()) > whole["stranger"]


async def test_without_fresh_metrics_there_is_none() -> None:
    world = ShortlistWorld()
    world.world.pass_time(181.0)
    world.refresh()
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(), world.names) == world.names
        assert scheduler.count("load_unknown") == 1


async def test_an_outdated_board_makes_none() -> None:
    world = ShortlistWorld()
    await world.clock.advance(181.0)
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(), world.names) == world.names


async def test_before_the_cluster_is_known_there_is_none() -> None:
    world = ShortlistWorld()
    world.ready = False
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(), world.names) == world.names


async def test_only_the_first_call_with_several_nodes_gets_one() -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(), ["n199"]) == ["n199"]
        assert len(await scheduler.filter(new_pod(), world.names)) == SIZE
        for _ in range(3):
            assert await scheduler.filter(new_pod(), world.names) == world.names
        assert len(await scheduler.filter(new_pod("second"), world.names)) == SIZE


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", ""])
async def test_a_pod_that_another_replica_has_tried_gets_all_nodes(reason: str) -> None:
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        pod = new_pod(status=not_scheduled(reason))
        assert await scheduler.filter(pod, world.names) == world.names
        assert scheduler.count("tried_before") == 1


async def test_a_pod_whose_gates_are_gone_was_not_tried() -> None:
    world = ShortlistWorld()
    pod = new_pod(status=not_scheduled("SchedulingGated"))
    async with asking(world) as scheduler:
        assert len(await scheduler.filter(pod, world.names)) == SIZE
        assert await scheduler.preempt(pod, ["n001"]) == []
        assert await scheduler.filter(pod, world.names) == world.names


async def test_the_condition_in_the_watch_counts_too() -> None:
    world = ShortlistWorld()
    world.place("new", "", status=not_scheduled())
    async with asking(world) as scheduler:
        assert await scheduler.filter(new_pod(), world.names) == world.names


PENDING = {"phase": "Pending"}
STARTED = {"containerStatuses": [{"name": "app", "state": {"waiting": {}}}]}


@pytest.mark.parametrize(
    ("node", "more", "result"),
    [
        ("n000", {"status": PENDING}, "sibling_rejected"),
        ("n000", {"status": {**PENDING, **STARTED}}, "given"),
        ("n000", {"status": PENDING, "deleted": True}, "given"),
        ("n000", {}, "given"),
        ("", {}, "given"),
    ],
    ids=["rejected", "admitted", "deleted", "running", "without a node"],
)
async def test_after_a_kubelet_has_rejected_a_pod_the_next_one_gets_all_nodes(
    node: str, more: Json, result: str
) -> None:
    """Finished pods are not watched: one that is rejected leaves the watch as it was bound."""
    world = ShortlistWorld()
    async with asking(world) as scheduler:
        world.place("web-0", node, owner="web", **more)
        world.state.pods.forget("default/web-0")
        await scheduler.filter(new_pod("web-1", owner="web"), world.names)
        assert scheduler.count(result) == 1
        assert len(await scheduler.filter(new_pod("api-0", owner="api"), world.names)) == SIZE
        await world.clock.advance(REMEMBER_S)
        world.measure()
        assert len(await scheduler.filter(new_pod("web-2", owner="web"), world.names)) == SIZE


async def test_a_shortlist_that_hides_nothing_is_none() -> None:
    """Fifty known nodes are all on it, and the unknown ones too."""
    world = ShortlistWorld(50)
    names = [*world.names, "stranger"]
    pod = new_pod()
    async with asking(world) as scheduler:
        assert await scheduler.filter(pod, names) == names
        assert scheduler.count("few_nodes") == 1
        assert await scheduler.preempt(pod, ["n001"]) == ["n001"]


async def test_a_pod_without_a_uid_gets_all_nodes() -> None:
    world = ShortlistWorld()
    pod = new_pod()
    del pod["metadata"]["uid"]
    async with asking(world) as scheduler:
        assert await scheduler.filter(pod, world.names) == world.names


async def test_nothing_is_preempted_for_a_pod_with_a_shortlist() -> None:
    world = ShortlistWorld()
    pod = new_pod()
    async with asking(world) as scheduler:
        assert await scheduler.preempt(pod, ["n001", "n199"]) == ["n001", "n199"]
        assert len(await scheduler.filter(pod, world.names)) == SIZE
        assert await scheduler.preempt(pod, ["n001", "n199"]) == []
        tried = new_pod(status=not_scheduled())
        assert await scheduler.preempt(tried, ["n001", "n199"]) == ["n001", "n199"]
        assert await scheduler.filter(pod, world.names) == world.names
        assert await scheduler.preempt(pod, ["n001", "n199"]) == ["n001", "n199"]


async def test_maintenance_stays_refused() -> None:
    world = ShortlistWorld()
    world.node("n000", zone="a", maintenance="true")
    async with asking(world) as scheduler:
        found = await scheduler.answer(new_pod(), world.names)
        assert found["FailedAndUnresolvableNodes"] == {"n000": UNDER_MAINTENANCE}
        assert len(found["NodeNames"]) == SIZE
        assert "n000" not in found["NodeNames"]


async def test_reserved_room_stays_reserved() -> None:
    world = ShortlistWorld()
    world.migration("m", owner="web", source="n199", target="n000", asked=95)
    async with asking(world) as scheduler:
        found = await scheduler.answer(new_pod(cpu="1"), world.names)
        assert found["FailedAndUnresolvableNodes"] == {"n000": ROOM_RESERVED}
        assert len(found["NodeNames"]) == SIZE


async def test_overloaded_nodes_stay_refused() -> None:
    world = ShortlistWorld(overloaded="filter")
    async with asking(world) as scheduler:
        pod = new_pod(cpu="6")
        found = await scheduler.answer(pod, world.names)
        refused = found["FailedAndUnresolvableNodes"]
        assert set(refused.values()) == {OVERLOADED}
        assert len(found["NodeNames"]) == SIZE
        assert not set(refused) & set(found["NodeNames"])
