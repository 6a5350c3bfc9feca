# SPDX-License-Identifier: Apache-2.0
"""A view is one consistent belief, and costs only what changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.cluster.records import NodeName, PodUid
from common.load import Basis, Load, LoadTracker, LoadView
from common.usage.source import Sample
from tests.support.worlds.load import MIB, LoadWorld, usage

NODES = ("n1", "n2", "n3")


@pytest.fixture
def world() -> LoadWorld:
    made = LoadWorld()
    for name in NODES:
        made.node(name)
        made.pod(f"on-{name}", name)
    made.measure(dict.fromkeys(NODES, (1000.0, 1000.0)), {f"on-{n}": (500.0, 500.0) for n in NODES})
    return made


def test_nothing_is_done_twice_while_nothing_changes(world: LoadWorld) -> None:
    view = world.view()
    world.pass_time(10.0)

    assert world.view() is view


def test_only_the_node_that_changed_is_judged_anew(world: LoadWorld) -> None:
    before = world.view()
    world.pod("new", "n2", scheduled_s=world.now_s)
    after = world.view()

    same = {name for name in NODES if after.nodes[NodeName(name)] is before.nodes[NodeName(name)]}
    assert same == {"n1", "n3"}


def test_only_nodes_with_new_samples_are_judged_anew(world: LoadWorld) -> None:
    before = world.view()
    world.pass_time(15.0)
    world.measure({"n2": (2000.0, 2000.0)}, {"on-n3": (900.0, 900.0)})
    after = world.view()

    same = {name for name in NODES if after.nodes[NodeName(name)] is before.nodes[NodeName(name)]}
    assert same == {"n1"}


def test_a_view_has_a_checkpoint_at_every_node_that_it_judges(world: LoadWorld) -> None:
    pauses: list[str] = []

    def looked() -> int:
        pauses.clear()
        world.tracker.view(
            world.state.snapshot(), world.now_s, checkpoint=lambda: pauses.append("one")
        )
        return len(pauses)

    assert looked() == len(NODES)
    assert looked() == 0
    world.pod("new", "n2", scheduled_s=world.now_s)
    assert looked() == 1


def test_taking_a_sample_in_has_a_checkpoint_at_every_node(world: LoadWorld) -> None:
    pauses: list[str] = []
    sample = Sample(nodes={}, pods={})
    world.tracker.observe(sample, world.state.snapshot(), world.now_s, lambda: pauses.append("one"))
    assert len(pauses) >= len(NODES)


def test_a_view_does_not_change_when_the_book_goes_on(world: LoadWorld) -> None:
    uid = PodUid(next(iter(world.state.snapshot().pods)))
    view = world.view()
    said = (dict(view.nodes), view.pod_load(uid))
    world.pass_time(600.0)
    world.measure(
        dict.fromkeys(NODES, (5000.0, 5000.0)), {f"on-{n}": (4000.0, 4000.0) for n in NODES}
    )
    world.leave("on-n1")
    world.view()

    assert (dict(view.nodes), view.pod_load(uid)) == said


def test_a_nodes_load_is_its_sample_and_the_pods_that_it_names(world: LoadWorld) -> None:
    world.pod("new", "n2", scheduled_s=world.now_s, requests=("1", "1Gi"))
    world.leave("on-n3")

    for name, load in world.view().nodes.items():
        assert load.cpu_milli == 1000.0 + sum(each.cpu_milli for each in load.differences)
        assert load.mem_bytes == 1000.0 * MIB + sum(each.mem_bytes for each in load.differences)
        named = {each.pod: each.cpu_milli for each in load.differences}
        expected = {"n2": {"default/new": 850.0}, "n3": {"default/on-n3": -500.0}}
        assert named == expected.get(name, {})


def test_a_finished_pod_uses_nothing(world: LoadWorld) -> None:
    uid = world.pod("done", "n1", phase="Succeeded", requests=("4", "4Gi"))

    assert world.view().pod_load(uid).cpu_milli == 0.0
    assert world.view().pod_load(uid).basis is Basis.NOTHING
    assert world.load("n1").estimated_pods == 0


def test_a_pod_that_left_is_gone_from_the_load_at_once(world: LoadWorld) -> None:
    before = world.load("n1").cpu_milli
    world.leave("on-n1")

    assert world.load("n1").cpu_milli == before - 500.0


def test_a_node_that_left_is_gone_from_the_view(world: LoadWorld) -> None:
    world.view()
    world.state.nodes.forget("n2")
    assert set(world.view().nodes) == {"n1", "n3"}
    world.pass_time(15.0)
    world.measure({"n1": (1000.0, 1000.0)})
    assert set(world.view().nodes) == {"n1", "n3"}


class Twins:
    """A tracker that keeps what it has judged, and one that judges everything at every look."""

    def __init__(self) -> None:
        self.world = LoadWorld()
        self.fresh = LoadTracker()
        for name in NODES:
            self.world.node(name)

    def sample(self, nodes: list[str], pods: list[str], figures: list[float]) -> None:
        now_s = self.world.now_s
        sample = Sample(
            nodes={NodeName(n): usage(f, f, now_s) for n, f in zip(nodes, figures, strict=False)},
            pods={
                f"default/{p}": usage(f / 2, f / 2, now_s)
                for p, f in zip(pods, figures, strict=False)
            },
        )
        snapshot = self.world.state.snapshot()
        for tracker in (self.world.tracker, self.fresh):
            tracker.observe(sample, snapshot, now_s)

    def look(self, predecessors: dict[PodUid, Load]) -> tuple[LoadView, LoadView]:
        snapshot, now_s = self.world.state.snapshot(), self.world.now_s
        self.fresh._judgements, self.fresh._last = {}, None
        kept = self.world.tracker.view(snapshot, now_s, predecessors)
        return kept, self.fresh.view(snapshot, now_s, predecessors)


PODS = tuple(f"p{index}" for index in range(6))

steps = st.one_of(
    st.tuples(st.just("pass"), st.floats(0.0, 200.0)),
    st.tuples(
        st.just("come"), st.sampled_from(PODS), st.sampled_from(NODES), st.floats(0.0, 120.0)
    ),
    st.tuples(st.just("leave"), st.sampled_from(PODS)),
    st.tuples(
        st.just("sample"),
        st.lists(st.sampled_from(NODES), unique=True),
        st.lists(st.sampled_from(PODS), unique=True),
        st.lists(st.floats(0.0, 8000.0), min_size=6, max_size=6),
    ),
    st.tuples(st.just("predecessor"), st.sampled_from(PODS), st.floats(0.0, 100.0)),
)


@given(st.lists(steps, max_size=25))
def test_what_was_judged_before_is_as_good_as_judging_again(
    script: list[tuple[object, ...]],
) -> None:
    twins, here = Twins(), set[str]()
    world = twins.world
    predecessors: dict[PodUid, Load] = {}
    for step in script:
        match step:
            case ("pass", float(seconds)):
                world.pass_time(seconds)
            case ("come", str(name), str(node), float(ago)) if name not in here:
                here.add(name)
                # The last two never leave, so that the median of their siblings stays.
                owner = "web" if name in PODS[-2:] else None
                world.pod(name, node, scheduled_s=world.now_s - ago, owner=owner)
            case ("leave", str(name)) if name in here - set(PODS[-2:]):
                here.remove(name)
                world.leave(name)
            case ("sample", list(nodes), list(pods), list(figures)):
                twins.sample(nodes, pods, figures)
            case ("predecessor", str(name), float(cpu)) if name in here:
                record = world.state.snapshot().pods_by_name[f"default/{name}"]
                predecessors[record.uid] = Load(cpu, cpu)
            case _:
                pass
        kept, fresh = twins.look(predecessors)
        assert kept.nodes == fresh.nodes
        uids = list(world.state.snapshot().pods)
        assert [kept.pod_load(uid) for uid in uids] == [fresh.pod_load(uid) for uid in uids]
