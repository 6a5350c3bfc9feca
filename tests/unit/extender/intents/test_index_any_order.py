# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order: one slot, one pod, and what is filled stays filled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.cache.replacements import key_of_migration, key_of_pod
from common.cluster.interning import Interner
from common.cluster.records import PodRecord, pod_record
from extender.intents import IntentRow
from tests.support.worlds.intents import NODES, IntentWorld

Event = Callable[[], None]


class Family(NamedTuple):
    """Pods that replace each other, and how a new one is made."""

    owner: str
    kind: str
    name: str = ""
    number: int | None = None


FAMILIES = (
    Family("rs-1", "ReplicaSet"),
    Family("rs-2", "ReplicaSet"),
    Family("sts", "StatefulSet", "db-0"),
    Family("sts", "StatefulSet", "db-1"),
    Family("job", "Job", number=0),
    Family("job", "Job", number=1),
    Family("", "", "tool-moved"),
)
nodes = st.sampled_from(NODES)
some_nodes = st.sets(nodes, max_size=4)
picks = st.integers(0, 1000)


class Delayed(IntentWorld):
    """A world whose watches of pods and of Migrations run late, each on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.late: dict[str, list[Event]] = {"pods": [], "migrations": []}
        for kind, queue in self.late.items():
            table: Any = getattr(self.state, kind)
            for verb in ("upsert", "delete"):
                setattr(table, verb, self._later(queue, getattr(table, verb)))

    @staticmethod
    def _later(queue: list[Event], act: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda wire: queue.append(lambda: act(wire))


class AnyOrder(RuleBasedStateMachine):
    """Moves, pods and schedulers, with checks after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Delayed()
        self.shared = Interner()
        self.family: dict[str, Family] = {}
        self.sightings: dict[str, IntentRow] = {}
        self.bound_once: set[str] = set()
        self.gone: set[str] = set()
        self.answers: dict[str, str] = {}

    @rule(family=st.sampled_from(FAMILIES), node=st.one_of(st.just(""), nodes))
    def pod(self, family: Family, node: str) -> None:
        if family.name and any(self.family[uid] == family for uid in self.world.pods):
            return
        self._tick(1)
        uid = self.world.pod(
            family.name, owner=family.owner, kind=family.kind, node=node, index=family.number
        )
        self.family[uid] = family
        if node:
            self.bound_once.add(uid)

    @precondition(lambda self: self.world.pods)
    @rule(pick=picks, goal=nodes, others=some_nodes, lasts_s=st.sampled_from([5, 300]))
    def move(self, pick: int, goal: str, others: set[str], lasts_s: int) -> None:
        uid = self._chosen(self.world.pods, pick)
        if uid in self.world.migrations or uid in self.gone:
            return
        self._tick(1)
        bare = not self.family[uid].owner
        self.world.move(
            uid,
            target=goal,
            alternatives=tuple(sorted(others - {goal})),
            lasts_s=lasts_s,
            replacement_name=FAMILIES[-1].name if bare else "",
        )

    @precondition(lambda self: self.world.pods)
    @rule(pick=picks, names=some_nodes)
    def ask(self, pick: int, names: set[str]) -> None:
        uid = self._chosen(self.world.pods, pick)
        record = self._record(uid)
        if record.node:
            return
        before = {row.migration: row for row in self.world.intents.rows()}
        found = self.world.intents.assign_slot(record, names)
        if found is None:
            assert not any(self._suits(row, record) for row in before.values())
            assert not any(row.holder == uid for row in before.values())
            return
        row = before[found.migration]
        assert row.holder in ("", uid)
        assert row.holder == uid or self._suits(row, record)
        ranked = [name for name in (row.target, *row.alternatives) if name in names]
        assert found.target == (ranked[0] if ranked else None)
        assert found.source == row.source
        repeated = self.answers.get(uid)
        if repeated in before and before[repeated].holder == uid:
            assert found.migration == repeated
        self.answers[uid] = found.migration

    @precondition(lambda self: self.world.pods)
    @rule(pick=picks, node=nodes)
    def bind(self, pick: int, node: str) -> None:
        uid = self._chosen(self.world.pods, pick)
        if uid not in self.bound_once:
            self.world.bind(uid, node)
            self.bound_once.add(uid)

    @precondition(lambda self: self.world.pods)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        uid = self._chosen(self.world.pods, pick)
        self.world.delete(uid)
        self.gone.add(uid)

    @precondition(lambda self: self.world.migrations)
    @rule(pick=picks, phase=st.sampled_from(["InProgress", "Completed", "Failed", None]))
    def end(self, pick: int, phase: str | None) -> None:
        name = self._chosen(self.world.migrations, pick)
        if phase is None:
            self.world.withdraw(name)
        else:
            self.world.set_status(name, phase=phase)

    @rule(kind=st.sampled_from(["pods", "migrations"]), count=st.integers(1, 5))
    def deliver(self, kind: str, count: int) -> None:
        queue = self.world.late[kind]
        for event in queue[:count]:
            event()
        del queue[:count]

    @rule(seconds=st.sampled_from([1, 6]))
    def wait(self, seconds: int) -> None:
        self._tick(seconds)

    @invariant()
    def nothing_is_given_twice_and_what_is_filled_stays_filled(self) -> None:
        rows = {row.migration: row for row in self.world.intents.rows()}
        holders = [row.holder for row in rows.values() if row.holder]
        assert len(holders) == len(set(holders))
        for name, old in self.sightings.items():
            new = rows.get(name)
            # A name whose Migration ended may come back as another one.
            if new is None or new.deadline_s != old.deadline_s:
                continue
            if old.state == "filled":
                assert (new.state, new.holder, new.node) == ("filled", old.holder, old.node)
            if old.state == "taken" and new.holder != old.holder:
                assert old.holder in self.gone
                assert old.holder not in self.bound_once or new.state != "taken"
        self.sightings = rows

    @invariant()
    def nothing_that_has_run_out_is_kept(self) -> None:
        now_s = self.world.clock.now()
        rows = self.world.intents.rows()
        assert all(row.deadline_s > now_s for row in rows if row.state != "filled")
        unfilled = {row.target for row in rows if row.state != "filled"}
        assert set(self.world.intents.held()) == unfilled
        inherited = self.world.intents.predecessors()
        assert {row.holder for row in rows if row.holder} <= set(inherited)

    def _suits(self, row: IntentRow, pod: PodRecord) -> bool:
        """Return whether an open slot is for this pod, as far as the index knows."""
        record = self.world.state.migrations.records.get(row.migration)
        if record is None or row.state != "open" or pod.uid == record.pod_uid:
            return False
        late = pod.uid in self.gone
        same = key_of_migration(record) == key_of_pod(pod)
        return same and pod.created_s >= record.created_s and not late

    def _record(self, uid: str) -> PodRecord:
        return pod_record(self.world.pods[uid], self.shared)

    def _chosen(self, among: Any, pick: int) -> str:
        names = sorted(among)
        found: str = names[pick % len(names)]
        return found

    def _tick(self, seconds: float) -> None:
        asyncio.run(self.world.pass_(seconds))


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase


