# SPDX-License-Identifier: Apache-2.0
"""Why a pod fits no node, with the messages of kube-scheduler.

Follows FitError and Diagnosis (pkg/scheduler/framework/types.go) of v1.36: a histogram over
exact texts, sorted as texts, so `10 a` comes before `2 b`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

EXTENDER: Final = "Extender"
NO_NODES: Final = "no nodes available to schedule pods"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
# The other PostFilter plugin, dynamic resources, has no claims to deallocate here.
_NO_CLAIMS: Final = "no new claims to deallocate"


@dataclass(frozen=True, slots=True)
class Status:
    """Why one node was rejected."""

    reasons: tuple[str, ...]
    plugin: str = ""
    resolvable: bool = False
    """Preemption could help."""


@dataclass(slots=True)
class Diagnosis:
    """Why all nodes were rejected."""

    nodes: int
    statuses: dict[str, Status] = field(default_factory=dict)
    before: str = ""
    """Why the pod cannot be scheduled on any node (PreFilter)."""
    plugins: set[str] = field(default_factory=set)

    def refuse(self, node: str, status: Status) -> None:
        """Record why a node was rejected."""
        self.statuses[node] = status
        if status.plugin:
            self.plugins.add(status.plugin)

    def message(self, after: str = "") -> str:
        """Return the message for the pod's condition and event."""
        text = fit_error(self.nodes, (s.reasons for s in self.statuses.values()), self.before)
        return f"{text} {after}" if after else text


def fit_error(nodes: int, reasons: Iterable[Iterable[str]], before: str = "") -> str:
    """Return the histogram of reasons over nodes."""
    text = f"0/{nodes} nodes are available:"
    if before:
        return f"{text} {before}."
    counts = Counter(reason for each in reasons for reason in each)
    lines = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"{text} {', '.join(lines)}." if lines else text


def preemption_message(nodes: int, found: Mapping[str, tuple[str, ...]]) -> str:
    """Return the message of a preemption that found no victims."""
    reasons = list(found.values())
    reasons += [(NOT_HELPFUL,)] * (nodes - len(reasons))
    return after_filter(f"preemption: {fit_error(nodes, reasons)}")


def after_filter(message: str) -> str:
    """Return the message of all PostFilter plugins together."""
    return f"{_NO_CLAIMS}, {message}"
