# SPDX-License-Identifier: Apache-2.0
"""What was measured, and who measures it.

A `Usage` is an average over the window that ends at `end_s`; its readers must consider
what that window can contain. A `Sample` is one round: a node or a pod that it does not
name was not measured, which is not the same as using nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from common.cluster.records import NodeName
from common.config.choices import SourceKind


class SourceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which source is asked, and how that came about."""

    configured: SourceKind
    asked: SourceKind
    why: str = ""
    """What `auto` found."""

    @property
    def without_metrics(self) -> bool:
        """Nothing measures usage, and the configuration does not say to go by requests."""
        return self.asked is SourceKind.REQUESTS and self.configured is not SourceKind.REQUESTS


MEASURED: Final = SourceChoice(
    configured=SourceKind.METRICS_SERVER, asked=SourceKind.METRICS_SERVER
)


class Usage(msgspec.Struct, frozen=True, gc=False):
    """What a node or a pod used on average between `start_s` and `end_s`."""

    cpu_milli: float
    mem_bytes: float
    end_s: float
    window_s: float

    @property
    def start_s(self) -> float:
        return self.end_s - self.window_s


class NodePressure(msgspec.Struct, frozen=True, gc=False):
    """For how much of the time tasks of a node waited, in percent; None if that is not known."""

    cpu_percent: float | None = None
    mem_percent: float | None = None


NO_PRESSURE: Final = NodePressure()


class FurtherSample(msgspec.Struct, frozen=True):
    """What was measured of a resource besides CPU and memory, in a unit of its own.

    A node that it does not name is not known; a pod that it does not name uses none.
    """

    nodes: Mapping[NodeName, float] = {}
    offered: Mapping[NodeName, float] = {}
    """How much nodes have of it; nothing where they have none."""
    pods: Mapping[str, float] = {}


class Sample(msgspec.Struct, frozen=True):
    """One round of measurements; pods are named `namespace/name`."""

    nodes: Mapping[NodeName, Usage]
    pods: Mapping[str, Usage]
    skipped: int = 0
    """How many entries of the answers made no sense; the source has named them."""
    pressures: Mapping[NodeName, NodePressure] = {}
    """Of nodes whose pressure was asked for and is known."""
    further: tuple[FurtherSample, ...] = ()
    """Of `prometheus.resources`, in their order."""
    no_pods: str = ""
    """What the source knows about why there is no pod in it."""


NOTHING_MEASURED: Final = Sample(nodes={}, pods={})


class UsageError(Exception):
    """A source failed for this round; says which one and why."""


class UsageSource(Protocol):
    """Measures the whole cluster when asked."""

    @property
    def name(self) -> str: ...

    async def sample(self) -> Sample:
        """Return one round of measurements; raise UsageError when any part of it failed."""
        ...
