"""The index over open Migrations: which pod is to go where, and how much room is held.

It is fed by the listeners of the tables, in any order across kinds, and kept in step with
what exists: a Migration that ends, expires or vanishes takes its slot along. What cannot
be read from the cluster, the slot of a pod that has no node yet, is given anew when that
pod is asked about again; so a restart loses nothing. Until `begin`, when everything has
been listed once, the index only collects: the first Migration heard of must not take the
replacement of another for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Final

from common.clock import Clock
from common.cluster.migrations import MigrationRecord, Outcome
from common.cluster.records import NodeName, PodRecord, PodUid
from common.cluster.replacing import (
    Key,
    candidates,
    has_replaced,
    key_of_migration,
    key_of_pod,
    nearness,
)
from common.cluster.snapshot import Snapshot
from common.load import Load
from common.metrics import Metrics
from extender.intents.slots import NOBODY, Slot, Slots
from extender.intents.values import Guidance, Held, HeldIntent, IntentRow

PATIENCE_S: Final = 5.0
"""A pod that is still asked about after this long was not taken by its one node."""

EXPIRED: Final = "Expired"
WITHDRAWN: Final = "Withdrawn"
_REMEMBERED: Final = 1_000
_OUTCOMES: Final = (
    Outcome.AS_PLANNED.value,
    Outcome.ALTERNATIVE.value,
    Outcome.ELSEWHERE.value,
    Outcome.BACK_ON_SOURCE.value,
    EXPIRED,
    WITHDRAWN,
)


class Intents:
    """Steers the replacements of moved pods; one per process."""

    def __init__(
        self,
        cluster: Callable[[], Snapshot],
        *,
        clock: Clock,
        metrics: Metrics,
        patience_s: float = PATIENCE_S,
        skew_s: float = 0.0,
    ) -> None:
        """Steer by what the cluster shows; clocks may differ from the rebalancer's by `skew_s`."""
        self._cluster = cluster
        self._clock = clock
        self._patience_s = patience_s
        self._skew_s = skew_s
        self._live = False
        self._slots = Slots()
        self._ended: dict[str, tuple[PodUid, Load]] = {}
        """Replacements by closed Migrations, which may not be taken for anybody else's."""
        self._spoken_for: dict[PodUid, str] = {}
        self._gone: dict[PodUid, None] = {}
        """Pods that went lately: the scheduler may still ask about them, and must get no slot."""
        self._first_deadline_s = inf
        self._held: Mapping[NodeName, Held] | None = None
        self._predecessors: Mapping[PodUid, Load] | None = None
        total = metrics.counter("intents_total", "What became of intents.", ("outcome",))
        self._totals = {outcome: total.labels(outcome) for outcome in _OUTCOMES}
        metrics.gauge("intents_open", "Intents whose pod has no node yet.").set_function(
            lambda: float(sum(not slot.filled for slot in self._slots))
        )

    @property
    def live(self) -> bool:
        """Tell whether the index has begun to steer."""
        return self._live

    def begin(self) -> None:
        """Steer from now on: pods and Migrations have been listed once."""
        if self._live:
            return
        for slots in self._slots.groups():
            self._settle(slots)
        self._live = True

    def on_migration(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        """Take note of a Migration that came, changed or went."""
        self._touch()
        if old is not None and (new is None or new.uid != old.uid):
            self._forget(old.name)
        if new is None:
            return
        if not new.open:
            self._close(new)
        elif (slot := self._slots.get(new.name)) is not None:
            slot.migration = new
            self._believe_status(slot)
        else:
            self._open(new)

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Take note of a pod that came, got a node or went."""
        if not self._slots:
            return
        if old is not None and (new is None or new.uid != old.uid):
            self._pod_went(old)
            old = None
        if new is None:
            return
        self._gone.pop(new.uid, None)
        if new.node and (old is None or not old.node):
            self._pod_landed(new)

    def guidance(self, pod: PodRecord, names: Collection[str]) -> Guidance | None:
        """Say where a pod is to go, and keep that slot for it; the same again when repeated."""
        self._expire()
        if not self._live or not self._slots:
            return None
        slot = self._slots.of_pod(pod.uid)
        key = self._key(pod) if slot is None else slot.key
        if key is None:
            return None
        # Looked up several times: a list of thousands would be searched each time.
        shown = frozenset(names)
        if (
            slot is None
            and (slot := self._slots.best_for(pod, key, shown, self._leaves)) is not None
        ):
            self._slots.take(slot, pod.uid)
            self._touch()
        return None if slot is None else self._guide(slot, shown)

    def source_of(self, pod: PodRecord) -> NodeName | None:
        """Return where a pod's predecessor was moved away from; no slot is taken."""
        self._expire()
        slot = self._slots.of_pod(pod.uid)
        if slot is None and (key := self._key(pod)) is not None:
            slot = self._slots.best_for(pod, key, (), self._leaves)
        return None if slot is None else slot.migration.source

    def held(self) -> Mapping[NodeName, Held]:
        """Return the room that is held on targets; the same object until that changes."""
        self._expire()
        if self._held is None:
            by_target: dict[NodeName, list[HeldIntent]] = {}
            for slot in self._slots:
                if not slot.filled:
                    by_target.setdefault(slot.migration.target, []).append(_held(slot))
            self._held = {node: Held(tuple(intents)) for node, intents in by_target.items()}
        return self._held

    def predecessors(self) -> Mapping[PodUid, Load]:
        """Return what the pods used that these pods replace."""
        if self._predecessors is None:
            holders = {slot.holder: slot.load for slot in self._slots if not slot.free}
            self._predecessors = {**dict(self._ended.values()), **holders}
        return self._predecessors

    def rows(self) -> Sequence[IntentRow]:
        """Return all intents, for people."""
        self._expire()
        return [_row(slot) for slot in sorted(self._slots, key=lambda slot: slot.age)]

    def _guide(self, slot: Slot, names: Collection[str]) -> Guidance:
        now_s = self._clock.monotonic()
        if slot.asked_s is None:
            slot.asked_s = now_s
        return Guidance(
            target=slot.choice(names),
            source=slot.migration.source,
            preference=now_s - slot.asked_s >= self._patience_s,
            migration=slot.migration.name,
        )

    def _key(self, pod: PodRecord) -> Key | None:
        """Return what a pod may take a slot by; None if there is none for it."""
        if not self._live or pod.node or pod.uid == NOBODY:
            return None
        if pod.uid in self._gone or pod.uid in self._spoken_for:
            return None
        key = key_of_pod(pod)
        return key if key is not None and self._slots.of_key(key) else None

    def _leaves(self, uid: PodUid) -> bool:
        """Tell whether a pod is gone or about to be."""
        pod = self._cluster().pods.get(uid)
        return pod is None or pod.terminating

    def _open(self, migration: MigrationRecord) -> None:
        key = key_of_migration(migration)
        # One that had run out before we heard of it is no news to anybody.
        if key is None or self._is_over(migration):
            return
        slot = Slot(key, migration)
        self._slots.add(slot)
        self._first_deadline_s = min(self._first_deadline_s, migration.due_s + self._skew_s)
        if self._live:
            self._settle([slot], sure=True)

    def _close(self, migration: MigrationRecord) -> None:
        slot = self._slots.get(migration.name)
        found = migration.replacement_uid
        if slot is not None:
            slot.migration = migration
            self._believe_status(slot)
            found = found or (slot.holder if slot.filled else NOBODY)
            self._drop(slot)
        if found and migration.name not in self._ended:
            load = Load(migration.load_cpu_milli, migration.load_mem_bytes)
            self._ended[migration.name] = found, load
            self._spoken_for[found] = migration.name

    def _forget(self, name: str) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            self._drop(slot)
        uid, _ = self._ended.pop(name, (NOBODY, None))
        if self._spoken_for.get(uid) == name:
            del self._spoken_for[uid]

    def _drop(self, slot: Slot) -> None:
        if not slot.filled and self._live:
            self._totals[WITHDRAWN].inc()
        self._remove(slot)

    def _remove(self, slot: Slot) -> None:
        self._slots.remove(slot)
        if not self._slots:
            self._gone.clear()

    def _settle(self, slots: Collection[Slot], *, sure: bool = False) -> None:
        """Find out which slots of one key existing pods have filled already.

        `sure` leaves out pods of the Migration's own second. Nothing is evicted before we
        know of it, so while we watch such a pod is a sibling that was there before.
        """
        for slot in slots:
            self._believe_status(slot)
        slots = [slot for slot in slots if slot.free and self._may_be_filled(slot)]
        pods = candidates(slots[0].migration, self._cluster()) if slots else ()
        pairs = [
            (s, p)
            for s in slots
            for p in pods
            if has_replaced(s.migration, p) and not (sure and _was_there_first(s.migration, p))
        ]
        for slot, pod in sorted(pairs, key=_closeness):
            if slot.free and self._unattached(pod.uid):
                self._slots.take(slot, pod.uid)
                self._fill(slot, pod.node)

    def _may_be_filled(self, slot: Slot) -> bool:
        """A pod that stays has no replacement yet, whoever else has come meanwhile."""
        bare = not slot.migration.controller_kind
        return bare or self._leaves(slot.migration.pod_uid)

    def _believe_status(self, slot: Slot) -> None:
        """Follow the rebalancer's word on who the replacement is."""
        uid = slot.migration.replacement_uid
        if not uid or slot.filled or uid == slot.holder or not self._unattached(uid):
            return
        self._slots.take(slot, uid)
        pod = self._cluster().pods.get(uid)
        if node := slot.migration.replacement_node or (pod.node if pod is not None else ""):
            self._fill(slot, NodeName(node))

    def _unattached(self, uid: PodUid) -> bool:
        return self._slots.of_pod(uid) is None and uid not in self._spoken_for

    def _pod_went(self, pod: PodRecord) -> None:
        self._gone[pod.uid] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]
        slot = self._slots.of_pod(pod.uid)
        if slot is not None and not slot.filled:
            self._slots.release(slot)
            self._touch()

    def _pod_landed(self, pod: PodRecord) -> None:
        self._expire()
        slot = self._slots.of_pod(pod.uid)
        if slot is None and self._live and pod.uid not in self._spoken_for:
            key = key_of_pod(pod)
            slot = self._slots.best_after(pod, key) if key is not None else None
            if slot is not None:
                self._slots.take(slot, pod.uid)
        if slot is not None and not slot.filled:
            self._fill(slot, pod.node)

    def _fill(self, slot: Slot, node: NodeName) -> None:
        slot.fill(node)
        self._touch()
        # What had happened before the start was counted by whoever ran then.
        if self._live:
            self._totals[slot.outcome().value].inc()

    def _expire(self) -> None:
        if self._clock.now() < self._first_deadline_s:
            return
        for slot in list(self._slots):
            if not slot.filled and self._is_over(slot.migration):
                self._remove(slot)
                self._totals[EXPIRED].inc()
        self._first_deadline_s = self._slots.first_due_s() + self._skew_s
        self._touch()

    def _is_over(self, migration: MigrationRecord) -> bool:
        """Tell whether the rebalancer waits no longer, whichever of the clocks is ahead."""
        return migration.due_s + self._skew_s <= self._clock.now()

    def _touch(self) -> None:
        self._held = self._predecessors = None


def _was_there_first(migration: MigrationRecord, pod: PodRecord) -> bool:
    return migration.present is None and pod.created_s <= migration.created_s


def _closeness(pair: tuple[Slot, PodRecord]) -> tuple[int, tuple[float, str], float, str]:
    slot, pod = pair
    return nearness(slot.migration, pod.node), slot.age, pod.created_s, pod.uid


def _held(slot: Slot) -> HeldIntent:
    migration = slot.migration
    return HeldIntent(
        migration=migration.name,
        pod=slot.holder,
        load=slot.load,
        requests=Load(migration.requests_cpu_milli, migration.requests_mem_bytes),
        priority=migration.priority,
    )


def _row(slot: Slot) -> IntentRow:
    migration = slot.migration
    return IntentRow(
        migration=migration.name,
        pod=f"{migration.namespace}/{migration.pod_name}",
        source=migration.source,
        target=migration.target,
        alternatives=migration.alternatives,
        state=slot.state,
        holder=slot.holder,
        node=slot.node,
        deadline_s=migration.due_s,
    )
