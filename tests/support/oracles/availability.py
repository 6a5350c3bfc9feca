# SPDX-License-Identifier: Apache-2.0
"""Watches without a break how many pods of each app are available.

A pod is available while it is Ready and not ending. What an app is to have at least is told
by the test; every moment in which it has less is a gap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from common.kube.resources import DEPLOYMENTS, PODS
from simulator.api import Change, Json, Store, is_ready

if TYPE_CHECKING:
    from tests.support.stands.closed_loop import Loop


class Availability:
    """Sees every change of a pod in the moment it happens."""

    def __init__(self, store: Store, wanted: dict[str, int]) -> None:
        self.wanted = wanted
        """How many pods of an app have to be available at least; tests change it."""
        self.gaps: list[str] = []
        self.most: Counter[str] = Counter()
        """The most pods of an app that existed at once, ending ones aside."""
        self._up: dict[str, set[str]] = defaultdict(set)
        self._there: dict[str, set[str]] = defaultdict(set)
        for pod in store.list(PODS):
            self._take(pod, deleted=False)
        store.subscribe(PODS, self._on_pod)

    def _on_pod(self, change: Change) -> None:
        app = self._take(change.obj, deleted=change.type == "DELETED")
        least = self.wanted.get(app)
        if least is not None and len(self._up[app]) < least:
            name = change.obj["metadata"]["name"]
            self.gaps.append(f"{app}: {len(self._up[app])} of {least} after {name}")

    def _take(self, pod: Json, *, deleted: bool) -> str:
        meta = pod["metadata"]
        app, uid = str((meta.get("labels") or {}).get("app", "")), str(meta["uid"])
        ending = deleted or "deletionTimestamp" in meta
        for kept, holds in ((self._there, not ending), (self._up, not ending and is_ready(pod))):
            (kept[app].add if holds else kept[app].discard)(uid)
        self.most[app] = max(self.most[app], len(self._there[app]))
        return app


def replicas(loop: Loop, app: str) -> int:
    """Return how many replicas a Deployment wants."""
    return int(loop.store.get(DEPLOYMENTS, app, namespace="default")["spec"]["replicas"])
