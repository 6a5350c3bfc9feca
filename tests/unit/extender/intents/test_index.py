# SPDX-License-Identifier: Apache-2.0
"""Replacements of moved pods are directed to targets, each by one intent; other pods are not."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from common.api.migrations import MigrationStatus, ReplacementRef
from common.cluster.records import NodeName, PodUid
from common.load import Load
from extender.intents import Guidance
from tests.support.worlds.intents import IntentWorld


async def moved(world: IntentWorld, **plan: object) -> tuple[str, str]:
    """Move a ReplicaSet's pod from n1; return the Migration and the replacement."""
    old = world.pod(node="n1")
    await world.pass_(60)
    name = world.move(old, **plan)  # type: ignore[arg-type]
    await world.pass_(1)
    return name, world.pod()


async def test_the_replacement_goes_to_the_target_and_keeps_off_the_source() -> None:
    world = IntentWorld()
    name, new = await moved(world)
    assert world.ask(new) == Guidance(
        target=NodeName("n2"), source=NodeName("n1"), preference=False, migration=name
    )


async def test_the_same_pod_gets_the_same_answer_again() -> None:
    world = IntentWorld()
    _, new = await moved(world)
    assert world.ask(new) == world.ask(new)
    assert world.states() == {world.intents.rows()[0].migration: "taken"}


async def test_a_slot_is_given_to_one_pod_only() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    second = world.pod()
    assert world.target(first) == "n2"
    assert world.ask(second) is None


async def test_pods_of_others_are_not_directed() -> None:
    world = IntentWorld()
    await moved(world)
    assert world.ask(world.pod(owner="rs-2")) is None
    assert world.ask(world.pod(owner="")) is None
    assert world.ask(world.pod(kind="DaemonSet")) is None


async def test_the_moved_pod_itself_and_older_siblings_are_not_directed() -> None:
    world = IntentWorld()
    old, sibling = world.pod(), world.pod()
    await world.pass_(2)
    world.move(old)
    assert world.ask(old) is None
    assert world.ask(sibling) is None


async def test_a_pod_of_the_same_second_is_a_replacement() -> None:
    world = IntentWorld()
    world.move(world.pod(node="n1"))
    assert world.target(world.pod()) == "n2"


@pytest.mark.parametrize(
    ("names", "target"),
    [
        (("n1", "n2", "n3"), "n2"),
        (("n1", "n3", "n4"), "n4"),
        (("n3", "n1"), "n3"),
        (("n1", "n5"), None),
        ((), None),
    ],
)
async def test_the_best_offered_node_is_named(names: tuple[str, ...], target: str | None) -> None:
    world = IntentWorld()
    _, new = await moved(world, alternatives=("n4", "n3"))
    found = world.ask(new, names)
    assert found is not None
    assert found.target == target


async def test_a_slot_whose_target_is_offered_is_preferred() -> None:
    world = IntentWorld()
    one, two = world.pod(node="n1"), world.pod(node="n1")
    await world.pass_(1)
    first = world.move(one, target="n2", alternatives=("n5",))
    await world.pass_(1)
    second = world.move(two, target="n3")
    await world.pass_(1)
    found = world.ask(world.pod(), ("n3", "n5"))
    assert found is not None
    assert (found.migration, found.target) == (second, "n3")
    found = world.ask(world.pod(), ("n5", "n1"))
    assert found is not None
    assert (found.migration, found.target) == (first, "n5")


async def test_the_oldest_of_equal_slots_is_given_first() -> None:
    world = IntentWorld()
    names = []
    for old in [world.pod(node="n1") for _ in range(3)]:
        await world.pass_(1)
        names.append(world.move(old))
    found = [world.ask(world.pod()) for _ in range(3)]
    assert [each.migration for each in found if each] == names


async def test_the_slot_of_a_pod_that_is_leaving_is_given_first() -> None:
    world = IntentWorld()
    staying, leaving = world.pod(node="n1"), world.pod(node="n1")
    await world.pass_(1)
    first = world.move(staying, target="n2")
    await world.pass_(1)
    second = world.move(leaving, target="n3")
    world.delete(leaving)
    found = [world.ask(world.pod()) for _ in range(2)]
    assert [each.migration for each in found if each] == [second, first]


async def test_a_stateful_sets_pod_is_known_by_its_name() -> None:
    world = IntentWorld()
    old = world.pod("db-1", owner="sts", kind="StatefulSet", node="n1")
    world.move(old, target="n3")
    world.delete(old)
    other = world.pod("db-2", owner="sts", kind="StatefulSet")
    same = world.pod("db-1", owner="sts", kind="StatefulSet")
    assert world.ask(other) is None
    assert world.target(same) == "n3"


