# SPDX-License-Identifier: Apache-2.0
"""A plan looked at again: what still holds on newer samples, and what is dropped whole."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.api.migrations import Amounts, MigrationStatus
from common.cluster.records import NodeName
from rebalancer.planner import Demand, Move, Plan
from rebalancer.planner.plan import Objection
from rebalancer.planner.validation import NOT_NEEDED, Revalidated, revalidate
from rebalancer.refusals import Refusal
from rebalancer.selection import chains_of
from tests.support.oracles.plan_checker import Replay, cycle_faults
from tests.support.worlds.migrations import migration, spec_of
from tests.support.worlds.planner import PlannerWorld
from tests.support.worlds.planner_dice import random_world

seeds = st.integers(0, 10**6)
CEILINGS = {"enabledStrategies": ["ResourceOptimization"]}


def hot_and_cool(config: Any = None, **loads: float) -> PlannerWorld:
    """Return three nodes, of which the first is too hot by one pod."""
    world = PlannerWorld(config=config or CEILINGS)
    for name in ("hot", "low", "mid"):
        world.node(name)
    used = {"big": 40.0, "rest": 50.0, "on-low": 10.0, "on-mid": 20.0, **loads}
    for pod, node in (("big", "hot"), ("rest", "hot"), ("on-low", "low"), ("on-mid", "mid")):
        world.pod(pod, node, used[pod])
    return world


def again(plan: Plan, world: PlannerWorld, *objections: Objection) -> Revalidated:
    chains = chains_of(move for move in plan.moves if move.this_cycle)
    return revalidate(chains, world.demand(), objections)


def told(held: Revalidated) -> list[str]:
    return [f"{m.pod.split('/')[1]} to {m.target}" for chain in held.chains for m in chain]


def reasons(held: Revalidated) -> list[str]:
    return [dropped.why.name for dropped in held.dropped]


def test_what_has_not_changed_still_holds() -> None:
    world = hot_and_cool()
    plan = world.plan()
    held = again(plan, world)
    assert [move for chain in held.chains for move in chain] == list(plan.moves)
    assert held.dropped == ()


def test_the_touched_nodes_are_predicted() -> None:
    world = hot_and_cool()
    held = again(world.plan(), world)
    assert {name: round(level.cpu) for name, level in held.after.items()} == {"hot": 50, "low": 50}


def test_another_target_is_taken_if_the_planned_one_has_become_too_hot() -> None:
    held = again(hot_and_cool().plan(), hot_and_cool(**{"on-low": 60.0}))
    assert told(held) == ["big to mid"]


CLOSED = [{"schedule": "0 22 * * *", "duration": "8h"}]
POOL = {"name": "p", "nodeSelector": "kubernetes.io/hostname=hot"}
OBSERVES = {"ResourceOptimization": "observe"}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"schedule": CLOSED}, "schedule of the configuration"),
        ({"schedules": {"ResourceOptimization": CLOSED}}, "schedule of ResourceOptimization"),
        ({"pools": [{**POOL, "schedule": CLOSED}]}, "schedule of pool p"),
        ({"pools": [{**POOL, "modes": OBSERVES}]}, "by the modes of pool p"),
        ({"namespaces": [{"selector": "", "schedule": CLOSED}]}, "schedule of namespaces[0] (all)"),
        (
            {"namespaces": [{"selector": "", "modes": OBSERVES}]},
            "namespaces[0] (all) only observes",
        ),
    ],
)
def test_a_rule_that_holds_since_the_plan_was_made_stops_it(
    rules: dict[str, Any], why: str
) -> None:
    """A window closes while newer samples are waited for, or a node or namespace is labeled."""
    held = again(hot_and_cool().plan(), hot_and_cool({**CEILINGS, "mode": "act", **rules}))
    assert told(held) == []
    [dropped] = held.dropped
    assert why in dropped.why.message


def test_a_move_that_fits_nowhere_any_more_is_dropped() -> None:
    held = again(hot_and_cool().plan(), hot_and_cool(**{"on-low": 60.0, "on-mid": 60.0}))
    assert (told(held), reasons(held)) == ([], ["AboveCeiling"])


def test_a_move_is_dropped_if_its_source_has_cooled_down() -> None:
    held = again(hot_and_cool().plan(), hot_and_cool(rest=20.0))
    assert (told(held), held.dropped[0].why, held.needless) == ([], NOT_NEEDED, 1)


def test_a_move_off_a_hot_node_is_kept_for_the_spread_that_it_serves_as_well() -> None:
    both = {"enabledStrategies": ["ResourceOptimization", "LoadBalancing"]}
    plan = hot_and_cool(both).plan()
    held = again(plan, hot_and_cool(both, rest=35.0))
    assert plan.moves[0].pod == "default/big"
    assert (told(held)[0], held.needless) == ("big to low", 0)


def test_only_as_many_moves_are_kept_as_the_source_needs() -> None:
    def crowded(load: float) -> PlannerWorld:
        world = PlannerWorld(config=CEILINGS)
        for name in ("hot", "low", "mid"):
            world.node(name)
        for number in range(6):
            world.pod(f"p{number}", "hot", load)
        return world

    plan = crowded(16.5).plan()
    assert len(plan.moves) == 2
    held = again(plan, crowded(15.0))
    assert (len(told(held)), held.needless) == (1, 1)


def test_a_pod_that_is_gone_is_not_moved() -> None:
    later = PlannerWorld(config=CEILINGS)
    for name in ("hot", "low", "mid"):
        later.node(name)
    later.pod("rest", "hot", 90.0)
    assert reasons(again(hot_and_cool().plan(), later)) == ["PodGone"]


def test_a_pod_that_may_no_longer_be_moved_stays_for_the_reason_of_its_gate() -> None:
    later = hot_and_cool()
    later.pdb("strict", {"app": "big"}, allowed=0)
    assert reasons(again(hot_and_cool().plan(), later)) == ["PdbExhausted"]


def test_a_source_that_is_no_longer_measured_gives_nothing() -> None:
    later = hot_and_cool()
    later.node("hot", measured=False)
    assert reasons(again(hot_and_cool().plan(), later)) == ["SourceRefused"]


def test_spread_that_gains_too_little_by_now_is_dropped() -> None:
    config = {"enabledStrategies": ["LoadBalancing"], "minGain": 8.0}

    def pool(high: float) -> PlannerWorld:
        world = PlannerWorld(config=config)
        world.node("high")
        world.node("low")
        world.pod("stays", "high", high)
        world.pod("goes", "high", 20.0)
        world.pod("there", "low", 15.0)
        return world

    plan = pool(30.0).plan()
    assert [move.pod for move in plan.moves] == ["default/goes"]
    assert again(plan, pool(30.0)).dropped == ()
    assert again(plan, pool(16.0)).dropped == ()  # it levels the pool, so little is enough
    assert reasons(again(plan, pool(15.4))) == ["NotWorthIt"]


def making_room(*, tied: float = 30.0, spare: float = 30.0) -> PlannerWorld:
    """Return a hot node whose only movable pod needs room that another has to make."""
    world = PlannerWorld(config=CEILINGS)
    here = {"nodeSelector": {"pool": "x"}}
    world.node("hot", labels={"pool": "x"})
    world.node("full", labels={"pool": "x"})
    world.node("free")
    world.pod("stays", "hot", 60.0, spec=here, kind="none")
    world.pod("tied", "hot", tied, spec=here)
    world.pod("spare", "full", spare)
    world.pod("full-rest", "full", 40.0, spec=here, kind="none")
    return world


def test_a_chain_holds_whole() -> None:
    world = making_room()
    held = again(world.plan(), world)
    assert told(held) == ["spare to free", "tied to full"]
    [[first, second]] = held.chains
    assert (first.needs, second.needs) == ((), (first.uid,))


def test_a_chain_is_dropped_whole() -> None:
    held = again(making_room().plan(), making_room(tied=45.0))
    assert (held.chains, len(held.dropped[0].moves)) == ((), 2)


def test_chains_of_which_one_has_come_to_wait_for_another_are_one() -> None:
    world = PlannerWorld(config=CEILINGS)
    for name in ("hot", "full", "free"):
        world.node(name)
    for pod, node, load in (
        ("stays", "hot", 60.0),
        ("big", "hot", 25.0),
        ("also-stays", "full", 50.0),
        ("spare", "full", 40.0),
    ):
        world.pod(pod, node, load, kind="none" if "stays" in pod else "ReplicaSet")
    plan = world.plan()
    [spare, big] = plan.moves
    # As if there had been room for both when the plan was made.
    chains = ((spare,), (msgspec.structs.replace(big, target=NodeName("full"), chain=1),))
    demand = world.demand()
    held = revalidate(chains, demand)
    assert [[move.pod for move in chain] for chain in held.chains] == [
        ["default/spare", "default/big"]
    ]
    assert held.chains[0][1].needs == (spare.uid,)
    assert_holds_as_it_stands(held, plan, demand)


def objecting_to(*names: str) -> Objection:
    def objection(_: Move, target: NodeName) -> Refusal | None:
        return Refusal("Busy", f"{target} is busy", False) if target in names else None

    return objection


def test_a_target_that_is_objected_to_gives_way_to_an_alternative() -> None:
    world = hot_and_cool()
    assert told(again(world.plan(), world, objecting_to("low"))) == ["big to mid"]


def test_the_first_objection_is_told_if_no_target_is_left() -> None:
    world = hot_and_cool()
    held = again(world.plan(), world, objecting_to("low", "mid"))
    assert held.dropped[0].message == "default/big is not moved after all: low is busy"


def under_maintenance(*, label: bool) -> PlannerWorld:
    world = PlannerWorld(config={"enabledStrategies": ["NodeMaintenance"]})
    world.node("leaving", maintenance=label)
    world.node("other")
    world.pod("p", "leaving", 10.0)
    return world


def test_a_node_is_not_emptied_once_its_label_is_gone() -> None:
    plan = under_maintenance(label=True).plan()
    assert told(again(plan, under_maintenance(label=True))) == ["p to other"]
    assert again(plan, under_maintenance(label=False)).dropped[0].why is NOT_NEEDED


def test_moves_that_began_meanwhile_count_towards_the_limits() -> None:
    later = hot_and_cool({**CEILINGS, "maxInFlightPerNode": 1})
    spec = spec_of(source="hot", target="mid", alternatives=())
    later.state.migrations.upsert(migration(spec, status=MigrationStatus(phase="InProgress")))
    assert reasons(again(hot_and_cool().plan(), later)) == ["Deferred"]


def test_what_is_on_its_way_to_a_node_counts_as_arrived() -> None:
    later = hot_and_cool()
    load = Amounts(cpu_milli=4_000.0)
    under_way = spec_of(source="elsewhere", target="low", alternatives=(), load=load)
    later.state.migrations.upsert(migration(under_way))
    assert told(again(hot_and_cool().plan(), later)) == ["big to mid"]
    asked = Amounts(cpu_milli=10_000.0)
    under_way = spec_of(source="elsewhere", target="mid", alternatives=(), requests=asked)
    later.state.migrations.upsert(migration(under_way))
    assert reasons(again(hot_and_cool().plan(), later)) == ["AboveCeiling"]


@given(seeds)
@settings(max_examples=30)
def test_looking_again_adds_nothing(seed: int) -> None:
    world = random_world(seed)
    plan = world.plan()
    held = again(plan, shaken(world, seed))
    before = {move.uid: move for move in plan.moves if move.this_cycle}
    after = {move.uid: move for chain in held.chains for move in chain}
    dropped = {move.uid for each in held.dropped for move in each.moves}
    assert after.keys() | dropped == before.keys()
    assert not after.keys() & dropped
    for uid, move in after.items():
        assert move.target in (before[uid].target, *before[uid].alternatives)
    assert all(set(move.needs) <= after.keys() for move in after.values())


@given(seeds)
@example(365786)  # a move for the CPU that one for the memory makes unnecessary
@settings(max_examples=30)
def test_looking_again_at_the_same_finds_the_same_needed(seed: int) -> None:
    world = random_world(seed)
    plan = world.plan()
    held = again(plan, world)
    assert NOT_NEEDED not in [dropped.why for dropped in held.dropped]


@given(seeds)
@example(2323)  # a drain to a node whose load is not known
@settings(max_examples=40)
def test_no_step_of_what_is_left_breaks_fit_ceiling_or_limit(seed: int) -> None:
    world = random_world(seed)
    plan = world.plan()
    demand = shaken(world, seed).demand()
    chains = chains_of(move for move in plan.moves if move.this_cycle)
    held = revalidate(chains, demand)
    assert_holds_as_it_stands(held, plan, demand)


def assert_holds_as_it_stands(held: Revalidated, plan: Plan, demand: Demand) -> None:
    # An alternative is only as good as it was when its move came in the order.
    moves = [
        msgspec.structs.replace(move, alternatives=()) for chain in held.chains for move in chain
    ]
    left = msgspec.structs.replace(plan, moves=tuple(moves))
    assert [*Replay(demand, left).steps(), *cycle_faults(demand, left)] == []


def shaken(world: PlannerWorld, seed: int) -> PlannerWorld:
    """Return the cluster a sample later."""
    dice = random.Random(seed)
    for key, used in world.usage.items():
        factor = dice.uniform(0.6, 1.5)
        world.usage[key] = msgspec.structs.replace(
            used, cpu_milli=used.cpu_milli * factor, mem_bytes=used.mem_bytes * factor
        )
    return world
