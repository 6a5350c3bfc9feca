# SPDX-License-Identifier: Apache-2.0
"""What a pod has used so far: its newest sample, and a smoothed value per resource.

History belongs to pods, never to nodes: a node's past says nothing once its pods have
moved. It is kept by pod uid, so a StatefulSet's next pod, which has the same name, starts
with an empty page.

Samples come every 10 to 60 seconds, and not always evenly, so the weight of a new one
follows from the time since the last: `1 − exp(−elapsed ÷ smoothing_s)`. With 60 seconds,
15-second samples lose two thirds of their noise. The first sample is taken as it is.

A node's own figure is its newest sample, so shares of pods that lag behind a real change
would make a plan move too many pods. Two samples in a row that are both on the same side
and further than `STEP` from the smoothed value are a change, not noise: the average starts
over from these two.
"""

from __future__ import annotations

from math import exp
from typing import Final

import msgspec

from common.usage.source import Usage

STEP: Final = 0.25
"""How far a sample must be from the smoothed value, as a share of it, to count as a step."""


class PodHistory(msgspec.Struct, frozen=True, gc=False):
    """One pod's past; replaced, never changed, by each new sample."""

    cpu_milli: float
    mem_bytes: float
    cpu_last_milli: float
    """What the newest sample said."""
    mem_last_bytes: float
    end_s: float


def first(usage: Usage) -> PodHistory:
    """Begin a history with its first sample."""
    cpu, mem = usage.cpu_milli, usage.mem_bytes
    return PodHistory(cpu, mem, cpu, mem, usage.end_s)


def follow(old: PodHistory, usage: Usage, smoothing_s: float) -> PodHistory:
    """Return the history with one more sample, which must be newer than the last."""
    weight = 1.0 - exp(-(usage.end_s - old.end_s) / smoothing_s)
    cpu, mem = usage.cpu_milli, usage.mem_bytes
    return PodHistory(
        _smoothed(old.cpu_milli, old.cpu_last_milli, cpu, weight),
        _smoothed(old.mem_bytes, old.mem_last_bytes, mem, weight),
        cpu,
        mem,
        usage.end_s,
    )


def _smoothed(before: float, last: float, new: float, weight: float) -> float:
    off = STEP * before
    if (last > before + off and new > before + off) or (last < before - off and new < before - off):
        return (last + new) / 2.0
    return before + weight * (new - before)
