# SPDX-License-Identifier: Apache-2.0
"""Zones that volumes carry as labels, from before they had node affinity.

The rules are those of plugins/volumezone/volume_zone.go: a node without any zone or
region label is not judged, and a volume's old label also matches the node's new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from common.cluster.records import NodeRecord
from common.cluster.storage import VolumeRecord
from common.fit.index.arrays import Flags
from common.fit.index.columns import Column
from common.fit.index.facts import NodeFacts
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_PLUGIN: Final = "VolumeZone"
_ELSEWHERE: Final = (Rejection(_PLUGIN, "VolumeZone", "node(s) had no available volume zone"),)
_SUCCESSORS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_LABELS: Final = (*_SUCCESSORS, *_SUCCESSORS.values())
"""The labels of a volume and of nodes that are compared."""
_SEPARATOR: Final = "__"

Zones = tuple[tuple[str, frozenset[str]], ...]


def zones(ask: Question) -> Zones | Rejection:
    """Return (label, values) that the pod's volumes demand."""
    storage = ask.index.storage
    found: list[tuple[str, frozenset[str]]] = []
    for name in ask.pod.shape.claims:
        claim = storage.claim(f"{ask.pod.namespace}/{name}")
        if claim is None or not claim.volume:
            continue
        volume = storage.volume(claim.volume)
        if volume is None:
            message = f'persistentvolume "{claim.volume}" not found'
            return Rejection(_PLUGIN, "VolumeMissing", message, everywhere=True)
        found += _zones_of(volume)
    return tuple(found)


def reject(ask: Question, info: NodeInfo) -> Rejections:
    wanted = ask.prefilter(zones)
    if isinstance(wanted, Rejection):
        return (wanted,)
    if not wanted or not any(label in info.node.labels for label in ZONE_LABELS):
        return NONE
    return NONE if all(_is_in(info.node, *zone) for zone in wanted) else _ELSEWHERE


def allow(ask: Question) -> Flags | None:
    wanted = ask.prefilter(zones)
    facts = ask.index.facts
    if isinstance(wanted, Rejection):
        return np.zeros(facts.capacity, dtype=np.bool_)
    if not wanted:
        return None
    inside = facts.alive
    for label, values in wanted:
        inside = inside & _rows_in(facts, label, values)
    zoned = np.zeros(facts.capacity, dtype=np.bool_)
    for label in ZONE_LABELS:
        zoned |= facts.column(label).present()
    return inside | ~zoned


def _zones_of(volume: VolumeRecord) -> list[tuple[str, frozenset[str]]]:
    found = []
    for label in ZONE_LABELS:
        values = [v.strip() for v in volume.labels.get(label, "").split(_SEPARATOR)]
        # A label with an empty part is not understood and ignored (LabelZonesToSet).
        if all(values):
            found.append((label, frozenset(values)))
    return found


def _is_in(node: NodeRecord, label: str, values: frozenset[str]) -> bool:
    value = node.labels.get(label)
    if value is None:
        value = node.labels.get(_SUCCESSORS.get(label, label))
    return value in values


def _rows_in(facts: NodeFacts, label: str, values: frozenset[str]) -> Flags:
    column = facts.column(label)
    inside = _among(column, values)
    successor = _SUCCESSORS.get(label)
    if successor is None:
        return inside
    return inside | (~column.present() & _among(facts.column(successor), values))


def _among(column: Column, values: frozenset[str]) -> Flags:
    wanted = np.zeros(column.size + 1, dtype=np.bool_)
    wanted[[column.values[value] for value in values if value in column.values]] = True
    return column.pick(wanted)


VOLUME_ZONE: Final = Predicate("volume-zone", reject, allow)