async def test_an_indexed_jobs_pod_is_known_by_its_index() -> None:
    world = IntentWorld()
    world.move(world.pod(owner="job", kind="Job", node="n1", index=0), target="n3")
    other = world.pod(owner="job", kind="Job", index=1)
    same = world.pod(owner="job", kind="Job", index=0)
    assert world.ask(other) is None
    assert world.target(same) == "n3"


async def test_the_pods_of_a_job_without_index_are_not_distinguished() -> None:
    world = IntentWorld()
    world.move(world.pod(owner="job", kind="Job", node="n1"), target="n3")
    assert world.ask(world.pod(owner="job", kind="Job")) is None
    assert world.intents.held() == {}


async def test_a_bare_pods_copy_is_known_by_its_name() -> None:
    world = IntentWorld()
    old = world.pod("tool", owner="", node="n1")
    world.move(old, target="n3", replacement_name="tool-moved")
    assert world.ask(world.pod("tool-other", owner="")) is None
    assert world.target(world.pod("tool-moved", owner="")) == "n3"


async def test_a_slot_returns_when_its_pod_is_deleted_unbound() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    assert world.target(first) == "n2"
    world.delete(first)
    assert world.target(world.pod()) == "n2"


async def test_a_returned_slot_has_no_holder_and_no_heir() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    world.ask(first)
    assert [held.pod for held in world.intents.held()[NodeName("n2")].intents] == [first]
    assert list(world.intents.predecessors()) == [first]
    world.delete(first)
    assert [held.pod for held in world.intents.held()[NodeName("n2")].intents] == [""]
    assert world.intents.predecessors() == {}


async def test_a_pod_that_is_gone_takes_no_slot_though_it_is_asked_about() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    late = world.record(first)
    world.delete(first)
    assert world.intents.assign_slot(late, ("n2",)) is None
    assert world.target(world.pod()) == "n2"


async def test_a_pod_that_was_lost_from_sight_may_come_back() -> None:
    """A version of it could not be read; the next one can."""
    world = IntentWorld()
    _, new = await moved(world)
    world.state.pods.forget(f"shop/{new}")
    world.state.pods.upsert(world.pods[new])
    assert world.target(new) == "n2"


async def test_a_pod_without_a_uid_takes_no_slot() -> None:
    world = IntentWorld()
    _, new = await moved(world)
    nameless = msgspec.structs.replace(world.record(new), uid=PodUid(""))
    assert world.intents.assign_slot(nameless, ("n2",)) is None
    assert world.target(new) == "n2"


async def test_a_pod_that_the_kubelet_rejects_is_not_sent_there_again() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    assert world.target(first) == "n2"
    world.bind(first, "n2")
    world.delete(first)
    assert world.ask(world.pod()) is None


async def test_a_slot_name_taken_over_by_a_new_pod_is_returned() -> None:
    """A StatefulSet's next pod appears in one event with the end of the last."""
    world = IntentWorld()
    old = world.pod("db-0", owner="sts", kind="StatefulSet", node="n1")
    world.move(old, target="n3")
    world.delete(old)
    first = world.pod("db-0", owner="sts", kind="StatefulSet")
    assert world.target(first) == "n3"
    second = world.pod("db-0", owner="sts", kind="StatefulSet")
    assert world.target(second) == "n3"


@pytest.mark.parametrize(
    ("node", "outcome"),
    [("n2", "AsPlanned"), ("n3", "Alternative"), ("n4", "Elsewhere"), ("n1", "BackOnSource")],
)
async def test_where_it_lands_is_counted_once(node: str, outcome: str) -> None:
    world = IntentWorld()
    name, new = await moved(world, alternatives=("n3",))
    world.ask(new)
    world.bind(new, node)
    world.bind(new, node)
    world.replaced(name, new, node, phase="Completed")
    world.withdraw(name)
    assert world.counted() == {outcome: 1}


async def test_a_pod_that_landed_without_asking_us_fills_the_nearest_slot() -> None:
    """Another replica of the extender was asked, or none at all."""
    world = IntentWorld()
    one, two = world.pod(node="n1"), world.pod(node="n1")
    await world.pass_(1)
    first = world.move(one, target="n2")
    await world.pass_(1)
    second = world.move(two, target="n3", alternatives=("n4",))
    await world.pass_(1)
    world.bind(world.pod(), "n4")
    assert world.states() == {first: "open", second: "filled"}
    assert set(world.intents.held()) == {"n2"}
    assert world.counted() == {"Alternative": 1}


