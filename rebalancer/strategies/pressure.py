# SPDX-License-Identifier: Apache-2.0
"""Nodes whose tasks wait for a resource (PSI), whatever they use of it.

Pressure cannot be divided among pods: nothing says whose tasks wait for whom. So a node under
pressure gives away a tenth of what it uses at a time, and takes nothing meanwhile.

Pressure is a rate over a window, and cannot be corrected by pods either: see `settling`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from common.config import LoadSettings
from common.load import NodeLoad
from rebalancer.goals import BALANCED, Ceiling, Dimension
from rebalancer.strategies.base import ClusterView
from rebalancer.strategies.pools import percent

STEP: Final = 0.9
"""What a node under pressure may use of what it uses now."""
_SHOWN: Final = 3


def pressures(load: NodeLoad) -> Mapping[Dimension, float | None]:
    """Return for how much of the time tasks wait for a resource, in percent."""
    return {Dimension.CPU: load.pressure.cpu_percent, Dimension.MEMORY: load.pressure.mem_percent}


def allowed(settings: LoadSettings) -> Mapping[Dimension, float]:
    """Return the pressures that are judged, and how much is allowed."""
    wanted = {Dimension.CPU: settings.pressure.cpu, Dimension.MEMORY: settings.pressure.memory}
    return {dimension: most for dimension, most in wanted.items() if most is not None}


def under_pressure(load: NodeLoad, settings: LoadSettings) -> tuple[Dimension, ...]:
    """Return the resources that tasks of a node wait for too long."""
    too_long = settings.pressure.exceeded(load.pressure.cpu_percent, load.pressure.mem_percent)
    return tuple(each for each, waits in zip(BALANCED, too_long, strict=True) if waits)


def words(load: NodeLoad, dimension: Dimension, settings: LoadSettings) -> str:
    """Return the pressure as people read it."""
    level, most = pressures(load)[dimension], allowed(settings)[dimension]
    key = f"pressure.{dimension.label.lower()}"
    return f"{level:.0f} % {dimension.label} pressure (allowed {most:g} %, {key})"


def relieved(ceiling: Ceiling, load: NodeLoad, pressed: tuple[Dimension, ...]) -> Ceiling:
    """Return the ceiling that takes a step off what a node under pressure uses."""
    cpu, memory = (
        min(ceiling.of(d), after_a_step(load, d)) if d in pressed else ceiling.of(d)
        for d in BALANCED
    )
    return Ceiling(cpu, memory, ceiling.further)


def after_a_step(load: NodeLoad, dimension: Dimension) -> float:
    """Return what a node uses when it has given away a step, in percent."""
    return round(STEP * percent(load, dimension), 1)


def notes(cluster: ClusterView) -> Iterator[str]:
    """Name the nodes whose pressure is not known although it is judged."""
    wanted = allowed(cluster.config)
    for dimension in wanted:
        known = [load for load in cluster.load.nodes.values() if load.known]
        missing = sorted(load.name for load in known if pressures(load)[dimension] is None)
        if missing:
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            yield (
                f"The {dimension.label} pressure of {', '.join(missing[:_SHOWN])}{more} is not "
                "known, so only usage is judged there."
            )
