"""What is believed of every node, as columns of numbers.

A board never changes. The next one is made from the last and costs what changed: a node's
column is computed anew only when its `NodeView` or its `NodeLoad` is another object.

Newcomers are pods that nobody has measured and no sibling vouches for: only their own
requests speak for them, and those may be far too low. Each counts for at least
`newPodFloor` percent of its node until it is measured, so that a burst of pods that ask for
little and use much is spread over the cluster before the first measurement arrives.

What every request needs of a node and only a change of the node can change is made here
too, in the thread that makes boards: its place by name, whether it takes pods, and its
entry in an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from math import fsum
from operator import is_not, or_
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from common.cluster.records import NodeRecord
from common.cluster.snapshot import NodeView, Snapshot
from common.load import Basis, LoadView, NodeLoad
from extender.scoring.curve import Figures, Mask
from extender.scoring.entries import Entries

Rows = npt.NDArray[np.intp]

USE_CPU: Final = 0
"""Load over threshold, without the pod that is asked about."""
USE_MEM: Final = 1
ASKED_CPU: Final = 2
"""Requests over allocatable."""
ASKED_MEM: Final = 3
ONE_CPU: Final = 4
"""The share of allocatable that one milli-core, or one byte, is."""
ONE_MEM: Final = 5
_FIGURES: Final = 6

STRANGER: Final = -1
"""The row of a name that nobody knows: the last column, which says nothing."""

_NOTHING: Final = (0.0,) * _FIGURES
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})


class Believed(Protocol):
    """A moment of the cluster and what is believed of its load."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def load(self) -> LoadView: ...


@dataclass(frozen=True, slots=True)
class ScoreSettings:
    """What is too much, and what a newcomer counts for; all in percent of allocatable."""

    cpu_threshold: float = 80.0
    mem_threshold: float = 80.0
    new_pod_floor: float = 2.5


class Newcomers(NamedTuple):
    """The pods of a node that only their own requests speak for."""

    pods: int = 0
    cpu_milli: float = 0.0
    """By how much they count for more than they ask."""
    mem_bytes: float = 0.0


NONE_NEW: Final = Newcomers()


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """All nodes at one version of the cluster."""

    version: int
    """The version of the snapshot that it was made from."""
    settings: ScoreSettings
    load: LoadView
    names: Sequence[str]
    index: Mapping[str, int]
    views: Sequence[NodeView]
    loads: Sequence[NodeLoad | None]
    newcomers: Sequence[Newcomers]
    table: Figures
    """One column per node, and one more for strangers."""
    known: Mask
    opened: Mask
    """Which nodes take pods that tolerate nothing."""
    entries: Entries

    @classmethod
    def after(cls, previous: Board | None, belief: Believed, settings: ScoreSettings) -> Board:
        """Return the board of this belief; what has not changed is taken over."""
        names = list(belief.snapshot.nodes)
        views = list(belief.snapshot.nodes.values())
        loads = list(map(belief.load.nodes.get, names))
        base = _base(previous if previous and previous.settings == settings else None, names)
        news = compress(
            range(len(names)),
            map(or_, map(is_not, views, base.views), map(is_not, loads, base.loads)),
        )
        redrawn = base.redrawn(list(news), views, loads, belief.load, settings)
        return cls(
            version=belief.snapshot.version,
            settings=settings,
            load=belief.load,
            names=base.names,
            index=base.index,
            views=views,
            loads=loads,
            newcomers=redrawn.newcomers,
            table=redrawn.table,
            known=redrawn.known,
            opened=redrawn.opened,
            entries=base.entries,
        )

    @property
    def resting(self) -> bool:
        """Tell whether so little is known that load should not decide."""
        return self.load.resting or not self.known.any()

    def rows(self, names: Sequence[str]) -> Rows:
        """Return the rows of these nodes; `STRANGER` for those that nobody knows."""
        try:
            return np.fromiter(map(self.index.__getitem__, names), np.intp, len(names))
        except KeyError:
            found = map(self.index.get, names, repeat(STRANGER))
            return np.fromiter(found, np.intp, len(names))


class _Redrawn(NamedTuple):
    """Figures of all nodes, of which some were computed anew."""

    newcomers: list[Newcomers]
    table: Figures
    known: Mask
    opened: Mask