async def test_after_five_seconds_in_vain_the_target_is_a_preference() -> None:
    world = IntentWorld()
    _, new = await moved(world)
    calls = []
    for pause in (0, 4.9, 0.2, 60):
        await world.pass_(pause)
        calls.append(world.ask(new))
    assert [call.preference for call in calls if call] == [False, False, True, True]
    world.delete(new)
    fresh = world.ask(world.pod())
    assert fresh is not None
    assert not fresh.preference


async def test_an_expired_intent_directs_no_pod_and_is_counted_once() -> None:
    world = IntentWorld()
    name, new = await moved(world, lasts_s=10)
    assert world.target(new) == "n2"
    await world.pass_(9)
    assert world.ask(new) is None
    assert world.ask(world.pod()) is None
    assert world.intents.held() == {}
    assert world.intents.source_of(world.record(new)) is None
    world.set_status(name, phase="InProgress")
    world.bind(new, "n2")
    assert world.counted() == {"Expired": 1}


async def test_from_the_eviction_on_an_intent_has_the_time_of_the_replacement() -> None:
    world = IntentWorld()
    name, new = await moved(world, lasts_s=10)
    due = datetime.fromtimestamp(world.clock.now() + 300, UTC)
    world.set_status(name, evicted_at=datetime.fromtimestamp(world.clock.now(), UTC))
    await world.pass_(9)
    assert world.target(new) == "n2", "as long again as it had at first"
    world.set_status(name, evicted_at=datetime.fromtimestamp(0, UTC), replacement_deadline=due)
    await world.pass_(290)
    assert world.target(new) == "n2"
    await world.pass_(1)
    assert world.ask(new) is None
    assert world.counted() == {"Expired": 1}


async def test_an_expired_intent_is_back_when_the_eviction_is_observed() -> None:
    world = IntentWorld()
    name, new = await moved(world, lasts_s=10)
    await world.pass_(9)
    assert world.ask(new) is None
    due = datetime.fromtimestamp(world.clock.now() + 300, UTC)
    world.set_status(name, evicted_at=datetime.fromtimestamp(0, UTC), replacement_deadline=due)
    assert world.target(new) == "n2"


async def test_clocks_that_differ_do_not_end_an_intent_before_the_rebalancer_does() -> None:
    world = IntentWorld(skew_s=30)
    _, new = await moved(world, lasts_s=10)
    await world.pass_(38)
    assert world.target(new) == "n2"
    await world.pass_(1)
    assert world.ask(new) is None


async def test_a_replacement_that_was_stamped_before_the_plan_is_directed() -> None:
    world = IntentWorld()
    old, sibling = world.pod(node="n1"), world.pod()
    new = world.pod()
    await world.pass_(5)
    name = world.move(old)
    assert world.ask(new) is None
    world.set_status(name, phase="InProgress", present=(sibling,))
    assert world.ask(sibling) is None
    assert world.target(new) == "n2"


async def test_an_intent_that_was_filled_in_time_does_not_expire() -> None:
    world = IntentWorld()
    _, new = await moved(world, lasts_s=10)
    world.ask(new)
    world.bind(new, "n2")
    await world.pass_(60)
    world.intents.held()
    assert world.counted() == {"AsPlanned": 1}
    assert world.intents.predecessors() == {PodUid(new): Load(100.0, 1000.0)}


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
async def test_a_closed_migration_directs_no_pod(phase: str) -> None:
    world = IntentWorld()
    name, new = await moved(world)
    assert world.target(new) == "n2"
    world.set_status(name, phase=phase)
    assert world.ask(new) is None
    assert world.intents.held() == {}
    assert world.counted() == {"Withdrawn": 1}


async def test_a_deleted_migration_directs_no_pod() -> None:
    world = IntentWorld()
    name, new = await moved(world)
    world.withdraw(name)
    assert world.ask(new) is None
    assert world.counted() == {"Withdrawn": 1}


async def test_the_source_is_named_without_taking_the_slot() -> None:
    world = IntentWorld()
    _, first = await moved(world)
    assert world.intents.source_of(world.record(first)) == "n1"
    assert world.intents.source_of(world.record(world.pod(owner="rs-2"))) is None
    second = world.pod()
    assert world.target(second) == "n2"
    assert world.intents.source_of(world.record(first)) is None
    assert world.intents.source_of(world.record(second)) == "n1"


