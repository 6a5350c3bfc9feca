# SPDX-License-Identifier: Apache-2.0
"""Taints of nodes, and what pods tolerate.

The rules are those of api/core/v1/toleration.go and component-helpers' scheduling helpers
in v0.36. The operators `Lt` and `Gt` stand behind the gate TaintTolerationComparisonOperators,
alpha and off by default in v1.36: a toleration with one of them tolerates nothing.

Any text that an API server may send one day can be decoded; what is unknown matches nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Final

from common.api.objects import Effect, Taint, Toleration

REPELLING: Final[frozenset[str]] = frozenset({Effect.NO_SCHEDULE, Effect.NO_EXECUTE})
"""The effects for which the scheduler refuses a node."""


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether this toleration covers this taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Tell whether any of the tolerations covers the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(
    taints: Iterable[Taint],
    tolerations: Collection[Toleration],
    effects: Container[str] = REPELLING,
) -> Taint | None:
    """Return the first taint with one of the effects that nothing tolerates."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None
