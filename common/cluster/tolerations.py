"""Taints of nodes, and what pods tolerate.

The rules are those of api/core/v1/toleration.go and component-helpers' scheduling helpers
in v0.36. The operators `Lt` and `Gt` stand behind the gate TaintTolerationComparisonOperators,
alpha and off by default in v1.36: a toleration with one of them tolerates nothing.

Both structs serve on the wire and in records; whatever an API server may send one day
can be decoded, and what is unknown matches nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from enum import StrEnum
from typing import Final

import msgspec


class Effect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


REPELLING: Final[frozenset[str]] = frozenset({Effect.NO_SCHEDULE, Effect.NO_EXECUTE})
"""The effects for which the scheduler refuses a node."""


class Taint(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A mark on a node that keeps pods away."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A pod's leave to ignore taints; an empty key or effect stands for all of them."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


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
