# SPDX-License-Identifier: Apache-2.0
"""How many replicas each ReplicaSet of a Deployment should have next. Pure.

Follows pkg/controller/deployment (rolling.go, recreate.go, sync.go) of v1.36: the new set
grows as far as the surge allows, the old ones shrink as far as availability allows,
unhealthy pods first. During a rollout, a change of the replicas is spread over all sets in
proportion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

Sizes = Mapping[str, int]
"""The new replicas by name of the set; unchanged sets are left out."""

_PERCENT: Final = re.compile(r"([0-9]+)%", re.ASCII)


@dataclass(frozen=True, slots=True)
class SetView:
    """The part of a ReplicaSet that a rollout depends on."""

    name: str
    replicas: int
    available: int = 0
    pods: int = 0
    """Existing pods, including terminating ones."""
    created: int = 0
    """Orders the sets by age."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The rollout parameters of a Deployment."""

    replicas: int
    max_surge: int = 0
    max_unavailable: int = 0
    recreate: bool = False


def fenceposts(surge: int | str, unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Return maxSurge, rounded up, and maxUnavailable, rounded down; not both are 0."""
    more, fewer = scaled(surge, replicas, up=True), scaled(unavailable, replicas, up=False)
    return (more, fewer) if more or fewer else (0, 1)


def scaled(amount: int | str, total: int, *, up: bool) -> int:
    """Return a number as it is, or a percentage of `total`."""
    if isinstance(amount, int):
        return amount
    match = _PERCENT.fullmatch(amount)
    if match is None:
        raise ValueError(f"{amount!r} is neither a number nor a percentage")
    whole = int(match[1]) * total
    return -(-whole // 100) if up else whole // 100


def first_size(rollout: Rollout, old: Sequence[SetView]) -> int:
    """Return the initial replicas of a new set."""
    if rollout.recreate:
        return rollout.replicas
    return _grown(rollout, SetView("", 0), old)


def next_sizes(rollout: Rollout, new: SetView, old: Sequence[SetView]) -> Sizes:
    """Return the next step of a rollout."""
    if rollout.recreate:
        return _recreate(rollout, new, old)
    if new.replicas != rollout.replicas:
        size = rollout.replicas if new.replicas > rollout.replicas else _grown(rollout, new, old)
        if size != new.replicas:
            return {new.name: size}
    return _shrunk(rollout, new, old)


def proportional(rollout: Rollout, new: SetView | None, old: Sequence[SetView]) -> Sizes:
    """Return the sizes after a change of the replicas, or while paused."""
    every_set = [*old, *([new] if new is not None else [])]
    active = [each for each in every_set if each.replicas > 0]
    if len(active) <= 1:
        target = active[0] if active else max(every_set, key=lambda s: s.created, default=None)
        if target is None or target.replicas == rollout.replicas:
            return {}
        return {target.name: rollout.replicas}
    if new is not None and new.replicas == new.available == rollout.replicas:
        return {each.name: 0 for each in old if each.replicas > 0}
    if rollout.recreate:
        return {}
    return _spread(rollout, active)


def _recreate(rollout: Rollout, new: SetView, old: Sequence[SetView]) -> Sizes:
    shrinking = {each.name: 0 for each in old if each.replicas > 0}
    if shrinking:
        return shrinking
    if any(each.pods for each in old) or new.replicas == rollout.replicas:
        return {}
    return {new.name: rollout.replicas}


def _grown(rollout: Rollout, new: SetView, old: Sequence[SetView]) -> int:
    room = rollout.replicas + rollout.max_surge - _total((*old, new))
    return new.replicas + max(0, min(room, rollout.replicas - new.replicas))


def _shrunk(rollout: Rollout, new: SetView, old: Sequence[SetView]) -> Sizes:
    active = [each for each in old if each.replicas > 0]
    least = rollout.replicas - rollout.max_unavailable
    spare = _total((*active, new)) - least - (new.replicas - new.available)
    if not active or spare <= 0:
        return {}
    by_age = sorted(active, key=lambda each: each.created)
    cleaned = _without_unhealthy(by_age, spare)
    available = sum(each.available for each in active) + new.available
    left = max(0, available - least)
    sizes: dict[str, int] = {}
    for before, each in zip(by_age, cleaned, strict=True):
        fewer = min(each.replicas, left)
        left -= fewer
        if each.replicas - fewer != before.replicas:
            sizes[each.name] = each.replicas - fewer
    return sizes


def _without_unhealthy(old: Sequence[SetView], most: int) -> list[SetView]:
    cleaned = []
    for each in old:
        fewer = max(0, min(most, each.replicas - each.available))
        most -= fewer
        cleaned.append(replace(each, replicas=each.replicas - fewer))
    return cleaned


def _spread(rollout: Rollout, active: Sequence[SetView]) -> Sizes:
    allowed = rollout.replicas + rollout.max_surge if rollout.replicas > 0 else 0
    total = _total(active)
    change = allowed - total
    if change == 0:
        return {}
    # Larger sets first; among equals the newer grows, the older shrinks.
    newer_first = change > 0
    ranked = sorted(
        active, key=lambda each: (-each.replicas, -each.created if newer_first else each.created)
    )
    sizes = {each.name: each.replicas + round(change * each.replicas / total) for each in ranked}
    left = allowed - sum(sizes.values())
    sizes[ranked[0].name] = max(0, sizes[ranked[0].name] + left)
    before = {each.name: each.replicas for each in active}
    return {name: size for name, size in sizes.items() if size != before[name]}


def _total(sets: Sequence[SetView]) -> int:
    return sum(each.replicas for each in sets)
