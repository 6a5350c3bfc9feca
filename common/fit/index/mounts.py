# SPDX-License-Identifier: Apache-2.0
"""Which claims and disks the pods of every node use, and how many volumes that attaches.

What a claim comes to depends on objects beside the pods, so it is worked out when
asked for, on the nodes whose pods or claims changed since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

import numpy as np

from common.cluster.records import NodeName, NodeRecord
from common.cluster.shapes import Disk, PodShape
from common.fit.index.arrays import Ints
from common.fit.index.storage import Attachment, Storage, inline

T = TypeVar("T", bound=Hashable)


def claim_keys(namespace: str, name: str, shape: PodShape) -> list[str]:
    """Return the keys of all claims of a pod, those of ephemeral volumes included."""
    made = (f"{namespace}/{name}-{volume}" for volume in shape.ephemeral_claims)
    return [*(f"{namespace}/{claim}" for claim in shape.claims), *made]


class Mounts:
    """What the pods of every node mount."""

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._sources: dict[int, Counter[str | Attachment]] = {}
        self._disks: dict[int, Counter[Disk]] = {}
        self._storage: Storage | None = None
        self._dirty: set[int] = set()
        self._held: dict[int, frozenset[Attachment]] = {}
        self._places: dict[Attachment, set[int]] = {}
        self._by_driver: dict[str, Counter[int]] = {}

    def move(self, row: int, namespace: str, name: str, shape: PodShape, sign: int) -> None:
        """Add what a pod mounts to a node, or take it away."""
        _count(self._users, (f"{namespace}/{claim}" for claim in shape.claims), sign)
        if shape.disks:
            disks: Counter[Disk] = self._disks.setdefault(row, Counter())
            _count(disks, shape.disks, sign)
        inlined = (inline(disk) for disk in shape.disks)
        sources: tuple[str | Attachment, ...] = (
            *claim_keys(namespace, name, shape),
            *(a for a in inlined if a is not None),
        )
        _count(self._sources.setdefault(row, Counter()), sources, sign)
        self._dirty.add(row)

    def in_use(self, claim: str) -> bool:
        """Tell whether any pod on any node uses a claim."""
        return claim in self._users

    def disks(self, row: int) -> Iterable[Disk]:
        return self._disks.get(row, ())

    def rows_with_disks(self) -> list[int]:
        return [row for row, disks in self._disks.items() if disks]

    def attached(self, row: int) -> frozenset[Attachment]:
        """Return the volumes that the pods of a node attach; `settle` comes first."""
        return self._held.get(row, frozenset())

    def places(self, attachment: Attachment) -> set[int]:
        """Return the nodes where a volume is attached; `settle` comes first."""
        return self._places.get(attachment, set())

    def attached_count(self, driver: str, capacity: int) -> Ints:
        """Return how many volumes of a driver every node attaches; `settle` comes first."""
        counts = np.zeros(capacity, dtype=np.int64)
        held = self._by_driver.get(driver)
        if held:
            counts[list(held)] = list(held.values())
        return counts

    def settle(self, storage: Storage, nodes: list[NodeRecord | None]) -> None:
        """Compute again what changed since the last time."""
        if storage is not self._storage:
            self._dirty.update(self._sources)
            self._storage = storage
        for row in self._dirty:
            node = nodes[row]
            held = self._resolve(row, storage, node.name) if node is not None else frozenset()
            self._replace(row, held)
        self._dirty.clear()

    def _resolve(self, row: int, storage: Storage, name: NodeName) -> frozenset[Attachment]:
        migrated = storage.csi_node(name) is not None
        found = set()
        for source in self._sources.get(row, ()):
            if isinstance(source, Attachment):
                found.add(source if migrated else None)
            elif (claim := storage.claim(source)) is not None:
                found.add(storage.attachment(claim, migrated=migrated))
        return frozenset(a for a in found if a is not None)

    def _replace(self, row: int, held: frozenset[Attachment]) -> None:
        old = self._held.pop(row, frozenset())
        for attachment in old - held:
            _discard(self._places, attachment, row)
            _count(self._by_driver[attachment.driver], (row,), -1)
        for attachment in held - old:
            self._places.setdefault(attachment, set()).add(row)
            _count(self._by_driver.setdefault(attachment.driver, Counter()), (row,), +1)
        if held:
            self._held[row] = held


def _count(counter: Counter[T], things: Iterable[T], sign: int) -> None:
    for thing in things:
        counter[thing] += sign
        if not counter[thing]:
            del counter[thing]


def _discard(places: dict[Attachment, set[int]], attachment: Attachment, row: int) -> None:
    places[attachment].discard(row)
    if not places[attachment]:
        del places[attachment]
