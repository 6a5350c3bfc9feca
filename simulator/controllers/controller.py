"""What all controllers of workloads have in common: a queue of keys, and who fills it.

A controller is woken by its own objects and by what they own; it then looks at one of them
and does what is missing. Nothing else is remembered, so being woken too often is harmless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from common.kube.resources import Resource
from simulator.api import Change, EventType, Json, WorkQueue
from simulator.controllers.owned_pods import controller_of
from simulator.machinery import Machinery

Key = tuple[str, str]
"""Namespace and name."""


class Controller(ABC):
    """Works off the objects of one kind."""

    def __init__(self, name: str, resource: Resource, machinery: Machinery) -> None:
        self._resource = resource
        self._store = machinery.store
        self._pace = machinery.pace
        self._recorder = machinery.recorder
        self._queue: WorkQueue[Key] = WorkQueue(name, machinery.pace.clock)
        self._store.subscribe(resource, self._on_own, replay=True)

    @abstractmethod
    def sync(self, key: Key) -> None:
        """Take the next step of one object."""

    async def run(self) -> None:
        """Work for ever."""
        await self._queue.run(self.sync)

    def work_off(self) -> int:
        """Do everything that is to be done now; return how many were waiting."""
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
