"""How the load model is tuned; both programs take the same values from their configuration."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EstimateSettings:
    """What a pod is believed to use while nobody has measured it or its siblings."""

    cpu_of_request: float = 0.85
    mem_of_request: float = 0.70
    default_cpu_milli: float = 250.0
    default_mem_bytes: float = 200.0 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Freshness, smoothing and estimates."""

    metric_expiry_s: float = 180.0
    """A sample older than this is not used."""
    clock_skew_s: float = 30.0
    """A sample may end this far in our future: its clock is another machine's."""
    smoothing_s: float = 60.0
    estimates: EstimateSettings = field(default_factory=EstimateSettings)
