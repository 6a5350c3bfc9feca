# SPDX-License-Identifier: Apache-2.0
"""Volumes that two pods may not share (plugins/volumerestrictions).

A claim for one pod at a time keeps a second pod from every node; disks of old in-tree
kinds keep it from the node where they are mounted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from common.cluster.shapes import Disk
from common.fit.index.arrays import Flags, flags_at
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "VolumeRestrictions"
_ONE_POD: Final = "ReadWriteOncePod"
_MOUNTED: Final = (
    Rejection(_PLUGIN, "DiskConflict", "node(s) had no available disk", resolvable=True),
)
_IN_USE: Final = (
    Rejection(
        _PLUGIN,
        "ClaimInUse",
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
        resolvable=True,
    ),
)


@dataclass(frozen=True, slots=True)
class Exclusive:
    """The pod's claims that are for one pod at a time."""

    names: frozenset[str]
    in_use: bool


def exclusive(ask: Question) -> Exclusive:
    """Find the pod's claims for one pod, and whether another pod has one of them."""
    index, namespace = ask.index, ask.pod.namespace
    found = []
    for name in ask.pod.shape.claims:
        claim = index.storage.claim(f"{namespace}/{name}")
        if claim is not None and _ONE_POD in claim.access_modes:
            found.append(name)
    used = any(index.mounts.in_use(f"{namespace}/{name}") for name in found)
    return Exclusive(frozenset(found), used)


def conflict(disk: Disk, mounted: Disk) -> bool:
    """Tell whether two pods on one node cannot both have their disk (isVolumeConflict)."""
    if (disk.kind, disk.pool, disk.image) != (mounted.kind, mounted.pool, mounted.image):
        return False
    if not set(disk.ids) & set(mounted.ids):
        return False
    return disk.kind == "aws" or not (disk.read_only and mounted.read_only)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    disks = ask.pod.shape.disks
    promised = [disk for nominee in info.nominated for disk in nominee.shape.disks]
    if _clash(disks, promised) or _clash(disks, ask.index.mounts.disks(info.row)):
        return _MOUNTED
    mine = ask.prefilter(exclusive)
    if mine.in_use:
        return _IN_USE
    # The real one asks nominated pods only when it has something to check anyway, and
    # then goes by the name of the claim, whatever the namespace.
    waiting = {claim for nominee in info.nominated for claim in nominee.shape.claims}
    return _IN_USE if disks and mine.names & waiting else NONE


def allow(ask: Question) -> Flags | None:
    index = ask.index
    if ask.prefilter(exclusive).in_use:
        return np.zeros(index.facts.capacity, dtype=np.bool_)
    disks = ask.pod.shape.disks
    if not disks:
        return None
    mounts = index.mounts
    clashing = [row for row in mounts.rows_with_disks() if _clash(disks, mounts.disks(row))]
    return ~flags_at(index.facts.capacity, clashing)


def _clash(disks: Iterable[Disk], mounted: Iterable[Disk]) -> bool:
    return any(conflict(disk, other) for disk in disks for other in mounted)


VOLUME_RESTRICTIONS: Final = Predicate("volume-restrictions", reject, allow)
