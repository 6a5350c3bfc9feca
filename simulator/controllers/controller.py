# SPDX-License-Identifier: Apache-2.0
"""What all workload controllers have in common: a queue of keys, and what fills it.

A controller is triggered by its own objects and by the objects that they own; it then syncs one
of them. It keeps no other state, so extra triggers are harmless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import msgspec

from common.kube.resources import Resource
from simulator.api import Change, EventType, Json, SyncQueue
from simulator.context import Context
from simulator.controllers.owned_pods import controller_of

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_OFFSET: Final = 0x811C9DC5
_PRIME: Final = 0x01000193
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

Key = tuple[str, str]
"""Namespace and name."""


class Controller(ABC):
    """Syncs the objects of one kind."""

    def __init__(self, name: str, resource: Resource, context: Context) -> None:
        self._resource = resource
        self._store = context.store
        self._time_scale = context.time_scale
        self._recorder = context.recorder
        self._queue: SyncQueue[Key] = SyncQueue(name, context.time_scale.clock)
        self._store.subscribe(resource, self._on_own, replay=True)

    @abstractmethod
    def sync(self, key: Key) -> None:
        """Sync one object."""

    async def run(self) -> None:
        """Run forever."""
        await self._queue.run(self.sync)

    def work_off(self) -> int:
        """Sync all queued objects now; return how many were queued."""
        waiting = len(self._queue)
        self._queue.work_off(self.sync)
        return waiting

    def _on_own(self, change: Change) -> None:
        if change.type is not EventType.DELETED:
            self._queue.add(key_of(change.obj))

    def _on_owned(self, change: Change) -> None:
        self._wake_owner(change.obj)

    def _wake_owner(self, obj: Json) -> None:
        reference = controller_of(obj)
        if reference is not None and reference["kind"] == self._resource.kind:
            self._queue.add((obj["metadata"]["namespace"], reference["name"]))


def key_of(obj: Json) -> Key:
    """Return the namespace and the name of an object."""
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def template_hash(template: Json, collisions: int = 0) -> str:
    """Return the hash that identifies a pod template in names and labels.

    Encoded as SafeEncodeString of a 32-bit FNV-1a sum (pkg/controller/controller_utils.go), but
    of other bytes: the value differs from the one that the real controller computes.
    """
    total = _OFFSET
    for byte in _encode([template, collisions]):
        total = ((total ^ byte) * _PRIME) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(total))
