"""What a StatefulSet does next: decisions, no deeds.

Follows updateStatefulSet (pkg/controller/statefulset/stateful_set_control.go) of v1.36. Pods
are known by their ordinal. In order, each one waits for the one before; in parallel nobody
waits, except for updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Deed(StrEnum):
    """What can be done to an ordinal."""

    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do now."""

    deed: Deed
    ordinal: int
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the set."""

    revision: str
    available: bool = False
    """Running and ready, for long enough, and not told to end."""
    terminating: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetWish:
    """What a StatefulSet wants."""

    replicas: int
    current: str
    update: str
    start: int = 0
    partition: int = 0
    parallel: bool = False
    on_delete: bool = False


def actions(wish: SetWish, members: Mapping[int, Member]) -> list[Action]:
    """Return what to do now; more may follow once that is done."""
    wanted = range(wish.start, wish.start + wish.replicas)
    found = list(_fill(wish, members, wanted))
    blocked = not wish.parallel and (bool(found) or not _all_available(members, wanted))
    if blocked:
        return found
    condemned = sorted((o for o in members if o not in wanted), reverse=True)
    leaving = list(_shrink(wish, members, condemned))
    if leaving or (condemned and not wish.parallel):
        return found + leaving
    if not found and not wish.on_delete:
        found += _update(wish, members, wanted)
    return found


def revision_for(wish: SetWish, ordinal: int) -> str:
    """Return the revision in which a missing pod is made (newVersionedStatefulSetPod)."""
    held_back = ordinal - wish.start < wish.partition
    return wish.current if held_back else wish.update


def _fill(wish: SetWish, members: Mapping[int, Member], wanted: range) -> Iterator[Action]:
    for ordinal in wanted:
        member = members.get(ordinal)
        if member is None:
            yield Action(Deed.CREATE, ordinal, revision_for(wish, ordinal))
        elif member.over and not member.terminating:
            yield Action(Deed.DELETE, ordinal)
        if not wish.parallel and (member is None or not member.available):
            return


def _all_available(members: Mapping[int, Member], wanted: range) -> bool:
    return all(o in members and members[o].available for o in wanted)


def _shrink(wish: SetWish, members: Mapping[int, Member], condemned: list[int]) -> Iterator[Action]:
    """Delete what is beyond the wanted number, the highest first."""
    unhealthy = [o for o in sorted(condemned) if not members[o].available]
    for ordinal in condemned:
        member = members[ordinal]
        if wish.parallel:
            if not member.terminating:
                yield Action(Deed.DELETE, ordinal)
            continue
        if not member.terminating and (member.available or unhealthy[:1] == [ordinal]):
            yield Action(Deed.DELETE, ordinal)
        return


def _update(wish: SetWish, members: Mapping[int, Member], wanted: range) -> Iterator[Action]:
    """Replace the highest pod of an old revision, once those above it are available again."""
    for ordinal in reversed(wanted[wish.partition :]):
        member = members[ordinal]
        if member.revision != wish.update and not member.terminating:
            yield Action(Deed.DELETE, ordinal)
            return
        if not member.available:
            return