async def test_room_is_held_until_the_replacement_has_a_node() -> None:
    world = IntentWorld()
    name, new = await moved(world, priority=7)
    (held,) = world.intents.held()[NodeName("n2")].intents
    assert (held.migration, held.pod, held.priority) == (name, "", 7)
    world.ask(new)
    room = world.intents.held()[NodeName("n2")]
    assert [(each.pod, each.load) for each in room.intents] == [(new, Load(100.0, 1000.0))]
    assert room.requests(7) == Load(50.0, 500.0)
    assert room.requests(8) == Load(0.0, 0.0)
    assert room.requests(0, without={PodUid(new)}) == Load(0.0, 0.0)
    world.bind(new, "n3")
    assert world.intents.held() == {}


async def test_what_is_held_is_the_same_object_while_nothing_changes() -> None:
    world = IntentWorld()
    _, new = await moved(world)
    world.ask(new)
    assert world.intents.held() is world.intents.held()
    assert world.intents.predecessors() is world.intents.predecessors()
    before = world.intents.held()
    world.bind(new, "n2")
    assert world.intents.held() is not before


async def test_a_replacement_inherits_its_predecessors_load_also_after_the_end() -> None:
    world = IntentWorld()
    name, new = await moved(world)
    inherited = {PodUid(new): Load(100.0, 1000.0)}
    assert world.intents.predecessors() == {}
    world.ask(new)
    assert world.intents.predecessors() == inherited
    world.bind(new, "n2")
    world.replaced(name, new, "n2", phase="Completed", outcome="AsPlanned")
    assert world.intents.predecessors() == inherited
    assert world.restarted().predecessors() == inherited
    world.withdraw(name)
    assert world.intents.predecessors() == {}


async def test_no_pod_is_directed_before_everything_was_listed() -> None:
    world = IntentWorld(live=False)
    _, new = await moved(world)
    assert world.ask(new) is None
    assert world.intents.source_of(world.record(new)) is None
    world.intents.begin()
    assert world.target(new) == "n2"


@pytest.mark.parametrize("migrations_first", [False, True])
async def test_a_restart_finds_the_slots_that_are_filled(migrations_first: bool) -> None:
    world = IntentWorld()
    names = []
    olds = [world.pod(node="n1") for _ in range(3)]
    for old, target in zip(olds, ("n2", "n3", "n4"), strict=True):
        await world.pass_(1)
        names.append(world.move(old, target=target))
    for old in olds:
        world.delete(old)
    for node in ("n4", "n3"):
        new = world.pod()
        world.ask(new, (node,))
        world.bind(new, node)
    again = world.restarted(migrations_first=migrations_first)
    assert world.states(again) == world.states()
    assert world.states() == {names[0]: "open", names[1]: "filled", names[2]: "filled"}


@pytest.mark.parametrize("migrations_first", [False, True])
async def test_a_restart_trusts_the_status_of_the_rebalancer_first(migrations_first: bool) -> None:
    world = IntentWorld()
    first = world.move(world.pod(node="n1"), target="n2")
    second = world.move(world.pod(node="n1"), target="n3")
    await world.pass_(1)
    new = world.pod(node="n2")
    world.replaced(second, new, "n2")
    again = world.restarted(migrations_first=migrations_first)
    assert world.states(again) == {first: "open", second: "filled"}


async def test_a_sibling_created_while_no_extender_ran_takes_no_slot_of_a_pod_that_stays() -> None:
    world = IntentWorld()
    old = world.pod(node="n1")
    name = world.move(old, target="n2")
    await world.pass_(1)
    world.pod(node="n4")
    again = world.restarted()
    assert world.states(again) == {name: "open"}


async def test_the_copy_of_a_bare_pod_comes_while_the_pod_still_runs() -> None:
    world = IntentWorld()
    old = world.pod("solo", owner="", node="n1")
    name = world.move(old, target="n2", replacement_name="copy")
    await world.pass_(1)
    world.pod("copy", owner="", node="n2")
    assert world.states(world.restarted()) == {name: "filled"}


async def test_the_replacement_of_a_closed_migration_takes_no_other_slot() -> None:
    world = IntentWorld()
    first = world.move(world.pod(node="n1"), target="n2")
    second = world.move(world.pod(node="n1"), target="n2")
    await world.pass_(1)
    new = world.pod(node="n2")
    world.replaced(first, new, "n2", phase="Completed")
    assert world.states(world.restarted()) == {second: "open"}


async def test_an_older_pod_of_the_same_second_is_not_taken_for_the_replacement() -> None:
    world = IntentWorld()
    world.pod(node="n4")
    name = world.move(world.pod(node="n1"), target="n2")
    assert world.states() == {name: "open"}
    assert world.states(world.restarted()) == {name: "open"}
    assert world.target(world.pod()) == "n2"


