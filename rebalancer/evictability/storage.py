"""Gates about what a pod cannot take along: data on the node, shared volumes, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.cluster.records import PodRecord
from common.cluster.snapshot import Snapshot
from common.cluster.storage import ClaimRecord
from common.config import LocalStorage
from rebalancer.evictability.context import Context
from rebalancer.reasons import Refusal

_ANY_CLASS: Final = "*"
_ON_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_LOCAL: Final = Refusal("LocalStorage", "it keeps data on its node (hostPath or emptyDir)")


def no_local_storage(pod: PodRecord, context: Context) -> Refusal | None:
    if not pod.shape.local_storage or context.config.local_storage is LocalStorage.ALLOW:
        return None
    return _LOCAL


def no_local_volume(pod: PodRecord, context: Context) -> Refusal | None:
    volumes = context.snapshot.volumes
    for claim in _claims(pod, context.snapshot):
        volume = volumes.get(claim.volume)
        if volume is not None and volume.local:
            return Refusal("LocalVolume", f"the volume of its claim {claim.name} is on its node")
    return None


def no_protected_storage_class(pod: PodRecord, context: Context) -> Refusal | None:
    protected = context.rules.protected_classes
    if not protected:
        return None
    for claim in _claims(pod, context.snapshot):
        if _ANY_CLASS in protected or (claim.storage_class or "") in protected:
            words = f"the storage class of its claim {claim.name} is protected"
            return Refusal("ProtectedStorageClass", words)
    return None


def no_volume_shared_on_the_node(pod: PodRecord, context: Context) -> Refusal | None:
    """The scheduler would place the replacement; the volume could not be attached there."""
    for claim in _claims(pod, context.snapshot):
        if context.users(claim.key, pod.node) > 1 and _on_one_node(claim, context.snapshot):
            words = f"another pod on its node also uses {claim.name}, which one node can attach"
            return Refusal("SharedVolume", words, for_good=False)
    return None


def no_resource_claims(pod: PodRecord, _: Context) -> Refusal | None:
    if not pod.shape.resource_claims:
        return None
    return Refusal("ResourceClaims", "it has resource claims, whose devices we cannot judge")


def _claims(pod: PodRecord, snapshot: Snapshot) -> Sequence[ClaimRecord]:
    shape = pod.shape
    if not shape.claims and not shape.ephemeral_claims:
        return ()
    names = (*shape.claims, *(f"{pod.name}-{volume}" for volume in shape.ephemeral_claims))
    found = (snapshot.claims.get(f"{pod.namespace}/{name}") for name in names)
    return [claim for claim in found if claim is not None]


def _on_one_node(claim: ClaimRecord, snapshot: Snapshot) -> bool:
    """Judge as IsMultiAttachAllowed in pkg/volume/util/util.go, the volume before the claim."""
    volume = snapshot.volumes.get(claim.volume)
    modes = volume.access_modes if volume is not None else claim.access_modes
    return bool(modes) and _ON_MANY_NODES.isdisjoint(modes)
