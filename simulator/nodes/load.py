# SPDX-License-Identifier: Apache-2.0
"""The usage of a running pod over time.

The amounts are kwok's annotations, so one manifest has the same usage here and on a real
control plane; the curves are ours, and kwok ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from common.cluster.quantities import QuantityError, milli, whole
from simulator.build import CPU_CURVE, MEMORY_CURVE, USAGE_CPU, USAGE_MEMORY
from simulator.nodes.curves import CONSTANT, Curve, CurveError, parse
from simulator.rng import Rng

log: structlog.stdlib.BoundLogger = structlog.get_logger()

# The defaults of kwok's usage-from-annotation.yaml for pods without the annotations.
_IDLE_CPU: Final = "1m"
_IDLE_MEMORY: Final = "1Mi"


@dataclass(frozen=True, slots=True)
class PodLoad:
    """The usage of one pod as a function of time."""

    cpu_milli: int
    mem_bytes: int
    cpu_curve: Curve = CONSTANT
    mem_curve: Curve = CONSTANT

    def cpu(self, begin_s: float, end_s: float, started_s: float) -> float:
        """Return the average milli-cores between two moments of the cluster."""
        if self.cpu_curve is CONSTANT:
            return self.cpu_milli
        shift = started_s if self.cpu_curve.by_age else 0.0
        return self.cpu_milli * self.cpu_curve.mean(begin_s - shift, end_s - shift)

    def memory(self, moment_s: float, started_s: float) -> float:
        """Return the bytes held at a moment of the cluster."""
        if self.mem_curve is CONSTANT:
            return self.mem_bytes
        shift = started_s if self.mem_curve.by_age else 0.0
        return self.mem_bytes * self.mem_curve.at(moment_s - shift)


def load_of(key: str, annotations: Mapping[str, str], rng: Rng) -> PodLoad:
    """Return the load that the annotations describe; invalid ones are ignored."""
    phase = rng.share("phase", key)
    return PodLoad(
        _amount(key, annotations, USAGE_CPU, _IDLE_CPU, memory=False),
        _amount(key, annotations, USAGE_MEMORY, _IDLE_MEMORY, memory=True),
        _curve(key, annotations, CPU_CURVE, phase),
        _curve(key, annotations, MEMORY_CURVE, phase),
    )


def _amount(
    key: str, annotations: Mapping[str, str], name: str, default: str, *, memory: bool
) -> int:
    read = whole if memory else milli
    try:
        return read(annotations.get(name, default))
    except QuantityError as error:
        log.warning("usage annotation ignored", pod=key, annotation=name, error=str(error))
        return read(default)


def _curve(key: str, annotations: Mapping[str, str], name: str, phase: float) -> Curve:
    text = annotations.get(name, "").strip()
    try:
        return parse(text, phase=phase) if text else CONSTANT
    except CurveError as error:
        log.warning("curve annotation ignored", pod=key, annotation=name, error=str(error))
        return CONSTANT
