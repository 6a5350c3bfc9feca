# SPDX-License-Identifier: Apache-2.0
"""Events of the simulated components, with the messages of the real ones.

They are written as `events.k8s.io/v1`. A repeated Event becomes a series on the first one. Only
the newest few thousand are kept, because the real server lets Events expire too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from common.kube.resources import EVENTS
from common.kube.timestamps import micro_time
from simulator.api import Json, Store
from simulator.api.errors import Refusal

_LONGEST_NOTE: Final = 1024
KEPT: Final = 5000

_Key = tuple[str, str, str, str]


class EventRecorder:
    """Writes Events into the store."""

    def __init__(self, store: Store, *, kept: int = KEPT) -> None:
        self._store = store
        self._kept = kept
        self._recorded: OrderedDict[_Key, tuple[str, str]] = OrderedDict()

    def record(
        self, about: Json, *, by: str, reason: str, note: str, action: str, warning: bool = False
    ) -> None:
        """Record an Event about an object."""
        note = _cut(note)
        key = (about["metadata"].get("uid", ""), by, reason, note)
        try:
            if key in self._recorded:
                self._repeat(*self._recorded[key])
            else:
                self._recorded[key] = self._create(about, by, reason, note, action, warning)
        except Refusal:
            # Its namespace is terminating, or the first Event was deleted: the loss is harmless.
            self._recorded.pop(key, None)
        self._expire()

    def _create(
        self, about: Json, by: str, reason: str, note: str, action: str, warning: bool
    ) -> tuple[str, str]:
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        # Events about cluster-scoped objects are in `default`.
        place = {"namespace": namespace} if metadata.get("namespace") else {}
        event = {
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
            "eventTime": micro_time(self._store.clock.now()),
            "reportingController": by,
            "reportingInstance": f"{by}-simulator",
            "action": action,
            "reason": reason,
            "type": "Warning" if warning else "Normal",
            "note": note,
            "regarding": {
                "kind": about["kind"],
                "apiVersion": about["apiVersion"],
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
                **place,
            },
        }
        return namespace, self._store.create(EVENTS, event)["metadata"]["name"]

    def _repeat(self, namespace: str, name: str) -> None:
        now = micro_time(self._store.clock.now())

        def counted(event: Json) -> Json:
            count = (event.get("series") or {}).get("count", 1) + 1
            return {**event, "series": {"count": count, "lastObservedTime": now}}

        self._store.modify(EVENTS, name, counted, namespace=namespace)

    def _expire(self) -> None:
        while len(self._recorded) > self._kept:
            _, (namespace, name) = self._recorded.popitem(last=False)
            if self._store.find(EVENTS, name, namespace) is not None:
                self._store.delete(EVENTS, name, namespace=namespace)


def _cut(note: str) -> str:
    data = note.encode()
    if len(data) <= _LONGEST_NOTE:
        return note
    return data[: _LONGEST_NOTE - 4].decode(errors="ignore") + " ..."
