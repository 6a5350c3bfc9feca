# SPDX-License-Identifier: Apache-2.0
"""Arguments of plugins that become rules of `Hygiene`: one rule for each profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from evenkeel.policy.draft import HYGIENE, Draft, Scope, Verdict, shown
from evenkeel.policy.outcomes import Apply, LabelSelector, Namespaces, Outcome


class OwnerKinds(msgspec.Struct):
    """Kinds of owners whose pods take part, or do not."""

    include: list[str] = []
    exclude: list[str] = []


class Condition(msgspec.Struct, rename="camel", omit_defaults=True):
    """A condition that a pod must have."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = None


def begins(check: str, **defaults: Any) -> Callable[[Draft, Scope], None]:
    """Return a function that adds a rule with what the plugin has by default."""

    def begin(draft: Draft, scope: Scope) -> None:
        draft.hygiene.setdefault(check, {})[scope.profile] = dict(defaults)

    return begin


def rule(check: str, key: str, convert: Callable[[Any], Any] = lambda value: value) -> Apply:
    """Return a function that writes an argument into the rule of its profile."""

    def apply(draft: Draft, scope: Scope, value: Any) -> Outcome:
        found = convert(value)
        if HYGIENE not in draft.known:
            return Outcome(Verdict.DROPPED, "", f"this version has no strategy {HYGIENE}")
        draft.hygiene[check][scope.profile][key] = found
        return Outcome(Verdict.TRANSLATED, f"hygiene.{check}[].{key}: {shown(found)}")

    return apply


def seconds(value: int) -> str:
    """Return a duration as the configuration writes it."""
    return f"{value}s"


def kinds(value: OwnerKinds) -> dict[str, list[str]]:
    return _one_of(value.include, value.exclude)


def excluded_kinds(value: list[str]) -> dict[str, list[str]]:
    return {"exclude": value}


def some_namespaces(value: Namespaces) -> dict[str, list[str]]:
    return _one_of(value.include, value.exclude)


def _one_of(include: list[str], exclude: list[str]) -> dict[str, list[str]]:
    if include and exclude:
        raise ValueError("only one of include and exclude can be set")
    return {"include": include} if include else {"exclude": exclude}


def labels(value: LabelSelector) -> str:
    return str(value)


def conditions(value: list[Condition]) -> list[dict[str, Any]]:
    return [_condition(each) for each in value]


def _condition(each: Condition) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: text
        for key, text in (("type", each.type), ("status", each.status), ("reason", each.reason))
        if text
    }
    if each.min_time_since_last_transition_seconds is not None:
        found["minAge"] = seconds(each.min_time_since_last_transition_seconds)
    if not found:
        raise ValueError("a condition needs a type, a status, a reason or a time")
    return found
