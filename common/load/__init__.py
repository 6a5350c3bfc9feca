# SPDX-License-Identifier: Apache-2.0
"""Load: what we believe that nodes and pods use now.

Pure: plain snapshots and samples in, plain values out. `LoadTracker` remembers, `LoadView` is
what it believes at one moment, `Observations` counts how long a goal has been broken.
"""

from common.api.contract import Unknown
from common.load.belief import Belief
from common.load.freshness import why_no_nodes, why_no_pods
from common.load.observations import Observations
from common.load.tracker import NO_PREDECESSORS, LoadTracker
from common.load.values import Basis, Change, Difference, FurtherLoad, Load, NodeLoad, PodLoad
from common.load.view import LoadView, requested_load

__all__ = [
    "NO_PREDECESSORS",
    "Basis",
    "Belief",
    "Change",
    "Difference",
    "FurtherLoad",
    "Load",
    "LoadTracker",
    "LoadView",
    "NodeLoad",
    "Observations",
    "PodLoad",
    "Unknown",
    "requested_load",
    "why_no_nodes",
    "why_no_pods",
]
