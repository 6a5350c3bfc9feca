"""Load: what we believe that nodes and pods use now.

Pure: plain snapshots and samples in, plain values out. `LoadBook` remembers, `LoadView` is
what it believes at one moment, `Observations` counts how long a goal has been broken.
"""

from common.contract import Unknown
from common.load.book import NO_PREDECESSORS, LoadBook
from common.load.freshness import why_no_nodes, why_no_pods
from common.load.observations import Observations
from common.load.settings import EstimateSettings, LoadSettings
from common.load.values import Basis, Change, Difference, Load, NodeLoad, PodLoad
from common.load.view import LoadView

__all__ = [
    "NO_PREDECESSORS",
    "Basis",
    "Change",
    "Difference",
    "EstimateSettings",
    "Load",
    "LoadBook",
    "LoadSettings",
    "LoadView",
    "NodeLoad",
    "Observations",
    "PodLoad",
    "Unknown",
    "why_no_nodes",
    "why_no_pods",
]
