# SPDX-License-Identifier: Apache-2.0
"""The index of open Migrations: which pod should go where, and how much room is reserved.

It is fed by the listeners of the watch cache, in any order across kinds, and follows what
exists: a Migration that ends, expires or is deleted takes its slot with it. What cannot be
read from the cluster, the slot of a pod that has no node yet, is assigned again when that
pod is scheduled again; so a restart loses nothing. Until `begin`, when everything has been
listed once, the index only collects: the first Migration that arrives must not claim the
replacement of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from typing import Final

from common.api.migrations import Outcome
from common.cache.replacements import (
    Key,
    candidates,
    has_replaced,
    key_of_migration,
    key_of_pod,
    nearness,
)
from common.cache.snapshot import Snapshot
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName, PodRecord, PodUid
from common.load import Load
from common.metrics import Metrics
from extender.intents.slots import NO_POD, Slot, Slots
from extender.intents.values import Guidance, Held, HeldIntent, IntentRow

PATIENCE_S: Final = 5.0
"""A pod that is still pending after this long cannot be placed on its one node."""

EXPIRED: Final = "Expired"
WITHDRAWN: Final = "Withdrawn"
_MAX_DELETED: Final = 1_000
_OUTCOMES: Final = (
    Outcome.AS_PLANNED.value,
    Outcome.ALTERNATIVE.value,
    Outcome.ELSEWHERE.value,
    Outcome.BACK_ON_SOURCE.value,
    EXPIRED,
    WITHDRAWN,
)


class Intents:
    """Directs the replacements of moved pods to their targets; one per process."""

    def __init__(
        self,
        cluster: Callable[[], Snapshot],
        *,
        clock: Clock,
        metrics: Metrics,
        skew_s: float = 0.0,
        absent: Callable[[], bool] = lambda: False,
    ) -> None:
        """`skew_s` is how far our clock may differ from that of the rebalancer.

        `absent` tells whether the API server does not know Migrations at all.
        """
        self._absent = absent
        self._cluster = cluster
        self._clock = clock
        self._skew_s = skew_s
        self._live = False
        self._slots = Slots()
        self._ended: dict[str, tuple[PodUid, Load]] = {}
        """The replacements of closed Migrations, which no other Migration may claim."""
        self._claimed: dict[PodUid, str] = {}
        self._deleted: dict[PodUid, None] = {}
        """Recently deleted pods: kube-scheduler may still send them, and they must get no slot."""
        self._first_deadline_s = inf
        self._held: Mapping[NodeName, Held] | None = None
        self._predecessors: Mapping[PodUid, Load] | None = None
        total = metrics.counter("intents_total", "Intents by how they ended.", ("outcome",))
        self._totals = {outcome: total.labels(outcome) for outcome in _OUTCOMES}
        metrics.gauge("intents_open", "Intents whose pod has no node yet.").set_function(
            lambda: float(sum(not slot.filled for slot in self._slots))
        )

    @property
    def live(self) -> bool:
        """Whether the index has begun to direct pods."""
        return self._live

    @property
    def complete(self) -> bool:
        """Whether every Migration that exists is known."""
        return self._live or self._absent()

    def begin(self) -> None:
        """Direct pods from now on: pods and Migrations have been listed once."""
        if self._live:
            return
        for slots in self._slots.groups():
            self._settle(slots)
        self._live = True

    def on_migration(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        """Process a Migration that was added, changed or deleted."""
        self._invalidate()
        if old is not None and (new is None or new.uid != old.uid):
            self._on_deleted(old.name)
        if new is None:
            return
        if not new.open:
            self._close(new)
        elif (slot := self._slots.get(new.name)) is not None:
            slot.migration = new
            self._follow_status(slot)
        else:
            self._open(new)

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a pod that was added, bound or deleted."""
        if not self._slots:
            return
        if old is not None and (new is None or new.uid != old.uid):
            self._pod_deleted(old)
            old = None
        if new is None:
            return
        self._deleted.pop(new.uid, None)
        if new.node and (old is None or not old.node):
            self._pod_bound(new)

    def assign_slot(self, pod: PodRecord, names: Collection[str]) -> Guidance | None:
        """Assign a slot to a pod and return where it should go; the same when repeated."""
        self._expire()
        if not self._live or not self._slots:
            return None
        slot = self._slots.of_pod(pod.uid)
        key = self._key(pod) if slot is None else slot.key
        if key is None:
            return None
        # A set, because it is searched several times and may have thousands of names.
        offered = frozenset(names)
        if (
            slot is None
            and (slot := self._slots.best_for(pod, key, offered, self._leaves)) is not None
        ):
            self._slots.take(slot, pod.uid)
            self._invalidate()
        return None if slot is None else self._guide(slot, offered)

    def source_of(self, pod: PodRecord) -> NodeName | None:
        """Return the node that the pod's predecessor was moved from; no slot is assigned."""
        self._expire()
        slot = self._slots.of_pod(pod.uid)
        if slot is None and (key := self._key(pod)) is not None:
            slot = self._slots.best_for(pod, key, (), self._leaves)
        return None if slot is None else slot.migration.source

    def held(self) -> Mapping[NodeName, Held]:
        """Return the room that is reserved on targets; the same object until it changes."""
        self._expire()
        if self._held is None:
            by_target: dict[NodeName, list[HeldIntent]] = {}
            for slot in self._slots:
                if not slot.filled:
                    by_target.setdefault(slot.migration.target, []).append(_held(slot))
            self._held = {node: Held(tuple(intents)) for node, intents in by_target.items()}
        return self._held

    def predecessors(self) -> Mapping[PodUid, Load]:
        """Return what the predecessors of these pods used."""
        if self._predecessors is None:
            holders = {slot.holder: slot.load for slot in self._slots if not slot.free}
            self._predecessors = {**dict(self._ended.values()), **holders}
        return self._predecessors

    def rows(self) -> Sequence[IntentRow]:
        """Return all intents, oldest first, for /debug/nodes."""
        self._expire()
        return [_row(slot) for slot in sorted(self._slots, key=lambda slot: slot.age)]

    def _guide(self, slot: Slot, names: Collection[str]) -> Guidance:
        now_s = self._clock.monotonic()
        if slot.first_request_s is None:
            slot.first_request_s = now_s
        return Guidance(
            target=slot.choice(names),
            source=slot.migration.source,
            preference=now_s - slot.first_request_s >= PATIENCE_S,
            migration=slot.migration.name,
        )

    def _key(self, pod: PodRecord) -> Key | None:
        """Return the key by which a pod may take a slot; None if no slot has that key."""
        if not self._live or pod.node or pod.uid == NO_POD:
            return None
        if pod.uid in self._deleted or pod.uid in self._claimed:
            return None
        key = key_of_pod(pod)
        return key if key is not None and self._slots.of_key(key) else None

    def _leaves(self, uid: PodUid) -> bool:
        """Return whether a pod is deleted or terminating."""
        pod = self._cluster().pods.get(uid)
        return pod is None or pod.terminating

    def _open(self, migration: MigrationRecord) -> None:
        key = key_of_migration(migration)
        # One that had expired before it arrived is not counted.
        if key is None or self._is_expired(migration):
            return
        slot = Slot(key, migration)
        self._slots.add(slot)
        self._first_deadline_s = min(self._first_deadline_s, migration.due_s + self._skew_s)
        if self._live:
            self._settle([slot], watched=True)

    def _close(self, migration: MigrationRecord) -> None:
        slot = self._slots.get(migration.name)
        found = migration.replacement_uid
        if slot is not None:
            slot.migration = migration
            self._follow_status(slot)
            found = found or (slot.holder if slot.filled else NO_POD)
            self._drop(slot)
        if found and migration.name not in self._ended:
            load = Load(migration.load_cpu_milli, migration.load_mem_bytes)
            self._ended[migration.name] = found, load
            self._claimed[found] = migration.name

    def _on_deleted(self, name: str) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            self._drop(slot)
        uid, _ = self._ended.pop(name, (NO_POD, None))
        if self._claimed.get(uid) == name:
            del self._claimed[uid]

    def _drop(self, slot: Slot) -> None:
        if not slot.filled and self._live:
            self._totals[WITHDRAWN].inc()
        self._remove(slot)

    def _remove(self, slot: Slot) -> None:
        self._slots.remove(slot)
        if not self._slots:
            self._deleted.clear()

    def _settle(self, slots: Collection[Slot], *, watched: bool = False) -> None:
        """Find the slots of one key that existing pods have filled already.

        `watched` leaves out pods created in the same second as the Migration. The rebalancer
        evicts nothing before this index has the Migration, so while the index is live such a
        pod is a sibling that existed before.
        """
        for slot in slots:
            self._follow_status(slot)
        slots = [slot for slot in slots if slot.free and self._may_be_filled(slot)]
        pods = candidates(slots[0].migration, self._cluster()) if slots else ()
        pairs = [
            (s, p)
            for s in slots
            for p in pods
            if has_replaced(s.migration, p) and not (watched and _existed_before(s.migration, p))
        ]
        for slot, pod in sorted(pairs, key=_closeness):
            if slot.free and self._unattached(pod.uid):
                self._slots.take(slot, pod.uid)
                self._fill(slot, pod.node)

    def _may_be_filled(self, slot: Slot) -> bool:
        """Return whether a replacement may exist: after the pod leaves, or before by a surge."""
        first = not slot.migration.controller_kind or slot.migration.raised_s is not None
        return first or self._leaves(slot.migration.pod_uid)

    def _follow_status(self, slot: Slot) -> None:
        """Accept the replacement that the rebalancer recorded in the status."""
        uid = slot.migration.replacement_uid
        if not uid or slot.filled or uid == slot.holder or not self._unattached(uid):
            return
        self._slots.take(slot, uid)
        pod = self._cluster().pods.get(uid)
        if node := slot.migration.replacement_node or (pod.node if pod is not None else ""):
            self._fill(slot, NodeName(node))

    def _unattached(self, uid: PodUid) -> bool:
        return self._slots.of_pod(uid) is None and uid not in self._claimed

    def _pod_deleted(self, pod: PodRecord) -> None:
        self._deleted[pod.uid] = None
        if len(self._deleted) > _MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]
        slot = self._slots.of_pod(pod.uid)
        if slot is not None and not slot.filled:
            self._slots.release(slot)
            self._invalidate()

    def _pod_bound(self, pod: PodRecord) -> None:
        self._expire()
        slot = self._slots.of_pod(pod.uid)
        if slot is None and self._live and pod.uid not in self._claimed:
            key = key_of_pod(pod)
            slot = self._slots.best_after(pod, key) if key is not None else None
            if slot is not None:
                self._slots.take(slot, pod.uid)
        if slot is not None and not slot.filled:
            self._fill(slot, pod.node)

    def _fill(self, slot: Slot, node: NodeName) -> None:
        slot.fill(node)
        self._invalidate()
        # What happened before the start was counted by the process of that time.
        if self._live:
            self._totals[slot.outcome().value].inc()

    def _expire(self) -> None:
        if self._clock.now() < self._first_deadline_s:
            return
        for slot in list(self._slots):
            if not slot.filled and self._is_expired(slot.migration):
                self._remove(slot)
                self._totals[EXPIRED].inc()
        self._first_deadline_s = self._slots.first_due_s() + self._skew_s
        self._invalidate()

    def _is_expired(self, migration: MigrationRecord) -> bool:
        """Return whether the deadline has passed, whichever clock is ahead."""
        return migration.due_s + self._skew_s <= self._clock.now()

    def _invalidate(self) -> None:
        self._held = self._predecessors = None


def _existed_before(migration: MigrationRecord, pod: PodRecord) -> bool:
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
