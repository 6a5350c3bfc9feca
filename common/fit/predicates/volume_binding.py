# SPDX-License-Identifier: Apache-2.0
"""Claims: bound volumes reach only some nodes, waiting ones must find or get a volume.

The rules are those of plugins/volumebinding/{volume_binding,binder}.go and of
FindMatchingVolume in component-helpers/storage/volume/pv_helpers.go. Free space that a
CSI driver publishes is not known here and taken to be enough. Volumes of drivers that
have left Kubernetes are translated by the real one; they are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from common.api.contract import SELECTED_NODE
from common.cluster.records import NodeRecord
from common.cluster.storage import ClaimRecord, StorageClassRecord, VolumeRecord
from common.fit.index.arrays import Flags
from common.fit.index.facts import NodeFacts
from common.fit.index.storage import Storage
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "VolumeBinding"
_NO_PROVISIONER: Final = frozenset({"", "kubernetes.io/no-provisioner"})
_UNBOUND: Final = Rejection(
    _PLUGIN,
    "UnboundImmediateClaim",
    "pod has unbound immediate PersistentVolumeClaims",
    everywhere=True,
)
_OUT_OF_REACH: Final = Rejection(
    _PLUGIN, "VolumeNodeAffinity", "node(s) didn't match PersistentVolume's node affinity"
)
_NOTHING_TO_BIND: Final = Rejection(
    _PLUGIN, "NoVolumeToBind", "node(s) didn't find available persistent volumes to bind"
)
_VOLUME_GONE: Final = Rejection(
    _PLUGIN,
    "VolumeGone",
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
)
_IN_TREE: Final = Rejection(
    _PLUGIN, "InTreeVolumeNotJudged", "volumes of in-tree drivers are not judged", everywhere=True
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A claim that gets its volume when its pod gets a node."""

    claim: ClaimRecord
    made_by: StorageClassRecord
    reserved: tuple[VolumeRecord, ...]
    """Volumes that are kept for it; if there are any, no other will do."""
    free: tuple[VolumeRecord, ...]
    """What else it could bind to, whichever the node; the smallest first."""

    @property
    def selected_node(self) -> str:
        return self.claim.annotations.get(SELECTED_NODE, "")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a pod, by what they need."""

    rejections: Rejections = ()
    bound: tuple[VolumeRecord | None, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def claims(ask: Question) -> Claims:
    """Sort the pod's claims; one that cannot be used keeps the pod from every node."""
    storage, shape = ask.index.storage, ask.pod.shape
    if not (shape.claims or shape.ephemeral_claims):
        return Claims()
    found = [(_find(ask, name, ephemeral=False)) for name in shape.claims]
    found += [_find(ask, f"{ask.pod.name}-{v}", ephemeral=True) for v in shape.ephemeral_claims]
    unusable = [each for each in found if isinstance(each, Rejection)]
    if unusable:
        return Claims(rejections=(unusable[0],))
    usable = [each for each in found if isinstance(each, ClaimRecord)]
    return _sorted(usable, storage)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    found = ask.prefilter(claims)
    if found.rejections:
        return found.rejections
    reached = _reached(found.bound, info.node)
    waits = NONE if _satisfied(found.waiting, info.node) else (_NOTHING_TO_BIND,)
    if reached is _VOLUME_GONE:
        return (*waits, reached)
    return waits if reached is None else (reached, *waits)


def allow(ask: Question) -> Flags | None:
    found = ask.prefilter(claims)
    facts = ask.index.facts
    if found.rejections or None in found.bound:
        return np.zeros(facts.capacity, dtype=np.bool_)
    allowed = facts.alive
    for volume in found.bound:
        if volume is not None and volume.nodes is not None:
            allowed = allowed & facts.selected(volume.nodes, by_name=False)
    return allowed & _satisfying(found.waiting, facts, allowed) if found.waiting else allowed


def reaches(volume: VolumeRecord, node: NodeRecord) -> bool:
    """Tell whether a volume can be used on a node (CheckNodeAffinity)."""
    return volume.nodes is None or volume.nodes.matches(node.labels, "")


