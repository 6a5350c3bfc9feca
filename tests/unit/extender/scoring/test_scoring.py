# SPDX-License-Identifier: Apache-2.0
"""Scores: a table of cases, and what holds for every cluster and every pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config import ExtenderConfiguration
from common.load import Belief
from extender.scoring import BEST, Board, Demand, Overlay
from extender.scoring.curve import scores
from extender.scoring.plot import draw
from tests.support.tables import read_table
from tests.support.worlds.advisor import CPU_MILLI, MEM_MIB, AdvisorWorld
from tests.support.worlds.load import MIB

HERE = Path(__file__).parent
DOCS = HERE.parents[3] / "docs"
CASES = read_table(HERE / "scores.yaml")

percents = st.floats(0.0, 120.0).map(lambda value: round(value, 2))
shares = st.floats(0.0, 30.0).map(lambda value: round(value, 2))


def world_of(nodes: dict[str, Any], config: dict[str, Any] | None = None) -> AdvisorWorld:
    world = AdvisorWorld(**(config or {}))
    for name, load in nodes.items():
        world.node(name)
        if load is not None:
            figures = load if isinstance(load, dict) else {"cpu": load}
            world.busy(name, **figures)
    world.measure(only=[name for name, load in nodes.items() if load is not None])
    return world


def demand(cpu: float = 0.0, mem: float = 0.0, asked: float = 0.0) -> Demand:
    """Return a demand in percents of a node."""
    return Demand(
        cpu_milli=cpu * CPU_MILLI / 100,
        mem_bytes=mem * MEM_MIB * MIB / 100,
        requested_cpu_milli=asked * CPU_MILLI / 100,
        requested_mem_bytes=asked * MEM_MIB * MIB / 100,
    )


def score(board: Board, name: str, pod: Demand) -> int:
    return int(Overlay(board).scores([name], pod)[0])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_table_of_scores(case: dict[str, Any]) -> None:
    world = world_of(case["nodes"], case.get("config"))
    names = case.get("list", list(case["nodes"]))
    found = world.advisor.prioritize(world.pod("new", **case["pod"]), names)
    assert list(found.values) == [case["scores"][name] for name in names]


@pytest.fixture(scope="module")
def known_board() -> Board:
    """One node of each load, from 0 to 120 percent of CPU."""
    return world_of({f"n{load}": {"cpu": load, "mem": 0} for load in range(0, 121, 4)}).refresh()


@given(use=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=8), asked=st.floats(0.0, 3.0))
def test_every_score_is_an_integer_from_0_to_10(use: list[float], asked: float) -> None:
    found = scores(np.array(use), np.full(len(use), asked)).tolist()
    assert all(type(score) is int and 0 <= score <= BEST for score in found)


@settings(max_examples=60)
@given(load=st.integers(0, 30).map(lambda i: 4 * i), cpu=shares, mem=shares, asked=shares)
def test_0_means_predicted_at_or_above_the_threshold_and_nothing_else(
    known_board: Board, load: int, cpu: float, mem: float, asked: float
) -> None:
    found = score(known_board, f"n{load}", demand(cpu, mem, asked))
    above = load + cpu >= 80.0 - 1e-6 or mem >= 80.0 - 1e-6
    assert (found == 0) is above


@settings(max_examples=60)
@given(cpu=shares, mem=shares, asked=percents)
def test_more_load_never_scores_better(
    known_board: Board, cpu: float, mem: float, asked: float
) -> None:
    names = [f"n{load}" for load in range(0, 121, 4)]
    found = Overlay(known_board).scores(names, demand(cpu, mem, asked)).tolist()
    assert found == sorted(found, reverse=True)


@settings(max_examples=60)
@given(
    load=st.integers(0, 30).map(lambda i: 4 * i),
    small=st.tuples(shares, shares, shares),
    more=st.tuples(shares, shares, shares),
)
def test_a_larger_pod_never_scores_better(
    known_board: Board,
    load: int,
    small: tuple[float, float, float],
    more: tuple[float, float, float],
) -> None:
    large = [a + b for a, b in zip(small, more, strict=True)]
    name = f"n{load}"
    assert score(known_board, name, demand(*large)) <= score(known_board, name, demand(*small))


def test_a_demand_on_top_counts_like_load_on_the_node(known_board: Board) -> None:
    overlay = Overlay(known_board)
    overlay.put("n20", [demand(cpu=10.0), demand(cpu=10.0)])
    pod = demand(cpu=1.0)
    assert overlay.scores(["n20"], pod) == overlay.scores(["n40"], pod)
    overlay.put("n20", [])
    assert overlay.scores(["n20"], pod) == Overlay(known_board).scores(["n20"], pod)


def test_a_score_steps_down_exactly_at_each_tenth() -> None:
    use = np.array([step / 10 for step in range(11)])
    for found in (use, use - 1e-12, use + 1e-12):  # what floating point makes of sums
        assert scores(found, np.zeros(11)).tolist() == list(range(10, -1, -1))


@pytest.mark.parametrize(
    "pod",
    [Demand(requested_cpu_milli=CPU_MILLI), Demand(requested_mem_bytes=MEM_MIB * MIB)],
    ids=str,
)
def test_requests_of_either_resource_count(known_board: Board, pod: Demand) -> None:
    assert score(known_board, "n0", pod) == 8


def test_an_assumed_newcomer_counts_for_the_floor_of_each_resource(known_board: Board) -> None:
    sums = Overlay(known_board).tally(0, [Demand(newcomer=True), Demand(cpu_milli=1.0)])
    assert sums.cpu_milli == pytest.approx(0.025 * CPU_MILLI + 1.0)
    assert sums.mem_bytes == pytest.approx(0.025 * MEM_MIB * MIB)


def test_where_nothing_is_measured_load_is_requests() -> None:
    world = AdvisorWorld(from_requests=True)
    for name, asked in (("a", 16.0), ("b", 64.0)):
        world.node(name)
        world.busy(name, 0.0, asked=asked)
    world.refresh()
    assert world.advisor.prioritize(world.pod("new", cpu=8, mem=8), ["a", "b"]).values == [7, 1]


def test_a_pod_without_measured_siblings_counts_for_the_floor() -> None:
    world = world_of({"n": 0})
    world.world.pod("new", "n", requests=("1m", "1Mi"), scheduled_s=world.world.now_s)
    board = world.refresh()
    predicted = Overlay(board).predict(["n"], Demand())
    assert predicted.use[0] == pytest.approx(2.5 / 80.0)
    assert board.newcomers[board.index["n"]].pods == 1


def test_a_pod_whose_siblings_are_measured_is_no_newcomer() -> None:
    world = world_of({"n": 0})
    for name in ("old", "new"):
        now_s = world.world.now_s
        world.world.pod(name, "n", owner="web", scheduled_s=now_s - 3600 * (name == "old"))
    world.world.measure({"n": (10.0, 10.0)}, {"old": (10.0, 10.0), "busy-n": (0.0, 0.0)})
    board = world.refresh()
    assert board.newcomers[board.index["n"]].pods == 0


def test_a_newcomer_that_asks_for_more_than_the_floor_counts_for_what_it_asks() -> None:
    world = world_of({"n": 0})
    world.world.pod("new", "n", requests=("1", "10Mi"), scheduled_s=world.world.now_s)
    predicted = Overlay(world.refresh()).predict(["n"], Demand())
    assert predicted.use[0] == pytest.approx(0.85 * 10.0 / 80.0)


def test_a_measured_newcomer_counts_for_what_it_uses() -> None:
    world = world_of({"n": 0})
    world.world.pod("new", "n", requests=("1m", "1Mi"))
    world.world.pass_time(15.0)
    world.world.measure({"n": (50.0, 0.0)}, {"new": (50.0, 0.0), "busy-n": (0.0, 0.0)})
    predicted = Overlay(world.refresh()).predict(["n"], Demand())
    assert predicted.use[0] == pytest.approx(0.5 / 80.0)


def test_without_a_floor_requests_are_believed() -> None:
    world = world_of({"n": 0}, {"newPodFloor": 0.0})
    world.world.pod("new", "n", requests=("100m", "1Mi"), scheduled_s=world.world.now_s)
    predicted = Overlay(world.refresh()).predict(["n"], Demand())
    assert predicted.use[0] == pytest.approx(0.85 / 80.0)


steps = st.lists(
    st.tuples(st.sampled_from(["load", "leave", "join", "newcomer"]), st.integers(0, 4), percents),
    max_size=8,
)


@settings(max_examples=40)
@given(steps=steps)
def test_a_board_made_step_by_step_is_the_board_made_from_nothing(
    steps: list[tuple[str, int, float]],
) -> None:
    world = world_of({f"n{i}": 10.0 * i for i in range(4)})
    for number, (what, node, load) in enumerate(steps):
        name = f"n{node}"
        if what == "leave":
            world.state.nodes.forget(name)
        elif what == "join":
            world.node(name)
        elif what == "load":
            world.busy(name, load)
            world.world.pass_time(1.0)
            world.measure()
        else:
            world.world.pod(f"new{number}", name, scheduled_s=world.world.now_s)
        grown = world.refresh()
        fresh = Board.after(None, belief_of(world), world.advisor.config)
        assert grown.names == fresh.names
        assert np.array_equal(grown.table, fresh.table)
        assert np.array_equal(grown.known, fresh.known)
        assert grown.newcomers == fresh.newcomers


def belief_of(world: AdvisorWorld) -> Belief:
    return Belief(world.state.snapshot(), world.world.view())


def test_only_changed_nodes_are_recomputed_and_old_boards_stay() -> None:
    world = world_of({"a": 10.0, "b": 20.0})
    before = world.refresh()
    table = before.table.copy()
    assert world.refresh().table is before.table
    world.world.pod("new", "a", scheduled_s=world.world.now_s)
    after = world.refresh()
    assert after.version > before.version
    assert np.array_equal(before.table, table)
    changed = (after.table != before.table).any(axis=0)
    assert changed.tolist() == [True, False, False]


def test_another_configuration_makes_another_board() -> None:
    world = world_of({"a": 40.0})
    board = Board.after(
        world.refresh(), belief_of(world), ExtenderConfiguration(cpu_threshold=40.0)
    )
    assert score(board, "a", Demand()) == 0


def test_the_picture_in_the_docs_is_up_to_date() -> None:
    assert (DOCS / "scoring.svg").read_text() == draw(ExtenderConfiguration())
