# SPDX-License-Identifier: Apache-2.0
"""The state under any order of events equals a recount from scratch."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from common.api.objects import Deployment, Node, Pod, ReplicaSet
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from simulator import build
from tests.support.worlds.wire import stamped, uid_of, wire, wire_node, wire_pod

NODE_NAMES = ("n1", "n2", "n3")
POD_NAMES = ("a", "b", "c", "d")
OWNERS = tuple(build.replica_set(f"rs{i}", 2) for i in range(2))

nodes = st.builds(
    lambda name, cpu, tainted, ready: wire_node(
        build.node(
            name,
            cpu=cpu,
            taints=[{"key": "k", "effect": "NoSchedule"}] if tainted else [],
            unschedulable=not ready,
        )
    ),
    st.sampled_from(NODE_NAMES),
    st.sampled_from(["4", "8"]),
    st.booleans(),
    st.booleans(),
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """A pod of a small world: few names, each with several lives."""
    name, life = draw(st.sampled_from(POD_NAMES)), draw(st.integers(1, 2))
    node = draw(st.sampled_from([None, *NODE_NAMES]))
    extended = {"example.com/gpu": "1"} if draw(st.booleans()) else {}
    manifest = build.pod(name, node=node, cpu=draw(st.sampled_from([None, "100m", "1"])))
    manifest["spec"]["containers"][0]["resources"]["requests"].update(extended)
    deleting = draw(st.booleans())
    return wire_pod(
        manifest,
        owner=draw(st.sampled_from([None, *OWNERS])),
        phase=draw(st.sampled_from(["Running", "Running", "Succeeded", "Failed"])),
        status={"nominatedNodeName": draw(st.sampled_from(["", *NODE_NAMES]))},
        uid=uid_of(f"{name}/{life}"),
        **({"deletionTimestamp": "2026-11-16T09:00:00Z"} if deleting else {}),
    )


events = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.one_of(nodes, pods())),
        st.tuples(st.just("delete"), st.one_of(nodes, pods())),
        st.tuples(st.just("forget"), st.sampled_from([f"default/{n}" for n in POD_NAMES])),
        st.tuples(st.just("photograph"), st.none()),
    ),
    max_size=60,
)


class Model:
    """What the state must hold, kept in the plainest way."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}

    def play(self, verb: str, thing: Any) -> None:
        if verb == "upsert" and isinstance(thing, Node):
            self.nodes[thing.metadata.name] = thing
        elif verb == "upsert":
            self.pods[f"default/{thing.metadata.name}"] = thing
        elif verb == "forget":
            self.pods.pop(thing, None)
        elif isinstance(thing, Node):
            self.nodes.pop(thing.metadata.name, None)
        else:
            held = self.pods.get(f"default/{thing.metadata.name}")
            if held is not None and held.metadata.uid == thing.metadata.uid:
                del self.pods[f"default/{thing.metadata.name}"]

    def recount(self) -> Snapshot:
        state = ClusterState()
        for node in self.nodes.values():
            state.nodes.upsert(node)
        for pod in self.pods.values():
            state.pods.upsert(pod)
        return state.snapshot()


def play(state: ClusterState, verb: str, thing: Any) -> None:
    table = state.nodes if isinstance(thing, Node) else state.pods
    if verb == "forget":
        state.pods.forget(thing)
    else:
        getattr(table, verb)(thing)


def told(snapshot: Snapshot) -> dict[str, Any]:
    """Return everything a snapshot says, in a form that can be compared and kept."""
    groups: tuple[Any, ...] = (
        snapshot.by_owner,
        snapshot.by_namespace,
        snapshot.by_nomination,
    )
    return {
        "nodes": {
            name: (v.node, dict(v.pods), v.requested, v.scored_cpu_milli, v.scored_mem_bytes)
            for name, v in snapshot.nodes.items()
        },
        "pods": dict(snapshot.pods),
        "names": dict(snapshot.pods_by_name),
        "pending": dict(snapshot.pending),
        "groups": [{key: dict(group[key]) for key in group} for group in groups],
        "lengths": [len(snapshot.pods), len(snapshot.pending), len(snapshot.nodes)],
    }


@given(events)
@settings(max_examples=400)
def test_any_sequence_of_events_equals_a_recount(sequence: list[tuple[str, Any]]) -> None:
    state, model = ClusterState(), Model()
    photographs: list[tuple[Snapshot, dict[str, Any]]] = []
    for verb, thing in sequence:
        if verb == "photograph":
            photographs.append((state.snapshot(), told(state.snapshot())))
            continue
        play(state, verb, thing)
        model.play(verb, thing)
    assert told(state.snapshot()) == told(model.recount())
    for snapshot, before in photographs:
        assert told(snapshot) == before, "a snapshot changed under its reader"


