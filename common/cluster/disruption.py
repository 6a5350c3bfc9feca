# SPDX-License-Identifier: Apache-2.0
"""How many pods a PodDisruptionBudget lets go, and which pods need ask it at all.

Defined once for the simulator's disruption controller and its eviction endpoint, and for what
predicts what the real ones will say, count with these functions. They follow
pkg/controller/disruption/disruption.go and pkg/registry/core/pod/storage/eviction.go of
Kubernetes v1.36. Pure values in, pure values out.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

DELETION_TIMEOUT_S: Final = 120.0
"""How long an eviction that was let through may take to show as a deletion."""
MAX_DISRUPTED_PODS: Final = 2000
"""With more evictions than this unconfirmed, the API lets none through."""

ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The unhealthyPodEvictionPolicy that never holds back a pod that is not ready."""

_PERCENT: Final = re.compile(r"[+-]?[0-9]+%", re.ASCII)
_IGNORED_PHASES: Final = frozenset({"Pending", "Succeeded", "Failed"})


class AmountError(ValueError):
    """A limit that is neither a number nor a percentage."""


class Counts(NamedTuple):
    """The status of a PodDisruptionBudget, computed from its pods."""

    expected: int
    healthy: int
    desired: int

    @property
    def allowed(self) -> int:
        """How many pods may be disrupted now; none while nothing is expected."""
        return max(0, self.healthy - self.desired) if self.expected > 0 else 0


class Claim(StrEnum):
    """What evicting a pod asks of the budget that covers it."""

    NOTHING = "nothing"
    """The pod runs nothing that could be disrupted; no PDB is checked."""
    PASSAGE = "passage"
    """The pod is not ready and its budget lets it go without being charged."""
    DISRUPTION = "disruption"
    """One disruption is taken from the budget, or refused by it."""


def counts_matching_pods(
    min_available: int | str | None, max_unavailable: int | str | None
) -> bool:
    """Tell whether the expected pods are those that match, not what their controllers want."""
    return max_unavailable is None and not isinstance(min_available, str)


def desired_healthy(
    min_available: int | str | None, max_unavailable: int | str | None, expected: int
) -> int:
    """Return how many pods must stay healthy out of the expected ones."""
    if max_unavailable is not None:
        return max(0, expected - scaled(max_unavailable, expected))
    return 0 if min_available is None else scaled(min_available, expected)


def scaled(amount: int | str, total: int) -> int:
    """Return a number as it is, or a percentage of `total` rounded up."""
    if isinstance(amount, int):
        return amount
    if not _PERCENT.fullmatch(amount):
        raise AmountError(f"{amount!r} is neither a number nor a percentage")
    return -(-int(amount[:-1]) * total // 100)


def claim(
    *,
    phase: str,
    terminating: bool,
    ready: bool,
    policy: str | None,
    current_healthy: int,
    desired_healthy: int,
) -> Claim:
    """Return what evicting a pod asks of the budget with this status."""
    if needs_no_budget(phase, terminating=terminating):
        return Claim.NOTHING
    if ready:
        return Claim.DISRUPTION
    undisturbed = current_healthy >= desired_healthy > 0
    return Claim.PASSAGE if policy == ALWAYS_ALLOW or undisturbed else Claim.DISRUPTION


def needs_no_budget(phase: str, *, terminating: bool) -> bool:
    """Tell whether a pod is evicted without checking any PDB."""
    return terminating or phase in _IGNORED_PHASES
