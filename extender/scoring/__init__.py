# SPDX-License-Identifier: Apache-2.0
"""Scores: how full a node will be once a pod is on it.

Pure: beliefs in, numbers out. `Board` holds what is believed about every node, `Overlay` adds
what was placed or reserved since, and the curve turns both into 0 to 10.
"""

from extender.scoring.board import UNKNOWN_ROW, Board, Newcomers
from extender.scoring.coolest import Size
from extender.scoring.curve import BEST, FULL, NEUTRAL, likeliest
from extender.scoring.name_index import KnownNames, NameIndex
from extender.scoring.overlay import Demand, Overlay, Tally

__all__ = [
    "BEST",
    "FULL",
    "NEUTRAL",
    "UNKNOWN_ROW",
    "Board",
    "Demand",
    "KnownNames",
    "NameIndex",
    "Newcomers",
    "Overlay",
    "Size",
    "Tally",
    "likeliest",
]
