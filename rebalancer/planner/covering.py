"""How few of the largest loads of each node reach a target.

The one count behind every certificate: whichever pods leave a node, so many of them have to.
Groups are nodes, given as a row number per pod.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rebalancer.planner.instance import Flags, Floats, Instance, Ints

TOLERANCE: Final = 1e-6
"""Points of utilisation by which two loads may differ and still count as equal."""


def movable(instance: Instance) -> Flags:
    """[P] pods that a plan can move at all: their node gives, and some node could take them."""
    leaves = instance.gives | instance.empty
    return np.asarray(leaves[instance.at] & instance.allowed.any(axis=1))


def unlisted(instance: Instance) -> Flags:
    """[N] nodes that give, but none of whose pods is in the instance.

    Their pods may not have been looked at: nothing may be claimed about them.
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
