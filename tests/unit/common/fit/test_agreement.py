# SPDX-License-Identifier: Apache-2.0
"""On random clusters: one node and all nodes agree, and no path to a world changes its answers."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from common.cache.snapshot import Snapshot
from common.cluster.records import NodeName
from common.fit import Arrive, Candidate, Change, FitIndex, Leave, Terminate, World
from common.fit.cases import snapshot_of
from simulator.scheduler.scores import totals
from tests.support.worlds.fit_cases import pods_to_judge, random_case, snapshot, told

SEEDS = st.integers(0, 10**6)
ENDED = datetime(2026, 11, 16, 9, tzinfo=UTC)


@st.composite
def changes(draw: st.DrawFn, seen: Snapshot, arriving: list[Candidate]) -> tuple[Change, ...]:
    """Things that could happen to this cluster."""
    pods = st.sampled_from(sorted(seen.pods))
    nodes = st.sampled_from(sorted(seen.nodes)).map(NodeName)
    one = st.one_of(
        st.builds(Leave, pods),
        st.builds(Terminate, pods),
        st.builds(Arrive, st.sampled_from(arriving), nodes),
    )
    return tuple(draw(st.lists(one, max_size=6)))


def answers(world: World, pods: list[Candidate]) -> list[object]:
    """Return everything that a world says of some pods."""
    found: list[object] = []
    for pod in pods:
        question = world.ask(pod)
        names = sorted(world.snapshot.nodes)
        sums = totals(question)
        rows = question.index.facts.row_of
        scores = [int(sums[rows[name]]) for name in question.feasible()]
        found.append((question.feasible(), [question.rejections(name) for name in names], scores))
    return found


@settings(max_examples=20)
@given(seed=SEEDS, data=st.data())
def test_judging_one_node_and_all_nodes_agree(seed: int, data: st.DataObject) -> None:
    case = random_case(seed)
    pods, seen = pods_to_judge(case), snapshot(case)
    world = World(seen, FitIndex()).after(*data.draw(changes(seen, pods)))
    for pod in pods[:10]:
        question = world.ask(pod)
        fitting = {name for name in seen.nodes if not question.rejections(name)}
        assert set(question.feasible()) == fitting
        assert all(world.fits(pod, name) == (name in fitting) for name in seen.nodes)


@settings(max_examples=10)
@given(seed=SEEDS, data=st.data())
def test_a_world_answers_the_same_however_the_index_came_to_it(
    seed: int, data: st.DataObject
) -> None:
    case = random_case(seed)
    pods, seen = pods_to_judge(case), snapshot(case)
    others = pods[:3]
    worlds = [data.draw(changes(seen, pods)) for _ in range(3)]
    index = FitIndex()
    start = World(seen, index)
    wandering = [answers(start.after(*each), others) for each in (*worlds, *reversed(worlds))]
    fresh = [answers(World(seen, FitIndex(), each), others) for each in worlds]
    assert wandering == [*fresh, *reversed(fresh)]


@settings(max_examples=10)
@given(first=SEEDS, second=SEEDS)
def test_going_from_snapshot_to_snapshot_leaves_nothing_behind(first: int, second: int) -> None:
    index = FitIndex()
    cases = [random_case(seed) for seed in (first, second, first)]
    for case in cases:
        pods, seen = pods_to_judge(case)[:3], snapshot(case)
        assert answers(World(seen, index), pods) == answers(World(seen, FitIndex()), pods)


@settings(max_examples=10)
@given(seed=SEEDS, data=st.data())
def test_a_what_if_equals_the_thing_itself(seed: int, data: st.DataObject) -> None:
    case = random_case(seed)
    pods, seen = pods_to_judge(case), snapshot(case)
    bound = sorted(uid for uid, pod in seen.pods.items() if pod.node and not pod.finished)
    gone = set(data.draw(st.lists(st.sampled_from(bound), max_size=4)))
    ending = set(data.draw(st.lists(st.sampled_from(bound), max_size=4)))
    supposed = World(seen, FitIndex()).after(
        *map(Terminate, sorted(ending)), *map(Leave, sorted(gone))
    )
    happened = told(case)
    happened.pods = [pod for pod in happened.pods if pod.metadata.uid not in gone]
    for pod in happened.pods:
        if pod.metadata.uid in ending and pod.metadata.deletion_timestamp is None:
            pod.metadata.deletion_timestamp = ENDED
    real = World(snapshot_of(happened), FitIndex())
    assert answers(supposed, pods[:5]) == answers(real, pods[:5])