async def test_a_sibling_of_the_same_second_on_the_target_is_no_replacement() -> None:
    world = IntentWorld()
    world.pod(node="n2")
    name = world.move(world.pod(node="n1"), target="n2")
    assert world.states() == {name: "open"}
    assert world.target(world.pod()) == "n2"


async def test_the_rebalancer_names_a_replacement_that_we_did_not_see_land() -> None:
    world = IntentWorld()
    name, first = await moved(world)
    world.ask(first)
    world.replaced(name, "unseen", "n2")
    assert world.states() == {name: "filled"}
    assert world.ask(first) is None
    assert world.counted() == {"AsPlanned": 1}


async def test_a_migration_that_ends_with_a_replacement_we_did_not_see_counts_all_the_same() -> (
    None
):
    world = IntentWorld()
    name, _ = await moved(world)
    world.replaced(name, "unseen", "n1", phase="Completed")
    assert world.counted() == {"BackOnSource": 1}


async def test_what_had_happened_before_the_start_is_not_counted_again() -> None:
    world = IntentWorld(live=False)
    name, new = await moved(world)
    world.delete(name)
    world.bind(new, "n2")
    world.intents.begin()
    assert world.states() == {name: "filled"}
    world.withdraw(name)
    assert world.counted() == {}


async def test_a_migration_recreated_under_its_name_starts_from_the_beginning() -> None:
    world = IntentWorld()
    name, new = await moved(world)
    world.ask(new)
    world.bind(new, "n2")
    before = world.migrations[name]
    world.state.migrations.upsert(
        type(before)(
            metadata=type(before.metadata)(
                name=name, uid="another", creation_timestamp=world.now()
            ),
            spec=before.spec,
        )
    )
    assert world.states() == {name: "open"}
    assert world.counted() == {"AsPlanned": 1}


async def test_rows_say_what_each_intent_waits_for() -> None:
    world = IntentWorld()
    name, new = await moved(world, alternatives=("n3",))
    world.ask(new)
    (row,) = world.intents.rows()
    assert (row.migration, row.state, row.holder, row.source, row.target, row.alternatives) == (
        *(name, "taken", new, "n1", "n2"),
        ("n3",),
    )


async def test_a_migration_that_had_expired_before_it_arrived_is_not_counted() -> None:
    world = IntentWorld()
    await moved(world, lasts_s=0)
    assert world.intents.rows() == []
    assert world.counted() == {}


async def test_many_generations_leave_nothing_behind() -> None:
    world = IntentWorld()
    for number in range(200):
        old = world.pod(node="n1")
        status = MigrationStatus(phase="Pending")
        name = world.move(old, status=status, lasts_s=3)
        new = world.pod()
        world.ask(new)
        match number % 5:
            case 0:
                world.bind(new, "n2")
                world.replaced(name, new, "n2", phase="Completed")
            case 1:
                world.set_status(name, phase="Failed")
            case 2:
                await world.pass_(4)
            case 3:
                world.delete(new)
                new = world.pod(node="n3")
            case _:
                world.set_status(name, phase="Failed", replacement=ReplacementRef(uid="ghost"))
        world.intents.held()
        world.withdraw(name)
        world.delete(old)
        world.delete(new)
    intents = world.intents
    assert not intents.rows()
    assert not intents.held()
    assert not intents.predecessors()
    slots = intents._slots
    left = (slots._by_name, slots._by_key, slots._by_pod, intents._deleted)
    assert [*left, intents._ended, intents._claimed] == [{}] * 6


def test_a_pod_of_another_namespace_takes_no_slot_by_a_forged_owner() -> None:
    world = IntentWorld()
    name = world.move(world.pod(node="n1"))
    thief = world.pod(namespace="thief")
    assert world.ask(thief) is None
    assert world.intents.source_of(world.record(thief)) is None
    world.bind(thief, "n2")
    assert world.states() == {name: "open"}
    assert world.target(world.pod()) == "n2"


def test_a_pod_of_another_kind_takes_no_slot_by_the_same_uid() -> None:
    world = IntentWorld()
    name = world.move(world.pod(node="n1"))
    forged = world.pod(kind="ReplicationController")
    assert world.ask(forged) is None
    world.bind(forged, "n2")
    assert world.states() == {name: "open"}


def test_a_restart_does_not_take_a_forged_pod_for_the_replacement() -> None:
    world = IntentWorld()
    moved = world.pod(node="n1")
    name = world.move(moved)
    world.delete(moved)
    world.pod(namespace="thief", node="n2")
    assert world.states(world.restarted()) == {name: "open"}
