"""What a pod has used so far: a smoothed value and a decayed peak per resource.

History belongs to pods, never to nodes: a node's past says nothing once its pods have
moved. It is kept by pod uid, so a StatefulSet's next pod, which has the same name, starts
with an empty page.

Samples come every 10 to 60 seconds, and not always evenly, so the weight of a new one
follows from the time since the last: `1 − exp(−elapsed ÷ smoothing_s)`. With 60 seconds,
15-second samples lose two thirds of their noise, a real step is half visible after 42
seconds, and after the 180 seconds at which a sample expires 95 % of an older level is
forgotten, so that nothing which freshness would refuse lives on in the average. The first
sample is taken as it is.

The peak falls back towards the smoothed value with a time constant of an hour: a burst
that returns every few minutes stays in it, the burst of a start is gone after the morning.
"""

from __future__ import annotations

from math import exp

import msgspec

from common.usage.source import Usage


class PodHistory(msgspec.Struct, frozen=True, gc=False):
    """One pod's past; replaced, never changed, by each new sample."""

    cpu_milli: float
    mem_bytes: float
    cpu_peak_milli: float
    mem_peak_bytes: float
    end_s: float


def first(usage: Usage) -> PodHistory:
    """Begin a history with its first sample."""
    cpu, mem = usage.cpu_milli, usage.mem_bytes
    return PodHistory(cpu, mem, cpu, mem, usage.end_s)


def follow(old: PodHistory, usage: Usage, smoothing_s: float, peak_s: float) -> PodHistory:
    """Return the history with one more sample, which must be newer than the last."""
    elapsed = usage.end_s - old.end_s
    weight = 1.0 - exp(-elapsed / smoothing_s)
    kept = exp(-elapsed / peak_s)
    cpu = old.cpu_milli + weight * (usage.cpu_milli - old.cpu_milli)
    mem = old.mem_bytes + weight * (usage.mem_bytes - old.mem_bytes)
    cpu_peak = cpu + kept * (old.cpu_peak_milli - cpu)
    mem_peak = mem + kept * (old.mem_peak_bytes - mem)
    return PodHistory(
        cpu,
        mem,
        cpu_peak if cpu_peak > usage.cpu_milli else usage.cpu_milli,
        mem_peak if mem_peak > usage.mem_bytes else usage.mem_bytes,
        usage.end_s,
    )
