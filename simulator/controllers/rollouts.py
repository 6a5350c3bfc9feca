"""How many pods each ReplicaSet of a Deployment should have next: decisions, no deeds.

Follows pkg/controller/deployment (rolling.go, recreate.go, sync.go) of v1.36: the new set
grows as far as the surge allows, the old ones shrink as far as availability allows,
unhealthy pods first. While a rollout is under way, a change of the wanted number is spread
over all sets in proportion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

Sizes = Mapping[str, int]
"""The new number of replicas by name of the set; sets that stay as they are are left out."""

_PERCENT: Final = re.compile(r"([0-9]+)%", re.ASCII)


@dataclass(frozen=True, slots=True)
class SetView:
    """A ReplicaSet as far as a rollout looks at it."""

    name: str
    replicas: int
    available: int = 0
    pods: int = 0
    """Those that exist, terminating ones included."""
    created: int = 0
    """Orders the sets by age."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a Deployment wants."""

    replicas: int
    max_surge: int = 0
    max_unavailable: int = 0
    recreate: bool = False


def fenceposts(surge: int | str, unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Return the surge, rounded up, and the unavailable, rounded down; not both are 0."""
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


def first_size(wish: Wish, old: Sequence[SetView]) -> int:
    """Return the size with which a new set begins."""
    if wish.recreate:
        return wish.replicas
    return _grown(wish, SetView("", 0), old)


def next_sizes(wish: Wish, new: SetView, old: Sequence[SetView]) -> Sizes:
    """Return the next step of a rollout."""
    if wish.recreate:
        return _recreate(wish, new, old)
    if new.replicas != wish.replicas:
        size = wish.replicas if new.replicas > wish.replicas else _grown(wish, new, old)
        if size != new.replicas:
            return {new.name: size}
    return _shrunk(wish, new, old)


def proportional(wish: Wish, new: SetView | None, old: Sequence[SetView]) -> Sizes:
    """Return the sizes after a change of the wanted number, or while paused."""
    everybody = [*old, *([new] if new is not None else [])]
    active = [each for each in everybody if each.replicas > 0]
    if len(active) <= 1:
        target = active[0] if active else max(everybody, key=lambda s: s.created, default=None)
        if target is None or target.replicas == wish.replicas:
            return {}
        return {target.name: wish.replicas}
    if new is not None and new.replicas == new.available == wish.replicas:
        return {each.name: 0 for each in old if each.replicas > 0}
    if wish.recreate:
        return {}
    return _spread(wish, active)


def _recreate(wish: Wish, new: SetView, old: Sequence[SetView]) -> Sizes:
    shrinking = {each.name: 0 for each in old if each.replicas > 0}
    if shrinking:
        return shrinking
    if any(each.pods for each in old) or new.replicas == wish.replicas:
        return {}
    return {new.name: wish.replicas}


def _grown(wish: Wish, new: SetView, old: Sequence[SetView]) -> int:
    room = wish.replicas + wish.max_surge - _total((*old, new))
    return new.replicas + max(0, min(room, wish.replicas - new.replicas))


def _shrunk(wish: Wish, new: SetView, old: Sequence[SetView]) -> Sizes:
    active = [each for each in old if each.replicas > 0]
    least = wish.replicas - wish.max_unavailable
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


def _spread(wish: Wish, active: Sequence[SetView]) -> Sizes:
    allowed = wish.replicas + wish.max_surge if wish.replicas > 0 else 0
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
