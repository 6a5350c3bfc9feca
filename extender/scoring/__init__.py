"""Scores: how level a node will be once a pod is there.

Pure: beliefs in, numbers out. `Board` holds what is believed of every node, `Overlay` adds
what was answered or promised since, and the curve turns both into 0 to 10.
"""

from extender.scoring.board import STRANGER, Board, Newcomers, ScoreSettings
from extender.scoring.curve import BEST, FULL, NEUTRAL, likeliest
from extender.scoring.overlay import Demand, Overlay, Tally

__all__ = [
    "BEST",
    "FULL",
    "NEUTRAL",
    "STRANGER",
    "Board",
    "Demand",
    "Newcomers",
    "Overlay",
    "ScoreSettings",
    "Tally",
    "likeliest",
]
