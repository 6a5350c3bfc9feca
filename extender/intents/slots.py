# SPDX-License-Identifier: Apache-2.0
"""Slots: each open Migration has one, and a slot takes one pod.

Invariants: a slot has at most one pod and a pod at most one slot; a slot whose pod got a
node is filled and never takes another pod, because a kubelet that rejects the pod would
otherwise be sent the next one, and the next. A removed slot leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf

from common.api.migrations import Outcome
from common.cache.replacements import ELSEWHERE, Key, has_replaced, may_replace, nearness
from common.cluster.migrations import MigrationRecord
from common.cluster.records import UNBOUND, NodeName, PodRecord, PodUid
from common.load import Load

NO_POD = PodUid("")


class Slot:
    """The slot of one replacement."""

    __slots__ = ("first_request_s", "holder", "key", "migration", "node")

    def __init__(self, key: Key, migration: MigrationRecord) -> None:
        self.key = key
        self.migration = migration
        self.holder: PodUid = NO_POD
        self.node: NodeName = UNBOUND
        self.first_request_s: float | None = None
        """When the extender was first called for the holder, by the monotonic clock."""

    @property
    def free(self) -> bool:
        return self.holder == NO_POD

    @property
    def filled(self) -> bool:
        return self.node != UNBOUND

    @property
    def age(self) -> tuple[float, str]:
        """The order of slots of one key: oldest first, and deterministic."""
        return self.migration.created_s, self.migration.name

    @property
    def state(self) -> str:
        return "open" if self.free else "filled" if self.filled else "taken"

    @property
    def load(self) -> Load:
        return Load(self.migration.load_cpu_milli, self.migration.load_mem_bytes)

    def choice(self, names: Collection[str]) -> NodeName | None:
        """Return the target, or else the best alternative, if it is among the names."""
        wanted = (self.migration.target, *self.migration.alternatives)
        return next((name for name in wanted if name in names), None)

    def fill(self, node: NodeName) -> None:
        self.node = node

    def outcome(self) -> Outcome:
        """Return where the replacement went, compared with the plan."""
        if self.node == self.migration.source:
            return Outcome.BACK_ON_SOURCE
        return _OUTCOMES[nearness(self.migration, self.node)]


_OUTCOMES: Mapping[int, Outcome] = {
    0: Outcome.AS_PLANNED,
    1: Outcome.ALTERNATIVE,
    ELSEWHERE: Outcome.ELSEWHERE,
}


class Slots:
    """All slots, by Migration, by replacement key and by pod."""

    def __init__(self) -> None:
        self._by_name: dict[str, Slot] = {}
        self._by_key: dict[Key, dict[str, Slot]] = {}
        self._by_pod: dict[PodUid, Slot] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Slot | None:
        return self._by_name.get(name)

    def of_pod(self, uid: PodUid) -> Slot | None:
        return self._by_pod.get(uid)

    def of_key(self, key: Key) -> Collection[Slot]:
        return self._by_key.get(key, {}).values()

    def groups(self) -> Collection[Collection[Slot]]:
        """Return the slots of each key."""
        return [tuple(group.values()) for group in self._by_key.values()]

    def add(self, slot: Slot) -> None:
        name = slot.migration.name
        self._by_name[name] = slot
        self._by_key.setdefault(slot.key, {})[name] = slot

    def remove(self, slot: Slot) -> None:
        name = slot.migration.name
        del self._by_name[name]
        group = self._by_key[slot.key]
        del group[name]
        if not group:
            del self._by_key[slot.key]
        self.release(slot)

    def take(self, slot: Slot, uid: PodUid) -> None:
        """Assign a slot that is not filled to a pod that has none."""
        self.release(slot)
        slot.holder = uid
        self._by_pod[uid] = slot

    def release(self, slot: Slot) -> None:
        self._by_pod.pop(slot.holder, None)
        slot.holder = NO_POD
        slot.first_request_s = None

    def best_for(
        self,
        pod: PodRecord,
        key: Key,
        names: Collection[str],
        leaves: Callable[[PodUid], bool],
    ) -> Slot | None:
        """Return the best free slot for a pod that may go to these nodes.

        Slots of pods that leave come first, because their controller replaces them now. The
        pod of another slot stays until it is evicted, and its replacement will need the slot.
        """
        open_ = [s for s in self.of_key(key) if s.free and may_replace(s.migration, pod)]
        if len(open_) < 2:
            return open_[0] if open_ else None
        return min(
            open_,
            key=lambda s: (not leaves(s.migration.pod_uid), _rank(s, names), s.age),
        )

    def best_after(self, pod: PodRecord, key: Key) -> Slot | None:
        """Return the free slot that a pod fills by being on its node."""
        fits = [s for s in self.of_key(key) if s.free and has_replaced(s.migration, pod)]
        return min(
            fits, key=lambda slot: (nearness(slot.migration, pod.node), slot.age), default=None
        )

    def first_due_s(self) -> float:
        """Return when the next slot that is not filled expires."""
        return min((s.migration.due_s for s in self if not s.filled), default=inf)


def _rank(slot: Slot, names: Collection[str]) -> int:
    chosen = slot.choice(names)
    return ELSEWHERE if chosen is None else nearness(slot.migration, chosen)
