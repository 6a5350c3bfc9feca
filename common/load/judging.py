"""Which samples may be believed, and until when.

Three questions are asked of a sample. Is it possible at all (`Limits`)? Can it have seen
the pod (`covers`)? Is it still fresh (`Freshness`)? The last answer changes as time goes
by although nothing happens, so `Freshness` also remembers how long its answers hold; what
was computed from them can be kept until then.
"""

from __future__ import annotations

import sys
from math import inf, nextafter
from typing import Final

from common.cluster.records import NodeRecord, PodRecord
from common.contract import Unknown
from common.load.settings import LoadSettings
from common.usage.source import Usage

ABSURD_MULTIPLE: Final = 4.0
"""A sample above this multiple of allocatable is no measurement.

A node may use more than its allocatable, for that leaves out what is reserved for the
system: a GKE e2-small offers 940m of its two cores. Counters that wrapped and units that
were mixed up are off by far more.
"""

_LARGEST: Final = sys.float_info.max

STAMP_PRECISION_S: Final = 1.0
"""The API server cuts times to whole seconds, so a pod may be scheduled this much later."""


class Limits:
    """What a sample of a node, or of a pod on it, can possibly say."""

    __slots__ = ("_cpu_milli", "_latest_s", "_mem_bytes")

    def __init__(self, node: NodeRecord, latest_s: float) -> None:
        self._cpu_milli = ABSURD_MULTIPLE * node.allocatable.cpu_milli or _LARGEST
        self._mem_bytes = ABSURD_MULTIPLE * node.allocatable.mem_bytes or _LARGEST
        self._latest_s = latest_s

    def refuse(self, usage: Usage) -> Unknown | None:
        """Return why this cannot be a measurement; for NaN no comparison holds."""
        if (
            0.0 <= usage.cpu_milli <= self._cpu_milli
            and 0.0 <= usage.mem_bytes <= self._mem_bytes
            and 0.0 <= usage.window_s < usage.end_s < inf
        ):
            return None if usage.end_s <= self._latest_s else Unknown.FUTURE_SAMPLE
        return Unknown.ABSURD_SAMPLE


def covers(usage: Usage, pod: PodRecord) -> bool:
    """Tell whether the pod was there during the whole window.

    A pod whose kubelet has not yet said anything about it has no time of scheduling, and
    no sample can know it.
    """
    since_s = pod.scheduled_s
    return since_s is not None and usage.end_s - usage.window_s >= since_s + STAMP_PRECISION_S


class Freshness:
    """Judges samples by their age at one moment, and knows when it would judge otherwise."""

    __slots__ = ("_expiry_s", "_skew_s", "from_s", "newest_s", "now_s", "oldest_s", "until_s")

    def __init__(self, now_s: float, settings: LoadSettings) -> None:
        self._expiry_s = settings.metric_expiry_s
        self._skew_s = settings.clock_skew_s
        self.now_s = now_s
        self.oldest_s = now_s - self._expiry_s
        self.newest_s = now_s + self._skew_s
        self.from_s = -inf
        self.until_s = inf

    def judge(self, end_s: float) -> Unknown | None:
        """Return why a sample that ends then is not used now."""
        if end_s < self.oldest_s:
            self.narrow(nextafter(end_s + self._expiry_s, inf), inf)
            return Unknown.STALE_SAMPLE
        if end_s > self.newest_s:
            self.narrow(-inf, nextafter(end_s - self._skew_s, -inf))
            return Unknown.FUTURE_SAMPLE
        self.used(end_s, end_s)
        return None

    def used(self, earliest_end_s: float, latest_end_s: float) -> None:
        """Note that samples were used which end between these two moments."""
        self.narrow(latest_end_s - self._skew_s, earliest_end_s + self._expiry_s)

    def narrow(self, from_s: float, until_s: float) -> None:
        """Note that an answer holds only between these moments."""
        if from_s > self.from_s:
            self.from_s = from_s
        if until_s < self.until_s:
            self.until_s = until_s
