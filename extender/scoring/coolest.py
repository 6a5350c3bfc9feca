# SPDX-License-Identifier: Apache-2.0
"""Which nodes of a long list are worth scoring: the coolest of every zone.

A shortlist must contain the node that kube-scheduler would take from the whole list. Load
counts most, so the coolest nodes are there. Pods of one controller are spread over hosts and
zones by default (`systemDefaultConstraints` in
pkg/scheduler/framework/plugins/podtopologyspread/plugin.go), so every zone has its share, and
the coolest of the nodes with the fewest siblings are there too. Nothing can be said about a
node whose load is unknown, so none of those is left out.

Everything is computed on whole arrays: a list has thousands of names.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from extender.scoring.categories import Codes
from extender.scoring.curve import Figures, Mask

_TIE: Final = np.random.default_rng(20261117).random(4096) * 1e-9
"""Differences that decide between equal nodes only, otherwise always the first would win."""


class Field(NamedTuple):
    """The nodes of a list, each with what decides about it."""

    strain: Figures
    zones: Codes
    known: Mask
    """Whose load is known."""
    siblings: Codes | None
    """How many pods of the same controller each has; None if it has no siblings."""


class Size(NamedTuple):
    """How many nodes a shortlist has."""

    coolest: int
    lonely: int
    """How many of them are those with the fewest siblings, at least."""


def shortlist(nodes: Field, size: Size) -> Mask:
    """Return which nodes of a list are on its shortlist."""
    keep = ~nodes.known
    if not keep.any():
        keep[coolest(nodes.strain, nodes.zones, size.coolest)] = True
    else:
        _add(keep, nodes, np.flatnonzero(nodes.known), size.coolest)
    if nodes.siblings is not None and nodes.known.any():
        fewest = nodes.siblings[nodes.known].min()
        lonely = np.flatnonzero(nodes.known & (nodes.siblings == fewest))
        _add(keep, nodes, lonely, size.lonely)
    return keep


def _add(keep: Mask, nodes: Field, among: Codes, wanted: int) -> None:
    keep[among[coolest(nodes.strain[among], nodes.zones[among], wanted)]] = True


def coolest(strain: Figures, zones: Codes, wanted: int) -> Codes:
    """Return the positions of the coolest nodes; zones get shares in proportion to their size.

    The coolest node of every zone comes first, however small the zone is.
    """
    count = strain.size
    if count <= wanted:
        return np.arange(count)
    # Within its zone a node is sorted by a figure between 0 and 1 that grows with its strain.
    order = (zones + strain / (1.0 + strain)).argsort()
    sizes = np.bincount(zones)
    ordered = zones[order]
    rank = np.arange(count) - (sizes.cumsum() - sizes)[ordered]
    share = rank / sizes[ordered]
    near = (share <= wanted / count).nonzero()[0]
    nearest = order[near]
    found: Codes = nearest[np.lexsort((strain[nearest], share[near]))[:wanted]]
    return found


def untied(strain: Figures, rows: Codes, turn: int) -> Figures:
    """Return the strain with equal figures told apart, differently at every turn."""
    found: Figures = strain + _TIE.take(rows + turn % _TIE.size, mode="wrap")
    return found
