# SPDX-License-Identifier: Apache-2.0
"""What is believed about every node, as columns of numbers.

A board is immutable. The next one is made from the last and costs what changed: the column
of a node is recomputed only if its `NodeView` or its `NodeLoad` is another object.

Newcomers are pods that are not measured and have no measured siblings: only their own
requests are known, and those may be far too low. Each is charged at least `newPodFloor`
percent of its node until it is measured, so that a burst of pods that request little and use
much is spread over the cluster before the first measurement arrives.

What every request needs and only a change of the node can change is computed here too, in
the thread that makes boards: the row of a name, whether the node accepts pods, and its
encoded entry in an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from math import fsum
from operator import is_not, or_
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from common.api.objects import Effect, Taint
from common.cache.snapshot import NodeView
from common.cluster.records import NodeRecord
from common.config import ExtenderConfiguration, PoolIndex, Pressure, Thresholds
from common.load import Basis, Belief, LoadView, NodeLoad
from extender.scoring.categories import Categories
from extender.scoring.curve import Figures, Mask
from extender.scoring.entries import Entries
from extender.scoring.name_index import KnownNames, NameIndex

Rows = npt.NDArray[np.intp]

USE_CPU: Final = 0
"""Load divided by threshold, without the pod of the request."""
USE_MEM: Final = 1
REQUESTED_CPU: Final = 2
"""Requests divided by allocatable."""
REQUESTED_MEM: Final = 3
PER_CPU_MILLI: Final = 4
"""The share of allocatable that one milli-core, or one byte, is."""
PER_MEM_BYTE: Final = 5
USE_PER_CPU_MILLI: Final = 6
"""The share of the node's threshold that one milli-core, or one byte, is."""
USE_PER_MEM_BYTE: Final = 7
_FIGURES: Final = 8

UNKNOWN_ROW: Final = -1
"""The row of a node that is not in the cache: the last column, which is all zeros."""

_NOTHING: Final = (0.0,) * _FIGURES
_BLOCKING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_ZONE: Final = "topology.kubernetes.io/zone"
_NO_TAINTS: Final[tuple[Taint, ...]] = ()


class Newcomers(NamedTuple):
    """The pods of a node of which only the requests are known."""

    pods: int = 0
    cpu_milli: float = 0.0
    """What they are charged beyond their requests."""
    mem_bytes: float = 0.0


