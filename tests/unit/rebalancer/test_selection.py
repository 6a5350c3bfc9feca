# SPDX-License-Identifier: Apache-2.0
"""Which moves of a plan are carried out, and which nodes rest while others are under way."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.migrations import MigrationCondition, MigrationStatus, ReplacementRef
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import NodeName
from common.config import RebalancerConfiguration, Strategy
from rebalancer.planner import Move
from rebalancer.refusals import Reason, Refusal
from rebalancer.selection import (
    BusyNodes,
    choose,
    not_migrating,
    only_with_newer_samples,
    set_aside,
    stale_nodes,
)
from tests.support.worlds.loop import move_of, plan_of
from tests.support.worlds.migrations import START, migration, spec_of
from tests.support.worlds.strategies import NOW_S, Scene

START_S = START.timestamp()


def config_of(**given: Any) -> RebalancerConfiguration:
    return RebalancerConfiguration.model_validate({"mode": "act", **given})


def pods(chains: Any) -> list[list[str]]:
    return [[move.pod for move in chain] for chain in chains]


def test_moves_of_this_cycle_are_chosen_by_purpose_and_chain() -> None:
    plan = plan_of(
        move_of("a", chain=0, reason="Maintenance", strategy=Strategy.NODE_MAINTENANCE),
        move_of("b", chain=1, reason="MakesRoom"),
        move_of("c", chain=1),
        move_of("later", chain=2, this_cycle=False),
    )
    choice = choose(plan, config_of())
    assert pods(choice.maintenance) == [["shop/a"]]
    assert pods(choice.load) == [["shop/b", "shop/c"]]
    assert choice.notes == ()


@pytest.mark.parametrize(
    ("given", "dry_run", "words"),
    [
        ({}, True, "nothing is moved: this is a dry run"),
        ({"paused": True}, False, "nothing is moved: paused is true"),
        (
            {"mode": "observe"},
            False,
            "nothing is moved for ResourceOptimization: its mode is observe",
        ),
        (
            {"modes": {"ResourceOptimization": "observe"}},
            False,
            "nothing is moved for ResourceOptimization: its mode is observe",
        ),
    ],
)
def test_nothing_is_chosen_and_that_is_said(
    given: dict[str, Any], dry_run: bool, words: str
) -> None:
    choice = choose(plan_of(move_of("a")), config_of(**given), dry_run=dry_run)
    assert (choice.load, choice.maintenance, choice.notes) == ((), (), (words,))


def test_a_mode_of_its_own_lets_one_strategy_act() -> None:
    config = config_of(mode="observe", modes={"ResourceOptimization": "act"})
    plan = plan_of(move_of("a", chain=0), move_of("b", chain=1, strategy=Strategy.LOAD_BALANCING))
    assert pods(choose(plan, config).load) == [["shop/a"]]


def test_one_observed_move_lets_its_whole_chain_stay() -> None:
    config = config_of(modes={"LoadBalancing": "observe"})
    plan = plan_of(move_of("a"), move_of("b", strategy=Strategy.LOAD_BALANCING))
    assert choose(plan, config).load == ()


def test_a_refusal_stands_against_moves_for_load_only() -> None:
    plan = plan_of(move_of("a", chain=0), move_of("m", chain=1, reason="Maintenance"))
    choice = choose(plan, config_of(), refusal=Refusal("NoExtender", "no extender is alive"))
    assert (choice.load, pods(choice.maintenance)) == ((), [["shop/m"]])
    assert choice.notes == ("nothing is moved for load: no extender is alive",)


def test_a_note_says_once_that_nothing_is_moved() -> None:
    why = Reason.BREAKER_OPEN.refusal(cause="the load of too few nodes is known")
    choice = choose(plan_of(move_of("a")), config_of(), refusal=why)
    assert choice.notes == ("nothing is moved for load: the load of too few nodes is known",)


def record(
    *, uid: str = "u-1", source: str = "n1", target: str = "n2", **status: Any
) -> MigrationRecord:
    spec = spec_of(source=source, target=target, alternatives=())
    spec.pod.uid = uid
    return migration_record(migration(spec, status=MigrationStatus(**status)), Interner())


POOLS = {
    "blue": (NodeName("n1"), NodeName("n2"), NodeName("n3")),
    "red": (NodeName("n8"), NodeName("n9")),
}


@pytest.mark.parametrize(
    ("move", "busy"),
    [
        (move_of("p", source="n3", target="n4"), None),
        (move_of("p", source="n1", target="n4"), "n1"),
        (move_of("p", source="n2", target="n4"), "n2"),
        (move_of("p", source="n3", target="n1"), "n1"),
        (move_of("p", source="n3", target="n2"), "n2"),
        (move_of("p", source="n3", target="n3", reason="Spread"), "n1"),
        (move_of("p", source="n8", target="n9", reason="Spread"), None),
        (move_of("p", source="n1", target="n4", reason="Maintenance"), None),
        (move_of("p", source="n1", target="n2", reason="Maintenance"), None),
        (move_of("p", source="n2", target="n1", reason="Maintenance"), None),
    ],
    ids=lambda value: (
        f"{value.source}-{value.target}-{value.reason}" if isinstance(value, Move) else str(value)
    ),
)
def test_nodes_rest_while_a_migration_touches_them(move: Move, busy: str | None) -> None:
    objection = BusyNodes.of([record(phase="InProgress")], POOLS)
    found = objection(move, move.target)
    assert (found and found.message) == (
        busy and f"another move from or to {busy} is still under way"
    )


def test_chains_that_have_to_rest_anywhere_are_set_aside_and_said() -> None:
    plan = plan_of(
        move_of("a", chain=0, source="n1", target="n5"),
        move_of("b", chain=1, source="n5", target="n2"),
        move_of("m", chain=2, source="n1", target="n2", reason="Maintenance"),
    )
    objection = BusyNodes.of([record(phase="InProgress")], POOLS)
    choice = set_aside(choose(plan, config_of()), [objection])
    # The target of the second may still change to an alternative.
    assert (pods(choice.load), pods(choice.maintenance)) == ([["shop/b"]], [["shop/m"]])
    assert choice.notes == ("shop/a waits: another move from or to n1 is still under way",)


def test_nodes_do_not_rest_after_a_migration_is_finished() -> None:
    objection = BusyNodes.of([record(phase="Completed"), record(phase="Failed")], POOLS)
    assert objection(move_of("p", source="n1", target="n2"), NodeName("n2")) is None


def test_a_replacement_that_landed_elsewhere_touches_that_node() -> None:
    landed = record(phase="InProgress", replacement=ReplacementRef(uid="r", node="n7"))
    objection = BusyNodes.of([landed], POOLS)
    assert objection(move_of("p", source="n3", target="n7"), NodeName("n7")) is not None


@pytest.mark.parametrize(
    ("status", "reason", "age_s", "objects"),
    [
        ({"phase": "InProgress"}, "AboveCeiling", 0, True),
        ({"phase": "Completed"}, "AboveCeiling", 9999, True),
        ({"phase": "Failed"}, "AboveCeiling", 299, True),
        ({"phase": "Failed"}, "AboveCeiling", 300, False),
        ({"phase": "Failed"}, "Maintenance", 29, True),
        ({"phase": "Failed"}, "Maintenance", 30, False),
        ({"phase": "Failed", "replacement": ReplacementRef(uid="r")}, "Maintenance", 9999, True),
        # Its workload shrank, and another pod was the one that went.
        ({"phase": "Completed", "outcome": "NotReplaced"}, "Maintenance", 29, True),
        ({"phase": "Completed", "outcome": "NotReplaced"}, "Maintenance", 30, False),
        (
            {"phase": "Completed", "outcome": "NotReplaced", "evicted_at": START},
            "Maintenance",
            9999,
            True,
        ),
    ],
)
def test_a_pod_gets_a_second_migration_only_some_time_after_the_first_came_to_nothing(
    status: dict[str, Any], reason: str, age_s: float, objects: bool
) -> None:
    found = record(finished_at=START, **status)
    objection = not_migrating({found.name: found}, config_of(), START_S + age_s)
    move = move_of("p", uid="u-1", reason=reason)
    assert (objection(move, move.target) is not None) is objects


@pytest.mark.parametrize("cleaned", [True, False])
def test_a_bare_pod_waits_until_the_copy_of_its_failed_move_is_taken_back(cleaned: bool) -> None:
    """With the Migration everybody would forget the copy."""
    over = MigrationCondition(
        type="CleanedUp", status=str(cleaned), reason="CleanedUp", last_transition_time=START
    )
    spec = spec_of(controller=None, workload=None, replacement_name="copy", alternatives=())
    said = MigrationStatus(phase="Failed", finished_at=START, conditions=(over,))
    found = migration_record(migration(spec, status=said), Interner())
    move = move_of("p", uid=found.pod_uid)
    objection = not_migrating({found.name: found}, config_of(), START_S + 9999)
    assert (objection(move, move.target) is None) is cleaned


def scene(**samples: float) -> Scene:
    return Scene({name: {"sample": sample} for name, sample in samples.items()})


def test_a_node_is_stale_until_it_has_a_newer_sample() -> None:
    before = scene(n1=NOW_S - 9, n2=NOW_S - 9, n3=NOW_S - 9).cluster().load
    now = scene(n1=NOW_S, n2=NOW_S - 9).cluster().load
    names = [NodeName(n) for n in ("n1", "n2", "n3")]
    assert stale_nodes(names, before, now) == {"n2", "n3"}


def test_a_node_without_measurements_is_never_stale() -> None:
    load = Scene({"n1": {}}).cluster(sample_s=None).load
    assert stale_nodes([NodeName("n1")], load, load) == set()


def test_a_node_that_has_become_unknown_is_stale() -> None:
    before = scene(n1=NOW_S - 9).cluster().load
    now = Scene({"n1": {"unknown": "StaleSample"}}).cluster().load
    assert stale_nodes([NodeName("n1")], before, now) == {"n1"}


def test_only_moves_for_load_need_newer_samples() -> None:
    load = scene(n1=NOW_S, n2=NOW_S).cluster().load
    objection = only_with_newer_samples(load, load)
    for_load, for_maintenance = move_of("p"), move_of("p", reason="Maintenance")
    found = objection(for_load, for_load.target)
    assert found is not None
    assert found.name == "NoNewerSample"
    assert objection(for_maintenance, for_maintenance.target) is None
