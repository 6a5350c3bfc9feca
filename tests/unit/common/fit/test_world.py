# SPDX-License-Identifier: Apache-2.0
"""What-ifs: pods that come, end and go, and a planner that looks at many of them in turn."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.fit import Arrive, Candidate, FitIndex, Leave, Terminate, World
from simulator import build
from tests.support.worlds.wire import wire_node, wire_pod

PORT = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]
        }
    }
}
EVEN = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


class Stage:
    """A cluster of a few nodes, and the worlds that follow from it."""

    def __init__(self, *names: str, cpu: str = "2") -> None:
        self.state = ClusterState()
        self.index = FitIndex()
        for name in names:
            self.state.nodes.upsert(wire_node(build.node(name, cpu=cpu)))

    def run(self, name: str, node: str | None = None, **arguments: Any) -> PodUid:
        """Put a pod on a node; return its uid."""
        pod = wire_pod(_manifest(name, node=node, **arguments))
        self.state.pods.upsert(pod)
        return PodUid(pod.metadata.uid)

    def candidate(self, name: str = "new", **arguments: Any) -> Candidate:
        """Return a pod that looks for a node."""
        elsewhere = Stage()
        uid = elsewhere.run(name, **arguments)
        return Candidate.of(elsewhere.state.snapshot().pods[uid])

    @property
    def world(self) -> World:
        return World(self.state.snapshot(), self.index)


def _manifest(name: str, **arguments: Any) -> build.Manifest:
    container = arguments.pop("container", {})
    manifest = build.pod(name, labels={"app": "web"}, **arguments)
    manifest["spec"]["containers"][0].update(container)
    return manifest


@pytest.mark.parametrize(
    "holding",
    [{"cpu": "1500m"}, {"container": PORT}, {"spec": APART}],
    ids=["requests", "ports", "anti-affinity"],
)
def test_a_terminating_pod_holds_what_it_has_until_it_is_gone(holding: dict[str, Any]) -> None:
    stage = Stage("a", "b")
    old = stage.run("old", "a", **holding)
    new = stage.candidate(**holding)
    assert stage.world.feasible(new) == ("b",)
    assert stage.world.after(Terminate(old)).feasible(new) == ("b",)
    assert stage.world.after(Terminate(old), Leave(old)).feasible(new) == ("a", "b")
    assert stage.world.after(Leave(old)).feasible(new) == ("a", "b")


def test_a_terminating_pod_is_not_spread_any_more() -> None:
    stage = Stage("a", "b")
    old = stage.run("old", "a")
    new = stage.candidate(spec=EVEN)
    assert stage.world.feasible(new) == ("b",)
    assert stage.world.after(Terminate(old)).feasible(new) == ("a", "b")
    assert stage.world.after(Terminate(old), Terminate(old)).feasible(new) == ("a", "b")


@pytest.mark.parametrize(
    "holding",
    [{"cpu": "1500m"}, {"container": PORT}, {"spec": APART}, {"spec": EVEN}],
    ids=["requests", "ports", "anti-affinity", "spread"],
)
def test_a_pod_that_arrives_takes_its_place(holding: dict[str, Any]) -> None:
    stage = Stage("a", "b")
    first, second = (stage.candidate(name, **holding) for name in ("first", "second"))
    assert stage.world.feasible(second) == ("a", "b")
    assert stage.world.after(Arrive(first, NodeName("a"))).feasible(second) == ("b",)


def test_a_pod_that_arrived_may_end_and_leave_again() -> None:
    stage = Stage("a")
    first, second = stage.candidate("first", cpu="2"), stage.candidate("second", cpu="2")
    arrived = stage.world.after(Arrive(first, NodeName("a")))
    assert arrived.feasible(second) == ()
    assert arrived.after(Terminate(first.uid)).feasible(second) == ()
    assert arrived.after(Terminate(first.uid), Leave(first.uid)).feasible(second) == ("a",)


def test_worlds_do_not_disturb_each_other() -> None:
    stage = Stage("a", "b")
    old = stage.run("old", "a", cpu="2")
    new = stage.candidate(cpu="2")
    before, after = stage.world, stage.world.after(Leave(old))
    question = before.ask(new)
    assert question.feasible() == ("b",)
    assert after.feasible(new) == ("a", "b")
    assert question.feasible() == ("b",)
    assert [r.message for r in question.rejections(NodeName("a"))] == ["Insufficient cpu"]


@pytest.mark.parametrize("place", [0, 255, 256, 257, 599])
def test_worlds_with_long_histories_are_told_apart(place: int) -> None:
    stage = Stage("a", "b")
    small, large = stage.candidate("small", cpu="1m"), stage.candidate("large", cpu="2")
    history = [
        Arrive(msgspec.structs.replace(small, uid=PodUid(f"s-{number}")), NodeName("b"))
        for number in range(600)
    ]
    another = [*history[:place], Arrive(large, NodeName("a")), *history[place + 1 :]]
    one, other = (stage.world.after(*changes) for changes in (history, another))
    new = stage.candidate(cpu="2")
    for _ in range(2):
        assert one.feasible(new) == ("a",)
        assert other.feasible(new) == ()
    assert other.after(Leave(large.uid)).feasible(new) == ("a",)
    assert stage.world.feasible(new) == ("a", "b")


def test_an_old_world_stays_what_it_was_when_the_cluster_goes_on() -> None:
    stage = Stage("a", "b")
    new = stage.candidate(cpu="2")
    before = stage.world
    question = before.ask(new)
    assert question.feasible() == ("a", "b")
    stage.run("later", "a", cpu="1")
    assert stage.world.feasible(new) == ("b",)
    assert question.feasible() == ("a", "b")


def test_nodes_come_and_go_and_their_rows_are_used_again() -> None:
    stage = Stage("a")
    new = stage.candidate(cpu="2")
    stage.run("old", "a", cpu="2", container=PORT)
    assert stage.world.feasible(new) == ()
    stage.state.nodes.forget("a")
    stage.state.nodes.upsert(wire_node(build.node("b", cpu="2")))
    assert stage.world.feasible(new) == ("b",)
    assert stage.world.feasible(stage.candidate(container=PORT)) == ("b",)


def test_more_nodes_than_there_were_rows() -> None:
    stage = Stage("n000")
    new = stage.candidate(spec={"nodeSelector": {"disk": "ssd"}})
    assert stage.world.feasible(new) == ()
    for number in range(1, 300):
        disk = {"disk": "ssd" if number % 3 else "hdd"}
        stage.state.nodes.upsert(wire_node(build.node(f"n{number:03}", labels=disk)))
    assert stage.world.feasible(new) == tuple(f"n{n:03}" for n in range(1, 300) if n % 3)


def test_a_pending_pod_that_arrives_somewhere_is_nominated_no_more() -> None:
    stage = Stage("a", "b")
    promised = wire_pod(_manifest("waiting", cpu="2"), status={"nominatedNodeName": "a"})
    stage.state.pods.upsert(promised)
    uid = PodUid(promised.metadata.uid)
    waiting = Candidate.of(stage.state.snapshot().pods[uid])
    new = stage.candidate(cpu="2")
    assert stage.world.feasible(new) == ("b",)
    assert stage.world.after(Arrive(waiting, NodeName("b"))).feasible(new) == ("a",)
    assert stage.world.after(Leave(uid)).feasible(new) == ("a", "b")


def test_a_node_that_changes_its_mind_is_judged_anew() -> None:
    stage = Stage("a")
    new = stage.candidate()
    assert stage.world.feasible(new) == ("a",)
    stage.state.nodes.upsert(wire_node(build.node("a", unschedulable=True)))
    assert stage.world.feasible(new) == ()
    tainted = build.node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    stage.state.nodes.upsert(wire_node(tainted))
    assert stage.world.feasible(new) == ()
    stage.state.nodes.upsert(wire_node(build.node("a")))
    assert stage.world.feasible(new) == ("a",)


def test_a_pod_of_a_node_that_we_do_not_know_is_nowhere() -> None:
    stage = Stage("a")
    lost = stage.run("lost", "gone", cpu="2")
    assert stage.world.after(Leave(lost)).feasible(stage.candidate(cpu="2")) == ("a",)


@pytest.mark.parametrize("change", [Leave(PodUid("nobody")), Terminate(PodUid("nobody"))])
def test_a_stranger_cannot_leave(change: Leave | Terminate) -> None:
    stage = Stage("a")
    new = stage.candidate()
    with pytest.raises(KeyError):
        stage.world.after(change).feasible(new)
    assert stage.world.feasible(new) == ("a",)


def test_no_pod_arrives_at_a_node_that_is_not_there() -> None:
    stage = Stage("a")
    new = stage.candidate(cpu="2")
    with pytest.raises(KeyError):
        stage.world.after(Arrive(new, NodeName("a")), Arrive(new, NodeName("b"))).feasible(new)
    assert stage.world.feasible(msgspec.structs.replace(new, name="other")) == ("a",)


def test_taints_that_never_come_back_are_forgotten() -> None:
    stage = Stage("a", "b")
    new = stage.candidate()
    for number in range(300):
        # Autoscalers write the time into the taint.
        taint = {"key": "ToBeDeleted", "value": str(number), "effect": "NoSchedule"}
        stage.state.nodes.upsert(wire_node(build.node("a", taints=[taint])))
        assert stage.world.feasible(new) == ("b",)
    stage.state.nodes.upsert(wire_node(build.node("a")))
    assert stage.world.feasible(new) == ("a", "b")


def test_refusals_name_the_plugin_and_whether_others_leaving_would_help() -> None:
    stage = Stage("a", cpu="1")
    stage.run("old", "a", cpu="1")
    fitting, never = stage.candidate(cpu="1"), stage.candidate(cpu="2")
    (resolvable,) = stage.world.rejections(fitting, NodeName("a"))
    (hopeless,) = stage.world.rejections(never, NodeName("a"))
    assert (resolvable.plugin, resolvable.name) == ("NodeResourcesFit", "InsufficientCpu")
    assert (resolvable.resolvable, hopeless.resolvable) == (True, False)
    assert str(resolvable) == "Insufficient cpu"