@given(events)
def test_repeated_events_change_nothing(sequence: list[tuple[str, Any]]) -> None:
    state = ClusterState()
    for verb, thing in sequence:
        if verb == "photograph":
            continue
        play(state, verb, thing)
        once = state.snapshot()
        play(state, verb, thing)
        assert state.snapshot() is once


def test_only_the_touched_node_gets_a_new_view() -> None:
    state = ClusterState()
    for name in NODE_NAMES:
        state.nodes.upsert(wire_node(build.node(name)))
    before = state.snapshot()
    state.pods.upsert(wire_pod(build.pod("a", node="n2")))
    after = state.snapshot()
    same = [name for name in before.nodes if before.nodes[name] is after.nodes[name]]
    assert same == ["n1", "n3"]


def test_a_pod_counts_on_its_node_as_soon_as_the_node_is_known() -> None:
    state = ClusterState()
    state.pods.upsert(wire_pod(build.pod("a", node="n1", cpu="1500m", memory="1Gi")))
    assert not state.snapshot().nodes
    state.nodes.upsert(wire_node(build.node("n1")))
    view = next(iter(state.snapshot().nodes.values()))
    assert (view.requested.cpu_milli, view.requested.mem_bytes) == (1500, 2**30)


def test_a_terminating_pod_still_holds_its_requests_and_a_finished_one_does_not() -> None:
    state = ClusterState()
    state.nodes.upsert(wire_node(build.node("n1")))
    leaving = build.pod("leaving", node="n1", cpu="1")
    state.pods.upsert(wire_pod(leaving, deletionTimestamp="2026-11-16T09:00:00Z"))
    state.pods.upsert(wire_pod(build.pod("done", node="n1", cpu="2"), phase="Succeeded"))
    (view,) = state.snapshot().nodes.values()
    assert view.requested.cpu_milli == 1000
    assert len(state.snapshot().pods) == 2


def test_a_late_word_about_the_last_life_of_a_pod_is_not_about_the_next() -> None:
    state = ClusterState()
    first = wire_pod(build.pod("db-0"), uid="life-1")
    second = wire_pod(build.pod("db-0"), uid="life-2")
    state.pods.upsert(first)
    state.pods.upsert(second)
    state.pods.delete(first)
    assert list(state.snapshot().pods) == ["life-2"]


def test_a_replica_set_leads_to_its_deployment() -> None:
    state = ClusterState()
    parent = build.deployment("web", 2)
    child = build.replica_set("web-abc", 2)
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": stamped(parent)["metadata"]["uid"],
        "controller": True,
    }
    pod = wire_pod(build.pod("web-abc-1", node="n1"), owner=child)
    state.pods.upsert(pod)
    record = state.snapshot().pods_by_name["default/web-abc-1"]
    assert state.snapshot().top_workload(record) is None
    state.replica_sets.upsert(wire(ReplicaSet, stamped(child, ownerReferences=[reference])))
    assert _name(state, record) == "ReplicaSet web-abc"
    state.deployments.upsert(wire(Deployment, stamped(parent)))
    assert _name(state, record) == "Deployment web"


def test_a_node_without_allocatable_is_kept_and_told_once() -> None:
    told_of: list[tuple[str, str, str]] = []
    state = ClusterState(oddity=lambda *what: told_of.append(what))
    bare = build.node("n1")
    bare["status"] = {}
    for _ in range(3):
        state.nodes.upsert(wire_node(bare))
    assert told_of == [("Node", "n1", "NoAllocatable")]
    assert "n1" in state.snapshot().nodes


def test_a_pod_with_three_thousand_labels_is_an_ordinary_pod() -> None:
    state = ClusterState()
    labels = {f"label-{i}": str(i) for i in range(3_000)}
    state.pods.upsert(wire_pod(build.pod("a", labels=labels)))
    (record,) = state.snapshot().pods.values()
    assert record.labels == labels


def _name(state: ClusterState, record: Any) -> str:
    found = state.snapshot().top_workload(record)
    assert found is not None
    return f"{found.kind} {found.name}"


def test_a_pod_with_a_limit_of_any_length_is_seen_on_its_node() -> None:
    state = ClusterState()
    state.nodes.upsert(wire_node(build.node("n1")))
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "9" * 5000}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    state.pods.upsert(wire_pod(build.pod("odd", node="n1", spec=spec)))
    seen = state.snapshot().nodes[NodeName("n1")]
    assert (len(seen.pods), seen.requested.cpu_milli) == (1, 2000)
