"""The API without HTTP, for what runs in the same process: scheduler, controllers, kubelets.

Everything is synchronous and belongs to one event loop; between two awaits nobody else
writes. Objects are values: what is handed out is never to be changed, what is handed in
may share parts with it. Refusals are the errors of `simulator.api.errors`, the same that
a client is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from common.clock import Clock
from common.kube.client import PatchKind
from common.kube.resources import Resource
from simulator.api import bindings, deletion, eviction
from simulator.api.bootstrap import first_objects
from simulator.api.definitions import Definitions
from simulator.api.deletion import Deleted, DeleteOptions
from simulator.api.objects import copied, shallow, shown_as
from simulator.api.patches import Patch
from simulator.api.registry import Registry
from simulator.api.storage import HISTORY, Json, Subscriber

_AS_USUAL = DeleteOptions()


class Store(Registry):
    """All objects of a simulated cluster, which begins with what every cluster has."""

    def __init__(
        self, *, clock: Clock, rng: random.Random | None = None, history: int = HISTORY
    ) -> None:
        super().__init__(clock=clock, rng=rng, history=history)
        Definitions(self)
        for resource, obj in first_objects():
            self.create(resource, obj)

    @property
    def resource_version(self) -> int:
        """The version of the newest change."""
        return self.storage.version

    def owned_by(self, uid: str) -> Iterator[tuple[Resource, Json]]:
        """Return every object that names this uid among its owners."""
        for resource, entry in self.storage.owned_by(uid):
            yield resource, entry.obj

    def subscribe(
        self, resource: Resource, subscriber: Subscriber, *, replay: bool = False
    ) -> Callable[[], None]:
        """Call `subscriber` with every change of a kind, in order; return how to end that.

        With `replay` it is first told every object that exists, as if just added. It is
        called in the middle of a write: note what changed and do the work elsewhere.
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
        """Replace an object or its status by what `change` makes of it; cannot conflict."""
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
        """Delete an object, or begin to: pods end gracefully, finalizers hold objects back."""
        return deletion.delete(self, self.kind(resource), name, namespace, options)

    def bind(self, name: str, namespace: str, node: str, *, uid: str | None = None) -> Json:
        """Assign a pod to a node, as a scheduler does; a pod is assigned once."""
        metadata = {"name": name, **({"uid": uid} if uid else {})}
        return bindings.bind(
            self, {"metadata": metadata, "target": {"name": node}}, name, namespace
        )

    def evict(self, name: str, namespace: str, *, options: DeleteOptions = _AS_USUAL) -> None:
        """Evict a pod, if its disruption budget lets it go."""
        eviction.evict(self, name, namespace, options)


def _place(obj: Json, namespace: str | None, resource: Resource) -> str | None:
    if not resource.namespaced:
        return None
    return namespace or obj["metadata"].get("namespace") or "default"