@settings(max_examples=60)
@given(
    plans=st.lists(st.tuples(nodes, some_nodes), min_size=1, max_size=5),
    landings=st.lists(st.tuples(st.booleans(), nodes), max_size=6),
    migrations_first=st.booleans(),
)
def test_a_restart_directs_pods_as_before(
    plans: list[tuple[str, set[str]]],
    landings: list[tuple[bool, str]],
    migrations_first: bool,
) -> None:
    world = IntentWorld()
    olds = [world.pod(node="n1") for _ in plans]
    for old, (target, others) in zip(olds, plans, strict=True):
        asyncio.run(world.pass_(1))
        world.move(old, target=target, alternatives=tuple(sorted(others - {target})))
    for old in olds:
        world.delete(old)
    for obedient, node in landings:
        asyncio.run(world.pass_(1))
        new = world.pod()
        chosen = world.target(new)
        world.bind(new, chosen if obedient and chosen else node)
    again = world.restarted(migrations_first=migrations_first)
    before, after = world.states(), world.states(again)
    assert sorted(before.values()) == sorted(after.values())
    if all(obedient for obedient, _ in landings):
        assert before == after
        fresh = world.record(world.pod())
        assert again.assign_slot(fresh, NODES) == world.intents.assign_slot(fresh, NODES)
