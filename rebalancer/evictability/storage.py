# SPDX-License-Identifier: Apache-2.0
"""Gates about what a pod cannot take with it: data on the node, shared volumes, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.cache.snapshot import Snapshot
from common.cluster.records import PodRecord
from common.cluster.storage import ClaimRecord
from common.config import LocalStorage
from rebalancer.evictability.context import Context
from rebalancer.refusals import Reason, Refusal

_ANY_CLASS: Final = "*"
_ON_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_RESOURCE_CLAIMS: Final = Reason.RESOURCE_CLAIMS.refusal()
_LOCAL: Final = Reason.LOCAL_STORAGE.refusal()


def no_local_storage(pod: PodRecord, context: Context) -> Refusal | None:
    if not pod.shape.local_storage or context.config.local_storage is LocalStorage.ALLOW:
        return None
    return _LOCAL


def no_local_volume(pod: PodRecord, context: Context) -> Refusal | None:
    volumes = context.snapshot.volumes
    for claim in _claims(pod, context.snapshot):
        volume = volumes.get(claim.volume)
        if volume is not None and volume.local:
            return Reason.LOCAL_VOLUME.refusal(claim=claim.name)
    return None


def no_protected_storage_class(pod: PodRecord, context: Context) -> Refusal | None:
    protected = context.rules.protected_classes
    if not protected:
        return None
    for claim in _claims(pod, context.snapshot):
        if _ANY_CLASS in protected or (claim.storage_class or "") in protected:
            return Reason.PROTECTED_STORAGE_CLASS.refusal(claim=claim.name)
    return None


def no_volume_shared_on_the_node(pod: PodRecord, context: Context) -> Refusal | None:
    """The scheduler would place the replacement; the volume could not be attached there."""
    for claim in _claims(pod, context.snapshot):
        if context.claim_users(claim.key, pod.node) > 1 and _on_one_node(claim, context.snapshot):
            return Reason.SHARED_VOLUME.refusal(claim=claim.name)
    return None


def claim_on_one_node(pod: PodRecord, snapshot: Snapshot) -> str | None:
    """Return a claim that a second replica on another node could not use."""
    named = set(pod.shape.claims)
    for claim in _claims(pod, snapshot):
        if claim.name in named and _on_one_node(claim, snapshot):
            return claim.name
    return None


def no_resource_claims(pod: PodRecord, _: Context) -> Refusal | None:
    return _RESOURCE_CLAIMS if pod.shape.resource_claims else None


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