@dataclass(frozen=True, slots=True, eq=False)
class _Base:
    """What the next board starts from."""

    names: Sequence[str]
    index: Mapping[str, int]
    views: Sequence[NodeView | None]
    loads: Sequence[NodeLoad | None]
    newcomers: Sequence[Newcomers]
    table: Figures
    known: Mask
    opened: Mask
    entries: Entries

    def redrawn(
        self,
        rows: Sequence[int],
        views: Sequence[NodeView],
        loads: Sequence[NodeLoad | None],
        belief: LoadView,
        settings: ScoreSettings,
    ) -> _Redrawn:
        """Return the figures with these rows computed anew; the base stays as it was."""
        if not rows:
            return _Redrawn(list(self.newcomers), self.table, self.known, self.opened)
        made = _Redrawn(
            list(self.newcomers), self.table.copy(), self.known.copy(), self.opened.copy()
        )
        new = [_newcomers(views[i], loads[i], belief, settings) for i in rows]
        columns = [_column(views[i], loads[i], n, settings) for i, n in zip(rows, new, strict=True)]
        made.table[:, rows] = np.array(columns).T
        made.known[rows] = [_is_known(loads[i]) for i in rows]
        made.opened[rows] = [_is_open(views[i].node) for i in rows]
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
            old.opened,
            old.entries,
        )
    columns = np.append(old.rows(names), STRANGER)
    places = columns[:-1].tolist()
    return _Base(
        names,
        _index(names),
        [old.views[i] if i != STRANGER else None for i in places],
        [old.loads[i] if i != STRANGER else None for i in places],
        [old.newcomers[i] if i != STRANGER else NONE_NEW for i in places],
        old.table[:, columns],
        old.known[columns],
        old.opened[columns],
        Entries(names),
    )


def _blank(names: Sequence[str]) -> _Base:
    nobody: list[None] = [None] * len(names)
    return _Base(
        names,
        _index(names),
        nobody,
        nobody,
        [NONE_NEW] * len(names),
        np.zeros((_FIGURES, len(names) + 1)),
        np.zeros(len(names) + 1, np.bool_),
        np.zeros(len(names) + 1, np.bool_),
        Entries(names),
    )


def _index(names: Sequence[str]) -> Mapping[str, int]:
    # Copies, for they lie side by side: names that lie where their nodes were read, all over
    # the memory of a large cluster, take twice as long to look up.
    return {name.encode().decode(): row for row, name in enumerate(names)}


def _is_known(load: NodeLoad | None) -> bool:
    return load is not None and load.why is None


def _is_open(node: NodeRecord) -> bool:
    if not node.ready or node.unschedulable:
        return False
    return not any(taint.effect in _KEEPS_OUT for taint in node.taints)


def _column(
    view: NodeView, load: NodeLoad | None, new: Newcomers, settings: ScoreSettings
) -> tuple[float, ...]:
    offered, asked = view.node.allocatable, view.requested
    if load is None or offered.cpu_milli <= 0 or offered.mem_bytes <= 0:
        return _NOTHING
    one_cpu, one_mem = 1.0 / offered.cpu_milli, 1.0 / offered.mem_bytes
    return (
        (load.cpu_milli + new.cpu_milli) * one_cpu * 100.0 / settings.cpu_threshold,
        (load.mem_bytes + new.mem_bytes) * one_mem * 100.0 / settings.mem_threshold,
        asked.cpu_milli * one_cpu,
        asked.mem_bytes * one_mem,
        one_cpu,
        one_mem,
    )


def _newcomers(
    view: NodeView, load: NodeLoad | None, loads: LoadView, settings: ScoreSettings
) -> Newcomers:
    """Return how many newcomers a node has, and what they count for beyond their estimate."""
    if load is None:
        return NONE_NEW
    new = [each for each in load.arriving if each.basis is Basis.SPEC]
    if not new:
        return NONE_NEW
    least_cpu = view.node.allocatable.cpu_milli * settings.new_pod_floor / 100.0
    least_mem = view.node.allocatable.mem_bytes * settings.new_pod_floor / 100.0
    # What the sample contains of a pod that is just starting is no part of the estimate.
    pods = [loads.pod_load(each.uid) for each in new]
    return Newcomers(
        len(pods),
        fsum(max(0.0, least_cpu - pod.cpu_milli) for pod in pods),
        fsum(max(0.0, least_mem - pod.mem_bytes) for pod in pods),
    )
