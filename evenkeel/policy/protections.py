# SPDX-License-Identifier: Apache-2.0
"""The protections of the DefaultEvictor: which of them are keys here, and which always hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from evenkeel.policy.draft import Draft, Scope, Verdict
from evenkeel.policy.outcomes import Outcome, writes

_ALL_CLASSES: Final = ["*"]
ALWAYS: Final[Mapping[str, str]] = {
    "DaemonSetPods": "pods of DaemonSets are never moved: they would come back to the same node",
    "SystemCriticalPods": "pods of system priority are never moved",
    "PodsWithResourceClaims": "pods with resource claims are never moved",
}
FAILED_BARE: Final = "bare pods are never removed: nothing would replace them (barePods copies)"


class StorageClass(msgspec.Struct):
    """A storage class by name."""

    name: str


class WithClaims(msgspec.Struct, rename="camel"):
    """Which claims are protected."""

    protected_storage_classes: list[StorageClass] = []


class ProtectionConfig(msgspec.Struct):
    """Settings of single protections."""

    claims: WithClaims | None = msgspec.field(default=None, name="PodsWithPVC")


class Thresholded(msgspec.Struct):
    """The priority from which pods are protected."""

    name: str = ""
    value: int | None = None


def extra(draft: Draft, scope: Scope, value: list[str]) -> Outcome:
    """Turn on protections that are off in the descheduler by default."""
    written, always = [], []
    for each in value:
        if each == "PodsWithPVC":
            classes = _classes(scope)
            draft.set(scope.profile, "protectedStorageClasses", classes)
            written.append(f"protectedStorageClasses: [{', '.join(classes)}]")
        elif each == "PodsWithoutPDB":
            draft.set(scope.profile, "podsWithoutPdb", "refuse")
            written.append("podsWithoutPdb: refuse")
        elif each in ALWAYS:
            always.append(ALWAYS[each])
        else:
            raise ValueError(f"{each} is not a protection that can be enabled")
    if not written:
        return Outcome(Verdict.BUILT_IN, "", "; ".join(always))
    return Outcome(Verdict.TRANSLATED, ", ".join(written), "; ".join(always))


def _classes(scope: Scope) -> list[str]:
    raw = (scope.arguments.get("podProtections") or {}).get("config") or {}
    config = msgspec.convert(raw, ProtectionConfig)
    names = [each.name for each in config.claims.protected_storage_classes] if config.claims else []
    return names or _ALL_CLASSES


def disabled(draft: Draft, scope: Scope, value: list[str]) -> Outcome:
    """Turn off protections that are on by default; most of them cannot be."""
    written, why = [], []
    for each in value:
        if each == "PodsWithLocalStorage":
            draft.set(scope.profile, "localStorage", "allow")
            written.append("localStorage: allow")
        elif each == "FailedBarePods":
            why.append(FAILED_BARE)
        elif each in ALWAYS:
            why.append(ALWAYS[each])
        else:
            raise ValueError(f"{each} is not a protection that can be disabled")
    if not written:
        return Outcome(Verdict.DROPPED, "", "; ".join(why))
    return Outcome(Verdict.DIFFERS if why else Verdict.TRANSLATED, written[0], "; ".join(why))


def priority(draft: Draft, scope: Scope, value: Thresholded) -> Outcome:
    """The same key here, with exactly one of its two fields."""
    if value.value is not None:
        return writes("priorityThreshold")(draft, scope, {"value": value.value})
    if not value.name:
        return Outcome(Verdict.BUILT_IN, "", "pods of system priority are never moved")
    why = "a class that does not exist refuses every pod"
    return writes("priorityThreshold", why)(draft, scope, {"name": value.name})
