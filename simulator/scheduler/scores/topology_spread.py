# SPDX-License-Identifier: Apache-2.0
"""Preferred topology spread (plugins/podtopologyspread/scoring.go).

A pod without constraints is spread over hosts and zones by default if it has a controller, with
the selector of the controller; Services, which the real one uses too, are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.cluster.selectors import NOTHING, Selector
from common.cluster.shapes import Spread
from common.fit.index.arrays import Flags, Floats, Ints
from common.fit.predicates.topology_spread import (
    constraint_selector,
    counted_rows,
    eligible_nodes,
)
from common.fit.question import Question
from simulator.scheduler.scores.base import BEST, Score

_HOSTNAME: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_SPREADING: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})


@dataclass(frozen=True, slots=True)
class Rules:
    """The soft constraints of a pod."""

    constraints: tuple[Spread, ...]
    own: bool
    """From the pod spec: then a node without one of the labels gets no score."""


def rules(ask: Question) -> Rules:
    """Return the pod's soft constraints, or the scheduler's for pods of a controller."""
    if ask.pod.shape.spread:
        soft = tuple(constraint for constraint in ask.pod.shape.spread if not constraint.hard)
        return Rules(soft, own=True)
    selector = _controllers_selector(ask)
    if not selector.requirements:
        return Rules((), own=False)
    return Rules((_soft(3, _HOSTNAME, selector), _soft(5, _ZONE, selector)), own=False)


def rate(ask: Question, among: Flags) -> Ints | None:
    """Prefer domains with few of the pods that the constraints count."""
    found = rules(ask)
    if not found.constraints:
        return None
    facts = ask.index.facts
    labelled = facts.alive
    if found.own:
        for constraint in found.constraints:
            labelled = labelled & facts.column(constraint.topology_key).present()
    running = among & labelled
    total = np.zeros(facts.capacity, dtype=np.float64)
    for constraint in found.constraints:
        total += _crowding(ask, constraint, labelled, running)
    return _turned(np.floor(total + 0.5).astype(np.int64), running)


def _crowding(ask: Question, constraint: Spread, labelled: Flags, running: Flags) -> Floats:
    facts = ask.index.facts
    column = facts.column(constraint.topology_key)
    rows, numbers = counted_rows(ask, constraint_selector(constraint, ask.pod.labels))
    counts = np.zeros(facts.capacity, dtype=np.int64)
    if constraint.topology_key == _HOSTNAME:
        np.add.at(counts, rows, numbers)
        size = int(np.count_nonzero(running))
    else:
        counting = (labelled & eligible_nodes(facts, ask.pod.shape, constraint))[rows]
        by_value = np.zeros(column.size + 1, dtype=np.int64)
        np.add.at(by_value, column.ids[rows[counting]], numbers[counting])
        counts = by_value[column.ids]
        # A missing label is a separate domain where it may be missing.
        size = np.unique(column.ids[running]).size
    crowding = counts * np.log(size + 2) + (constraint.max_skew - 1)
    return np.where(column.present(), crowding, 0.0)


def _turned(raw: Ints, running: Flags) -> Ints:
    """Turn counts into scores; ignored nodes get 0."""
    if not running.any():
        return np.zeros(raw.size, dtype=np.int64)
    low, high = int(raw[running].min()), int(raw[running].max())
    if high == 0:
        return np.where(running, BEST, 0)
    return np.where(running, BEST * (high + low - raw) // high, 0)


def _soft(max_skew: int, key: str, selector: Selector) -> Spread:
    return Spread(max_skew, key, False, selector, 1, True, False, ())


def _controllers_selector(ask: Question) -> Selector:
    owner = ask.pod.owner
    if owner is None or owner.kind not in _SPREADING:
        return NOTHING
    controller = ask.world.snapshot.workload(owner.within(ask.pod.namespace))
    return controller.selector if controller is not None else NOTHING


TOPOLOGY_SPREAD: Final = Score("PodTopologySpread", 2, rate)
