"""The planning problem in numbers.

Rows are nodes by sorted name, columns are the pods that may be moved, by uid. The last axis
of every pair is (cpu, memory). Only static facts stand here: what each pod uses and where it
could run as the cluster is now. Search, bounds and the exact solver all start from it, so
they argue about the same problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from common.cluster.records import NodeName, PodUid

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

CPU, MEMORY = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Nodes, movable pods, and what each of them weighs."""

    nodes: tuple[NodeName, ...]
    capacity: Floats
    """[N, 2] allocatable: milli-CPU, bytes."""
    load: Floats
    """[N, 2] what is believed to be used now, in the units of capacity."""
    ceiling: Floats
    """[N, 2] percent of capacity that may be used."""
    gives: Flags
    """[N] may lose pods for the sake of a goal."""
    takes: Flags
    """[N] may receive pods."""
    pods: tuple[PodUid, ...]
    at: Ints
    """[P] row of the node where the pod is."""
    pod_load: Floats
    """[P, 2] what the pod uses."""
    allowed: Flags
    """[P, N] nodes where the pod's replacement could run as the cluster is now; its own node
    is always False. An over-estimate is fine for bounds, never an under-estimate."""
    empty: Flags
    """[N] has to be emptied."""

    @property
    def percent(self) -> Floats:
        """[N, 2] utilisation now."""
        return 100.0 * self.load / self.capacity
