# SPDX-License-Identifier: Apache-2.0
"""What a node uses beside its pods: kubelet, container runtime, kernel.

It is the difference between a node's sample and those of its pods, learned from windows in
which no pod came or left. Kubelets read every cgroup at its own moment: on real nodes the
windows of a node and of its pods overlap by a quarter to two thirds, and the difference is
steady all the same. So no overlap is asked for, and the median of the last five differences
is taken, because a pod whose use changes makes single ones wrong.

A node's figure does not rest on it, its sample contains the overhead. It tells what part of a
sample belongs to a pod that started or left in the middle of the window (`view`).
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

from common.load.values import Load

REMEMBERED: Final = 5
LAG_S: Final = 30.0
"""How long before a node's window a pod's sample may end and still tell of the same time.

On real kubelets pod samples end up to 17 s before the end of their node's window.
"""


class Overhead:
    """One node's residuals, and what follows from them."""

    __slots__ = ("_residuals", "value")

    def __init__(self) -> None:
        self.value: Load | None = None
        """None until a window could tell."""
        self._residuals: deque[Load] = deque(maxlen=REMEMBERED)

    def add(self, found: Load) -> None:
        """Learn from one more residual."""
        self._residuals.append(found)
        # Clipping each residual first would turn noise around zero into an overhead.
        self.value = Load(
            max(0.0, median(load.cpu_milli for load in self._residuals)),
            max(0.0, median(load.mem_bytes for load in self._residuals)),
        )