NO_NEWCOMERS: Final = Newcomers()


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """All nodes at one version of the cluster."""

    version: int
    """The version of the snapshot it was made from."""
    config: ExtenderConfiguration
    load: LoadView
    names: Sequence[str]
    index: NameIndex
    views: Sequence[NodeView]
    loads: Sequence[NodeLoad | None]
    newcomers: Sequence[Newcomers]
    table: Figures
    """One column per node, and one more for unknown nodes."""
    known: Mask
    schedulable: Mask
    """Which nodes accept pods without tolerations."""
    zones: Categories[str]
    soft_taints: Categories[tuple[Taint, ...]]
    """Taints that kube-scheduler avoids without rejecting the node."""
    entries: Entries

    @classmethod
    def after(cls, previous: Board | None, belief: Belief, config: ExtenderConfiguration) -> Board:
        """Return the board of this belief; unchanged columns are reused."""
        names = list(belief.snapshot.nodes)
        views = list(belief.snapshot.nodes.values())
        loads = list(map(belief.load.nodes.get, names))
        base = _base(previous if previous and previous.config == config else None, names)
        changed = compress(
            range(len(names)),
            map(or_, map(is_not, views, base.views), map(is_not, loads, base.loads)),
        )
        columns = base.recomputed(list(changed), views, loads, belief.load, config)
        return cls(
            version=belief.snapshot.version,
            config=config,
            load=belief.load,
            names=base.names,
            index=base.index,
            views=views,
            loads=loads,
            newcomers=columns.newcomers,
            table=columns.table,
            known=columns.known,
            schedulable=columns.schedulable,
            zones=columns.zones,
            soft_taints=columns.soft_taints,
            entries=base.entries,
        )

    @property
    def resting(self) -> bool:
        """Whether too little is known for load to decide."""
        return self.load.resting or not self.known.any()

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the rows of these nodes; `UNKNOWN_ROW` for nodes that are not in the cache."""
        if isinstance(names, KnownNames) and names.nodes is self.index:
            return names.rows
        try:
            return np.fromiter(map(self.index.__getitem__, names), np.intp, len(names))
        except KeyError:
            found = map(self.index.get, names, repeat(UNKNOWN_ROW))
            return np.fromiter(found, np.intp, len(names))


class _Columns(NamedTuple):
    """The figures of all nodes."""

    newcomers: list[Newcomers]
    table: Figures
    known: Mask
    schedulable: Mask
    zones: Categories[str]
    soft_taints: Categories[tuple[Taint, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class _Base:
    """The columns that the next board starts from."""

    names: Sequence[str]
    index: NameIndex
    views: Sequence[NodeView | None]
    loads: Sequence[NodeLoad | None]
    newcomers: Sequence[Newcomers]
    table: Figures
    known: Mask
    schedulable: Mask
    zones: Categories[str]
    soft_taints: Categories[tuple[Taint, ...]]
    entries: Entries

    def recomputed(
        self,
        rows: Sequence[int],
        views: Sequence[NodeView],
        loads: Sequence[NodeLoad | None],
        belief: LoadView,
        config: ExtenderConfiguration,
    ) -> _Columns:
        """Return the figures with these rows recomputed; the base is not changed."""
        if not rows:
            return _Columns(
                list(self.newcomers),
                self.table,
                self.known,
                self.schedulable,
                self.zones,
                self.soft_taints,
            )
        nodes = [views[i].node for i in rows]
        made = _Columns(
            list(self.newcomers),
            self.table.copy(),
            self.known.copy(),
            self.schedulable.copy(),
            self.zones.updated(rows, [node.labels.get(_ZONE, "") for node in nodes]),
            self.soft_taints.updated(rows, [_soft_taints(node) for node in nodes]),
        )
        new = [_newcomers(views[i], loads[i], belief, config) for i in rows]
        pools, most = PoolIndex(config), config.pressure
        columns = [
            _column(views[i], loads[i], n, pools, most) for i, n in zip(rows, new, strict=True)
        ]
        made.table[:, rows] = np.array(columns).T
        made.known[rows] = [_is_known(loads[i]) for i in rows]
        made.schedulable[rows] = [_is_schedulable(node) for node in nodes]
        for row, found in zip(rows, new, strict=True):
            made.newcomers[row] = found
        return made


def _base(previous: Board | None, names: Sequence[str]) -> _Base:
    if previous is None:
        return _blank(names)
    old = previous
    if old.names == names:
        return _Base(
            old.names,
            old.index,
            old.views,
            old.loads,
            old.newcomers,
            old.table,
            old.known,
            old.schedulable,
            old.zones,
            old.soft_taints,
            old.entries,
        )
    columns = np.append(old.rows(names), UNKNOWN_ROW)
    places = columns[:-1].tolist()
    return _Base(
        names,
        NameIndex(names),
        [old.views[i] if i != UNKNOWN_ROW else None for i in places],
        [old.loads[i] if i != UNKNOWN_ROW else None for i in places],
        [old.newcomers[i] if i != UNKNOWN_ROW else NO_NEWCOMERS for i in places],
        old.table[:, columns],
        old.known[columns],
        old.schedulable[columns],
        old.zones.taken(columns),
        old.soft_taints.taken(columns),
        Entries(names),
    )


def _blank(names: Sequence[str]) -> _Base:
    nothing: list[None] = [None] * len(names)
    return _Base(
        names,
        NameIndex(names),
        nothing,
        nothing,
        [NO_NEWCOMERS] * len(names),
        np.zeros((_FIGURES, len(names) + 1)),
        np.zeros(len(names) + 1, np.bool_),
        np.zeros(len(names) + 1, np.bool_),
        Categories.blank(len(names), ""),
        Categories.blank(len(names), _NO_TAINTS),
        Entries(names),
    )


def _is_known(load: NodeLoad | None) -> bool:
    return load is not None and load.why is None


def _is_schedulable(node: NodeRecord) -> bool:
    if not node.ready or node.unschedulable:
        return False
    return not any(taint.effect in _BLOCKING_EFFECTS for taint in node.taints)


def _soft_taints(node: NodeRecord) -> tuple[Taint, ...]:
    if not node.taints:
        return _NO_TAINTS
    return tuple(t for t in node.taints if t.effect == Effect.PREFER_NO_SCHEDULE)


def _column(
    view: NodeView, load: NodeLoad | None, new: Newcomers, pools: PoolIndex, most: Pressure
) -> tuple[float, ...]:
    allocatable, requested = view.node.allocatable, view.requested
    if load is None or allocatable.cpu_milli <= 0 or allocatable.mem_bytes <= 0:
        return _NOTHING
    per_cpu_milli, per_mem_byte = 1.0 / allocatable.cpu_milli, 1.0 / allocatable.mem_bytes
    limits, used = pools.thresholds_of(view.node.labels), load.room
    cpu = (used.cpu_milli + new.cpu_milli) * per_cpu_milli * 100.0 / limits.cpu
    return (
        max(1.0, cpu) if _pressed(load, most) or _short(load, limits) else cpu,
        (used.mem_bytes + new.mem_bytes) * per_mem_byte * 100.0 / limits.memory,
        requested.cpu_milli * per_cpu_milli,
        requested.mem_bytes * per_mem_byte,
        per_cpu_milli,
        per_mem_byte,
        per_cpu_milli / (limits.cpu / 100.0),
        per_mem_byte / (limits.memory / 100.0),
    )


def _pressed(load: NodeLoad, most: Pressure) -> bool:
    """Tell whether tasks of a node wait too long: then it counts as being at its threshold."""
    return any(most.exceeded(load.pressure.cpu_percent, load.pressure.mem_percent))


def _short(load: NodeLoad, limits: Thresholds) -> bool:
    """Tell the same of a node that is above the threshold of a further resource."""
    return any(
        each.percent > most for each, most in zip(load.further, limits.further, strict=False)
    )


def _newcomers(
    view: NodeView, load: NodeLoad | None, loads: LoadView, config: ExtenderConfiguration
) -> Newcomers:
    """Return how many newcomers a node has, and their charge beyond the estimate."""
    if load is None:
        return NO_NEWCOMERS
    new = [each for each in load.arriving if each.basis is Basis.SPEC]
    if not new:
        return NO_NEWCOMERS
    least_cpu = view.node.allocatable.cpu_milli * config.new_pod_floor / 100.0
    least_mem = view.node.allocatable.mem_bytes * config.new_pod_floor / 100.0
    # The part of a starting pod that the sample already contains is not in the estimate.
    pods = [loads.pod_load(each.uid) for each in new]
    return Newcomers(
        len(pods),
        fsum(max(0.0, least_cpu - pod.cpu_milli) for pod in pods),
        fsum(max(0.0, least_mem - pod.mem_bytes) for pod in pods),
    )
