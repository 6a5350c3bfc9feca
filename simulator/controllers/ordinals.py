# SPDX-License-Identifier: Apache-2.0
"""The next actions of a StatefulSet. Pure.

Follows updateStatefulSet (pkg/controller/statefulset/stateful_set_control.go) of v1.36. Pods
are identified by their ordinal. With OrderedReady each pod waits for the one before; with
Parallel only updates wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class ActionType(StrEnum):
    """What can be done with an ordinal."""

    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    type: ActionType
    ordinal: int
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the set."""

    revision: str
    available: bool = False
    """Running and ready for long enough, and not terminating."""
    terminating: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredSet:
    """The desired state of a StatefulSet."""

    replicas: int
    current: str
    update: str
    start: int = 0
    partition: int = 0
    parallel: bool = False
    on_delete: bool = False


def actions(desired: DesiredSet, members: Mapping[int, Member]) -> list[Action]:
    """Return the actions to take now; more may follow once these are done."""
    wanted = range(desired.start, desired.start + desired.replicas)
    found = list(_fill(desired, members, wanted))
    blocked = not desired.parallel and (bool(found) or not _all_available(members, wanted))
    if blocked:
        return found
    condemned = sorted((o for o in members if o not in wanted), reverse=True)
    leaving = list(_shrink(desired, members, condemned))
    if leaving or (condemned and not desired.parallel):
        return found + leaving
    if not found and not desired.on_delete:
        found += _update(desired, members, wanted)
    return found


def revision_for(desired: DesiredSet, ordinal: int) -> str:
    """Return the revision of a missing pod (newVersionedStatefulSetPod)."""
    held_back = ordinal - desired.start < desired.partition
    return desired.current if held_back else desired.update


def _fill(desired: DesiredSet, members: Mapping[int, Member], wanted: range) -> Iterator[Action]:
    for ordinal in wanted:
        member = members.get(ordinal)
        if member is None:
            yield Action(ActionType.CREATE, ordinal, revision_for(desired, ordinal))
        elif member.over and not member.terminating:
            yield Action(ActionType.DELETE, ordinal)
        if not desired.parallel and (member is None or not member.available):
            return


def _all_available(members: Mapping[int, Member], wanted: range) -> bool:
    return all(o in members and members[o].available for o in wanted)


def _shrink(
    desired: DesiredSet, members: Mapping[int, Member], condemned: list[int]
) -> Iterator[Action]:
    """Delete the pods beyond the desired number, the highest ordinal first."""
    unhealthy = [o for o in sorted(condemned) if not members[o].available]
    for ordinal in condemned:
        member = members[ordinal]
        if desired.parallel:
            if not member.terminating:
                yield Action(ActionType.DELETE, ordinal)
            continue
        if not member.terminating and (member.available or unhealthy[:1] == [ordinal]):
            yield Action(ActionType.DELETE, ordinal)
        return


def _update(desired: DesiredSet, members: Mapping[int, Member], wanted: range) -> Iterator[Action]:
    """Replace the highest pod of an old revision, once those above it are available again."""
    for ordinal in reversed(wanted[desired.partition :]):
        member = members[ordinal]
        if member.revision != desired.update and not member.terminating:
            yield Action(ActionType.DELETE, ordinal)
            return
        if not member.available:
            return
