# SPDX-License-Identifier: Apache-2.0
"""The planning problem in numbers, and the one count behind every lower bound.

Rows are nodes by sorted name, columns are the pods that may be moved, by uid. The last axis
of every array is the resource (`resources`). Only static facts stand here: what each pod uses
and where it could run as the cluster is now. Search and bounds start from it, so they argue
about the same problem.

The count: whichever pods leave a node, at least as many have to as it takes when its largest
leave first. Pods are grouped by node, given as a row number per pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from common.cluster.records import NodeName, PodUid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Nodes, movable pods, and what each of them weighs."""

    nodes: tuple[NodeName, ...]
    capacity: Floats
    """[N, R] allocatable: milli-CPU, bytes."""
    load: Floats
    """[N, R] what is believed to be used now, in the units of capacity."""
    ceiling: Floats
    """[N, R] percent of capacity that may be used."""
    gives: Flags
    """[N] may lose pods for the sake of a goal."""
    takes: Flags
    """[N] may receive pods."""
    pods: tuple[PodUid, ...]
    at: Ints
    """[P] row of the node where the pod is."""
    pod_load: Floats
    """[P, R] what the pod uses."""
    allowed: Flags
    """[P, N] nodes where the pod's replacement could run as the cluster is now; its own node
    does not count. An over-estimate is fine for bounds, never an under-estimate."""
    empty: Flags
    """[N] has to be emptied."""
    kinds: Ints | None = None
    """[P] the row of `allowed` that is the pod's, where pods that are alike share one: in a
    large cluster a row for each would take gigabytes."""

    @property
    def percent(self) -> Floats:
        """[N, R] utilization now."""
        return 100.0 * self.load / self.capacity

    def may_run(self, pods: Ints, rows: Ints) -> Flags:
        """[pods, rows] tell which of these pods could run on which of these nodes."""
        kinds = pods if self.kinds is None else self.kinds[pods]
        elsewhere = self.at[pods][:, None] != rows
        return np.asarray(self.allowed[np.ix_(kinds, rows)] & elsewhere)

    def may_leave(self) -> Flags:
        """[P] tell which pods could run on a node that takes pods, other than their own."""
        kinds = np.arange(len(self.at)) if self.kinds is None else self.kinds
        others = self.allowed & self.takes
        return np.asarray(others.sum(axis=1)[kinds] > others[kinds, self.at])


TOLERANCE: Final = 1e-6
"""Points of utilization by which two loads may differ and still count as equal."""


def movable(instance: Instance) -> Flags:
    """[P] pods that a plan can move at all: their node gives, and some node could take them."""
    leaves = instance.gives | instance.empty
    return np.asarray(leaves[instance.at] & instance.may_leave())


def unlisted(instance: Instance) -> Flags:
    """[N] nodes that give, but none of whose pods is in the instance.

    Their pods may not have been judged: nothing may be assumed about them.
    """
    listed = np.bincount(instance.at, minlength=len(instance.nodes)) > 0
    return np.asarray(~listed & instance.gives & (instance.load > 0.0).any(axis=1))


def largest_first(at: Ints, loads: Floats) -> Ints:
    """Return the order in which pods stand node by node, the largest of a node first."""
    return np.lexsort((-loads, at))


def sums_before(at: Ints, loads: Floats) -> Floats:
    """Return for each load the sum of those before it on its node; nodes stand together."""
    running = np.cumsum(loads) - loads
    return np.asarray(running - running[_first_of(at)])


def ranks(at: Ints) -> Ints:
    """Return how many pods stand before each on its node; nodes stand together."""
    return np.arange(len(at)) - _first_of(at)


def fewest_largest(at: Ints, loads: Floats, target: Floats) -> tuple[Ints, Flags]:
    """[N] how many of its largest loads reach each node's target, and whether all of them do."""
    order = largest_first(at, loads)
    node, load = at[order], loads[order]
    short = sums_before(node, load) < target[node]
    fewest = np.bincount(node[short], minlength=len(target))
    total = np.bincount(node, weights=load, minlength=len(target))
    return fewest, total >= target


def _first_of(at: Ints) -> Ints:
    return np.searchsorted(at, at, side="left")
