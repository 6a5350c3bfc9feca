# SPDX-License-Identifier: Apache-2.0
"""The API without HTTP, for what runs in the same process: scheduler, controllers, kubelets.

Everything is synchronous and runs on one event loop; between two awaits there is no other
writer. Objects are values: never change one that was returned; an object that is passed in may
share parts with it. Errors are those of `simulator.api.errors`, the same that a client gets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from common.clock import Clock
from common.kube.api import PatchKind
from common.kube.resources import NAMESPACES, PRIORITYCLASSES, Resource
from simulator import build
from simulator.api import bindings, deletion, eviction
from simulator.api.definitions import Definitions
from simulator.api.deletion import Deleted, DeleteOptions
from simulator.api.objects import copied, shallow, shown_as
from simulator.api.patches import Patch
from simulator.api.registry import Registry
from simulator.api.storage import HISTORY, Json, Subscriber

_AS_USUAL: Final = DeleteOptions()
_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
# pkg/apis/scheduling/types.go
_PRIORITY_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


class Store(Registry):
    """All objects of a simulated cluster, initially those that every cluster has."""

    def __init__(
        self, *, clock: Clock, rng: random.Random | None = None, history: int = HISTORY
    ) -> None:
        super().__init__(clock=clock, rng=rng, history=history)
        Definitions(self)
        for name in _NAMESPACES:
            self.create(NAMESPACES, build.namespace(name))
        for name, value in _PRIORITY_CLASSES.items():
            self.create(PRIORITYCLASSES, {"metadata": {"name": name}, "value": value})

    @property
    def resource_version(self) -> int:
        """The version of the newest change."""
        return self.storage.version

    def owned_by(self, uid: str) -> Iterator[tuple[Resource, Json]]:
        """Return every object that has this uid among its owners."""
        for resource, entry in self.storage.owned_by(uid):
            yield resource, entry.obj

    def subscribe(
        self, resource: Resource, subscriber: Subscriber, *, replay: bool = False
    ) -> Callable[[], None]:
        """Call `subscriber` with every change of a kind, in order; return how to unsubscribe.

        With `replay` it is first called with every existing object, as if just added. It is
        called in the middle of a write: record what changed and do the work elsewhere.
        """
        return self.storage.subscribe(self.kind(resource).storage, subscriber, replay=replay)

    def create(
        self, resource: Resource, obj: Json, *, namespace: str | None = None, dry_run: bool = False
    ) -> Json:
        """Create an object, in the given namespace or in the one it names."""
        kind = self.kind(resource)
        obj = self.decoded(kind, copied(obj))
        place = _place(obj, namespace, kind.resource)
        return shown_as(kind, self.create_decoded(kind, obj, place, dry_run=dry_run).obj)

    def update(
        self,
        resource: Resource,
        obj: Json,
        *,
        namespace: str | None = None,
        status: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Replace an object or its status, if it still has the resourceVersion in `obj`."""
        kind = self.kind(resource)
        obj = shallow(obj) if status else self.decoded(kind, copied(obj))
        entry, _ = self.update_decoded(
            kind,
            obj,
            obj["metadata"]["name"],
            _place(obj, namespace, resource),
            status=status,
            dry_run=dry_run,
        )
        return shown_as(kind, entry.obj)

    def modify(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Json], Json],
        *,
        namespace: str | None = None,
        status: bool = False,
    ) -> Json:
        """Replace an object or its status by the result of `change`; cannot conflict."""
        kind = self.kind(resource)
        old = self.entry(kind, name, namespace)
        changed = change(shown_as(kind, old.obj))
        obj = shallow(changed) if status else self.decoded(kind, copied(changed))
        return shown_as(kind, self.finish_update(kind, obj, old, status=status).obj)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        how: PatchKind = PatchKind.MERGE,
        status: bool = False,
        dry_run: bool = False,
    ) -> Json:
        """Patch an object or its status."""
        kind = self.kind(resource)
        made = Patch(how, patch)
        entry = self.patch_decoded(kind, made, name, namespace, status=status, dry_run=dry_run)
        return shown_as(kind, entry.obj)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        options: DeleteOptions = _AS_USUAL,
    ) -> Deleted:
        """Delete an object, or start to: pods terminate gracefully, finalizers delay it."""
        return deletion.delete(self, self.kind(resource), name, namespace, options)

    def bind(self, name: str, namespace: str, node: str, *, uid: str | None = None) -> Json:
        """Bind a pod to a node, as a scheduler does; a pod is bound once."""
        metadata = {"name": name, **({"uid": uid} if uid else {})}
        return bindings.bind(
            self, {"metadata": metadata, "target": {"name": node}}, name, namespace
        )

    def evict(self, name: str, namespace: str, *, options: DeleteOptions = _AS_USUAL) -> None:
        """Evict a pod, if its PDB allows it."""
        eviction.evict(self, name, namespace, options)


def _place(obj: Json, namespace: str | None, resource: Resource) -> str | None:
    if not resource.namespaced:
        return None
    return namespace or obj["metadata"].get("namespace") or "default"
