# SPDX-License-Identifier: Apache-2.0
"""A pod may name thousands of resources and labels that no node has, and costs little."""

from __future__ import annotations

from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.fit import Arrive, Candidate, FitIndex, Leave, World
from simulator import build
from tests.support.worlds.wire import wire_node, wire_pod


def put(state: ClusterState, name: str, node: str | None, asked: dict[str, str]) -> PodUid:
    """Add a pod that asks for these resources; return its uid."""
    resources = {"requests": asked, "limits": asked}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return put_pod(state, build.pod(name, node=node, spec=spec))


def put_pod(state: ClusterState, made: build.Manifest) -> PodUid:
    pod = wire_pod(made)
    state.pods.upsert(pod)
    return PodUid(pod.metadata.uid)


def candidate(asked: dict[str, str]) -> Candidate:
    state = ClusterState()
    uid = put(state, "asks", None, asked)
    return Candidate.of(state.snapshot().pods[uid])


def cluster(**extended: str) -> ClusterState:
    state = ClusterState()
    state.nodes.upsert(wire_node(build.node("plain")))
    has = {name.replace("_", "/"): amount for name, amount in extended.items()}
    state.nodes.upsert(wire_node(build.node("rich", extended=has)))
    return state


def test_what_no_node_has_takes_no_room_in_the_index() -> None:
    state, index = cluster(), FitIndex()
    put(state, "odd", "plain", {f"x/r{n}": "1" for n in range(2000)})
    world = World(state.snapshot(), index)
    assert world.feasible(candidate({f"x/s{n}": "1" for n in range(2000)})) == ()
    assert index.occupancy.allocatable.shape[0] < 10
    assert index.occupancy.requested.shape[0] < 10


def test_every_resource_that_no_node_has_is_named() -> None:
    world = World(cluster(x_known="4").snapshot(), FitIndex())
    asks = candidate({"x/known": "5", "x/one": "1", "x/two": "1"})
    words = {rejection.message for rejection in world.rejections(asks, NodeName("rich"))}
    assert words == {"Insufficient x/known", "Insufficient x/one", "Insufficient x/two"}
    assert not any(rejection.resolvable for rejection in world.rejections(asks, NodeName("rich")))


def test_it_fits_nowhere_whoever_leaves() -> None:
    state, index = cluster(), FitIndex()
    uids = [put(state, f"odd-{n}", "plain", {"x/one": "1", "x/two": "1"}) for n in range(3)]
    world = World(state.snapshot(), index).after(*(Leave(uid) for uid in uids))
    assert world.feasible(candidate({"x/one": "1"})) == ()


def test_it_fits_where_a_node_has_it_since() -> None:
    state, index = cluster(), FitIndex()
    put(state, "before", "plain", {"x/one": "1"})
    asks = candidate({"x/one": "3"})
    assert World(state.snapshot(), index).feasible(asks) == ()
    state.nodes.upsert(wire_node(build.node("new", extended={"x/one": "4"})))
    world = World(state.snapshot(), index)
    assert world.feasible(asks) == ("new",)
    assert world.after(Arrive(asks, NodeName("new"))).feasible(asks) == ()
    state.nodes.upsert(wire_node(build.node("plain", extended={"x/one": "3"})))
    # What was asked for before the node had it counts.
    assert World(state.snapshot(), index).feasible(asks) == ("new",)
    both = World(state.snapshot(), index).feasible(candidate({"x/one": "2"}))
    assert set(both) == {"plain", "new"}


def test_a_pod_that_leaves_makes_no_room_where_there_was_none() -> None:
    state, index = cluster(), FitIndex()
    uid = put(state, "before", "plain", {"x/one": "1"})
    assert World(state.snapshot(), index).feasible(candidate({"x/one": "1"})) == ()
    state.nodes.upsert(wire_node(build.node("new", extended={"x/one": "4"})))
    world = World(state.snapshot(), index).after(Leave(uid))
    assert world.feasible(candidate({"x/one": "1"})) == ("new",)


def test_of_labels_that_no_node_has_nothing_is_kept() -> None:
    state, index = cluster(), FitIndex()
    selector = {"nodeSelector": {f"no/l{n}": "x" for n in range(500)}}
    uid = put_pod(state, build.pod("odd", node=None, spec=selector))
    odd = Candidate.of(state.snapshot().pods[uid])
    assert World(state.snapshot(), index).feasible(odd) == ()
    assert len(index.facts._columns) < 10
    labels = {f"no/l{n}": "x" for n in range(500)}
    state.nodes.upsert(wire_node(build.node("labelled", labels=labels)))
    assert World(state.snapshot(), index).feasible(odd) == ("labelled",)
