# SPDX-License-Identifier: Apache-2.0
"""How many volumes a CSI driver can attach to a node (plugins/nodevolumelimits/csi.go).

Counted are the volumes of the pods on the node, each once. Volumes that are attached
though no pod there uses them (VolumeAttachments) are not known here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from common.fit.candidate import Placed
from common.fit.index.arrays import Flags
from common.fit.index.mounts import claim_keys
from common.fit.index.storage import Attachment, Storage, inline
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_FULL: Final = (
    Rejection(
        "NodeVolumeLimits", "TooManyVolumes", "node(s) exceed max volume count", resolvable=True
    ),
)


def attachments(ask: Question) -> frozenset[Attachment]:
    """Return what the pod would attach to a node with a CSINode."""
    return _of_pod(ask.pod, ask.index.storage)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    wanted = ask.prefilter(attachments)
    limits = ask.index.storage.limits(info.node.name) if wanted else {}
    if not limits:
        return NONE
    index = ask.index
    index.mounts.settle(index.storage, index.facts.nodes)
    promised = (_of_pod(nominee, index.storage) for nominee in info.nominated)
    held = index.mounts.attached(info.row).union(*promised)
    count = Counter(attachment.driver for attachment in held)
    for driver, more in Counter(a.driver for a in wanted - held).items():
        if driver in limits and count[driver] + more > limits[driver]:
            return _FULL
    return NONE


def allow(ask: Question) -> Flags | None:
    wanted = ask.prefilter(attachments)
    if not wanted:
        return None
    index = ask.index
    index.mounts.settle(index.storage, index.facts.nodes)
    allowed = index.facts.alive
    for driver in sorted({a.driver for a in wanted}):
        limits = index.facts.spread(index.storage.limits_of(driver), other=-1)
        needed = np.full(index.facts.capacity, sum(a.driver == driver for a in wanted))
        for attachment in wanted:
            if attachment.driver == driver:
                needed[list(index.mounts.places(attachment))] -= 1
        held = index.mounts.attached_count(driver, index.facts.capacity)
        allowed = allowed & ((limits < 0) | (needed == 0) | (held + needed <= limits))
    return allowed


def _of_pod(pod: Placed, storage: Storage) -> frozenset[Attachment]:
    keys = claim_keys(pod.namespace, pod.name, pod.shape)
    claims = (storage.claim(key) for key in keys)
    found = {storage.attachment(claim, migrated=True) for claim in claims if claim is not None}
    found |= {inline(disk) for disk in pod.shape.disks}
    return frozenset(a for a in found if a is not None)


VOLUME_LIMITS: Final = Predicate("volume-limits", reject, allow)
