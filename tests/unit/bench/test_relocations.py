# SPDX-License-Identifier: Apache-2.0
"""Plans about single pods beside an exact judge, on drawn clusters and some that are known."""

from __future__ import annotations

import pytest

from bench.relocations.__main__ import compared
from bench.relocations.families import FAMILIES, drawn_for
from bench.relocations.judge import Judge, Result, judged, replayed
from bench.relocations.model import (
    DUPLICATES,
    HOST,
    PREFERRED,
    VIOLATIONS,
    Drawn,
    Homes,
    Move,
    Node,
    Workload,
)
from tests.support.worlds.zoo import zoo_plan

REPAIRED = 0.95
"""Of what the judge repairs; plans make room for violations only, and cycles for the rest."""


def moves_of(drawn: Drawn) -> list[Move]:
    plan = zoo_plan(drawn.manifests())
    return [(move["pod"].partition("/")[2], move["target"]) for move in plan.moves]


def result_of(family: str, seed: int) -> Result:
    drawn = drawn_for(family, seed)
    return judged(drawn, moves_of(drawn))


def settled(drawn: Drawn) -> Homes:
    """Return where pods are when no plan moves any more."""
    homes = drawn.homes
    for _ in range(20):
        moves = moves_of(drawn.after(homes))
        if not moves:
            return homes
        homes |= dict(moves)
    raise AssertionError("plans go on forever")


@pytest.mark.parametrize("family", FAMILIES)
def test_plans_repair_nearly_all_that_can_be_with_the_fewest_moves(family: str) -> None:
    results = [result_of(family, seed) for seed in range(1, 4)]
    assert [r.broken for r in results] == [()] * 3
    known = [r for r in results if r.most is not None]
    assert sum(r.repaired for r in known) >= REPAIRED * sum(r.most or 0 for r in known)
    assert [r.moves for r in known if r.repaired == r.most] == [
        r.fewest for r in known if r.repaired == r.most
    ]


@pytest.mark.parametrize(("family", "seed"), [("choosy", 14), ("choosy", 81), ("repelled", 61)])
def test_goals_are_only_for_places_that_a_plan_may_use(family: str, seed: int) -> None:
    result = result_of(family, seed)
    assert result.broken == ()
    assert (result.repaired, result.moves) == (result.most, result.fewest)
    drawn = drawn_for(family, seed)
    assert zoo_plan(drawn.manifests()).plan["unmet"] == []


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("loaded", 71),
        ("loaded", 113),
        ("crowded", 18),
        ("scarce", 33),
        ("scarce", 68),
        ("repelled", 31),
        ("repelled", 98),
    ],
)
def test_one_plan_repairs_all_that_can_be_with_the_fewest_moves(family: str, seed: int) -> None:
    """Moves take turns, pods change places, and who leaves depends on who finds a place."""
    result = result_of(family, seed)
    assert result.broken == ()
    assert (result.repaired, result.moves) == (result.most, result.fewest)


@pytest.mark.parametrize(("family", "seed"), [("crowded", 33), ("scarce", 26)])
def test_plans_come_to_an_end_where_free_places_wander(family: str, seed: int) -> None:
    drawn = drawn_for(family, seed)
    homes = settled(drawn)
    assert drawn.wrong(homes) <= drawn.wrong(drawn.homes)


async def test_the_running_program_repairs_the_most() -> None:
    found = await compared("labels", 1)
    assert found.again == 0
    assert found.result.broken == ()
    assert found.result.repaired == found.result.most
    assert found.result.moves == found.result.fewest


def drawn(strategy: str, own: Workload, homes: str, *, cores: int = 8) -> Drawn:
    """Return nodes a, b and c, of the kinds a, b and b, and a pod on each that is named."""
    found = Drawn(strategy)
    for name, kind in zip("abc", "abb", strict=True):
        found.nodes[name] = Node(name, cores, kind)
    found.add("web", own, list(homes))
    return found


@pytest.mark.parametrize(
    ("cluster", "best"),
    [
        (drawn(VIOLATIONS, Workload(kinds="b"), "ab"), (0, 1)),
        (drawn(VIOLATIONS, Workload(kinds="c"), "ab"), (2, 0)),
        (drawn(VIOLATIONS, Workload(apart=((HOST, "web"),)), "aab"), (0, 1)),
        (drawn(VIOLATIONS, Workload(2.0, kinds="b"), "abc", cores=3), (1, 0)),
        (drawn(DUPLICATES, Workload(), "aaa"), (0, 2)),
        (drawn(DUPLICATES, Workload(prefers=(("a", 1),)), "aaa"), (0, 0)),
        (drawn(PREFERRED, Workload(prefers=(("b", 7),)), "a"), (-7, 1)),
    ],
)
def test_the_judge_knows_the_best(cluster: Drawn, best: tuple[int, int]) -> None:
    assert Judge(cluster).best() == best


def test_moves_are_replayed_in_their_order() -> None:
    cluster = drawn(VIOLATIONS, Workload(2.0, apart=((HOST, "web"),)), "ab", cores=3)
    assert replayed(cluster, [("web-0", "c")]) == ([], {"web-0": "c", "web-1": "b"})
    assert replayed(cluster, [("web-0", "b")])[0][0] == "web-0 may not go to b"
    assert "b holds 2 replicas of web" in replayed(cluster, [("web-0", "b")])[0]