def _find(ask: Question, name: str, *, ephemeral: bool) -> ClaimRecord | Rejection:
    claim = ask.index.storage.claim(f"{ask.pod.namespace}/{name}")
    if claim is None:
        return _unusable("ClaimMissing", _missing(name, ephemeral=ephemeral))
    if claim.phase == "Lost":
        message = f'bound to non-existent persistentvolume "{claim.volume}"'
        return _unusable("ClaimLost", f'persistentvolumeclaim "{name}" {message}')
    if claim.deleted_s is not None:
        return _unusable("ClaimDeleted", f'persistentvolumeclaim "{name}" is being deleted')
    if ephemeral and (claim.owner is None or str(claim.owner.uid) != ask.pod.uid):
        pod = f"{ask.pod.namespace}/{ask.pod.name}"
        message = f"PVC {claim.key} was not created for pod {pod} (pod is not owner)"
        return _unusable("ClaimOfAnotherPod", message)
    return claim


def _missing(name: str, *, ephemeral: bool) -> str:
    if ephemeral:
        waits = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
        return f'{waits} "{name}"'
    return f'persistentvolumeclaim "{name}" not found'


def _unusable(name: str, message: str) -> Rejection:
    return Rejection(_PLUGIN, name, message, everywhere=True)


def _sorted(usable: list[ClaimRecord], storage: Storage) -> Claims:
    bound = [storage.volume(claim.volume) for claim in usable if claim.bound]
    if any(volume is not None and volume.in_tree for volume in bound):
        return Claims(rejections=(_IN_TREE,))
    waiting = []
    for claim in sorted(usable, key=lambda c: c.request_milli):
        made_by = storage.class_of(claim)
        if claim.bound:
            continue
        if made_by is None or not made_by.waits_for_consumer or claim.volume:
            return Claims(rejections=(_UNBOUND,))
        suiting = [v for v in storage.of_class(claim.storage_class or "") if _suits(claim, v)]
        reserved = tuple(volume for volume in suiting if volume.claim)
        free = tuple(volume for volume in suiting if not volume.claim)
        waiting.append(Waiting(claim, made_by, reserved, free))
    return Claims(bound=tuple(bound), waiting=tuple(waiting))


def _suits(claim: ClaimRecord, volume: VolumeRecord) -> bool:
    if volume.claim and not _is_reserved_for(volume, claim):
        return False
    if volume.capacity_milli < claim.request_milli or volume.deleted_s is not None:
        return False
    if (volume.volume_mode, volume.attributes_class) != (claim.volume_mode, claim.attributes_class):
        return False
    if volume.claim:
        return True
    if volume.phase != "Available" or not set(claim.access_modes) <= set(volume.access_modes):
        return False
    return claim.selector is None or claim.selector.matches(volume.labels)


def _is_reserved_for(volume: VolumeRecord, claim: ClaimRecord) -> bool:
    return volume.claim == claim.key and volume.claim_uid in ("", claim.uid)


def _reached(bound: tuple[VolumeRecord | None, ...], node: NodeRecord) -> Rejection | None:
    for volume in bound:
        if volume is None:
            return _VOLUME_GONE
        if not reaches(volume, node):
            return _OUT_OF_REACH
    return None


def _satisfied(waiting: tuple[Waiting, ...], node: NodeRecord) -> bool:
    """Tell whether every waiting claim finds a volume here, or may have one made."""
    taken: set[str] = set()
    for wait in waiting:
        if wait.selected_node and wait.selected_node != node.name:
            return False
    for wait in waiting:
        volume = None if wait.selected_node else _choice(wait, node, taken)
        if volume is not None:
            taken.add(volume.name)
        elif not _can_be_made(wait.made_by, node):
            return False
    return True


def _choice(wait: Waiting, node: NodeRecord, taken: set[str]) -> VolumeRecord | None:
    reserved = [v for v in wait.reserved if v.name not in taken]
    if reserved:
        # Of several that are reserved for it the real one takes the first it comes upon.
        return reserved[0] if all(reaches(v, node) for v in reserved) else None
    free = (v for v in wait.free if v.name not in taken)
    return next((v for v in free if reaches(v, node)), None)


def _can_be_made(made_by: StorageClassRecord, node: NodeRecord) -> bool:
    if made_by.provisioner in _NO_PROVISIONER:
        return False
    labels = node.labels
    return not made_by.topologies or any(
        term and all(labels.get(key) in values for key, values in term)
        for term in made_by.topologies
    )


def _satisfying(waiting: tuple[Waiting, ...], facts: NodeFacts, among: Flags) -> Flags:
    """Judge nodes one by one: which volume one claim takes decides what the next one finds."""
    found = np.zeros(facts.capacity, dtype=np.bool_)
    for row in np.flatnonzero(among):
        node = facts.nodes[row]
        found[row] = node is not None and _satisfied(waiting, node)
    return found


VOLUME_BINDING: Final = Predicate("volume-binding", reject, allow)
