"""What a node uses beside its pods: kubelet, container runtime, kernel.

It is the only thing that a node's own measurement is good for. A pod that left inside the
window is still in the node's figure, and one that came is in it only in part, so a
residual (node measurement − Σ measurements of its pods) counts in full only when the node
was quiet; then the median of the last five is taken and clipped at zero. Clipping each
residual first would turn noise around zero into an overhead. Without a quiet window for
ten minutes the smallest residual of that time is the best there is: churn mostly adds.

There is no residual at all, and the old value stays, where node and pods were not
measured together: their windows overlap by less than 80 %, or a pod that ran all the time
was not measured. Kubelets read every cgroup at its own moment, a few seconds apart in
either direction, so the window of the sum is the mean of the pods' windows, each weighted
with its share of the sum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from statistics import median
from typing import Final

import msgspec

from common.cluster.records import PodRecord
from common.load.judging import STAMP_PRECISION_S
from common.load.values import Load
from common.usage.source import Usage

MEMORY_S: Final = 600.0
REMEMBERED: Final = 5
LEAST_OVERLAP: Final = 0.8

NO_OVERHEAD: Final = Load(0.0, 0.0)


class Residual(msgspec.Struct, frozen=True, gc=False):
    """What the pods do not explain of one measurement of their node."""

    cpu_milli: float
    mem_bytes: float
    end_s: float
    quiet: bool


def residual(
    node: Usage,
    pods: Iterable[PodRecord],
    usages: Iterable[Usage | None],
    *,
    left_s: float,
) -> Residual | None:
    """Compare a node's measurement with those of its pods; None if they do not compare.

    `usages` are those of the pods, in the same order; no pod has left since `left_s`.
    """
    cpu_milli, mem_bytes = node.cpu_milli, node.mem_bytes
    weights = starts = ends = 0.0
    start_s, end_s = node.start_s, node.end_s
    quiet = start_s >= left_s
    for pod, usage in zip(pods, usages, strict=True):
        since_s = inf if pod.scheduled_s is None else pod.scheduled_s
        was_there = since_s + STAMP_PRECISION_S <= start_s
        quiet = quiet and was_there
        if usage is None or usage.end_s <= since_s or not _meet(usage, start_s, end_s):
            if was_there and pod.phase != "Pending":
                return None
            continue
        cpu_milli -= usage.cpu_milli
        mem_bytes -= usage.mem_bytes
        weight = usage.cpu_milli + 1.0
        weights += weight
        starts += weight * (usage.end_s - usage.window_s)
        ends += weight * usage.end_s
    if weights and not _comparable(node, starts / weights, ends / weights):
        return None
    return Residual(cpu_milli, mem_bytes, end_s, quiet)


def _meet(usage: Usage, start_s: float, end_s: float) -> bool:
    return usage.end_s >= start_s and usage.end_s - usage.window_s <= end_s


def _comparable(node: Usage, start_s: float, end_s: float) -> bool:
    shared = min(node.end_s, end_s) - max(node.start_s, start_s)
    return shared >= LEAST_OVERLAP * max(node.window_s, end_s - start_s)


class Overhead:
    """One node's residuals, and what follows from them."""

    __slots__ = ("_cpu_least", "_mem_least", "_quiet", "_quiet_s", "value")

    def __init__(self) -> None:
        self.value = NO_OVERHEAD
        self._quiet: deque[Load] = deque(maxlen=REMEMBERED)
        self._quiet_s = -inf
        self._cpu_least = _Least()
        self._mem_least = _Least()

    def add(self, found: Residual) -> None:
        """Learn from one more residual, which must be newer than the last."""
        self._cpu_least.add(found.end_s, found.cpu_milli)
        self._mem_least.add(found.end_s, found.mem_bytes)
        if found.quiet:
            self._quiet.append(Load(found.cpu_milli, found.mem_bytes))
            self._quiet_s = found.end_s
            self.value = self._median()
        elif found.end_s - self._quiet_s > MEMORY_S:
            self.value = Load(max(0.0, self._cpu_least.value), max(0.0, self._mem_least.value))

    def _median(self) -> Load:
        return Load(
            max(0.0, median(load.cpu_milli for load in self._quiet)),
            max(0.0, median(load.mem_bytes for load in self._quiet)),
        )


class _Least:
    """The smallest value of the last ten minutes; keeps only those that may become it."""

    __slots__ = ("_rising",)

    def __init__(self) -> None:
        self._rising: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, value: float) -> None:
        while self._rising and self._rising[-1][1] >= value:
            self._rising.pop()
        self._rising.append((at_s, value))
        while self._rising[0][0] < at_s - MEMORY_S:
            self._rising.popleft()

    @property
    def value(self) -> float:
        return self._rising[0][1]
