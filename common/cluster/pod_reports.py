# SPDX-License-Identifier: Apache-2.0
"""What the status of a pod says beyond the ordinary: restarts, states of containers, conditions.

A healthy pod that was never restarted costs nothing: its report is None, and conditions that are
True for no particular reason are left out. Reports without times are shared between pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from common.api.objects import Condition, ContainerState, ContainerStatus, PodStatus

INIT: Final = "init"
MAIN: Final = "main"
EPHEMERAL: Final = "ephemeral"


class ContainerReport(msgspec.Struct, frozen=True, gc=False):
    """Why a container waits, or how it has ended."""

    group: str
    """`main`, `init` or `ephemeral`."""
    reason: str
    exit_code: int | None
    """None of one that waits."""


class PodReport(msgspec.Struct, frozen=True, gc=False):
    """What stands out in a pod's status."""

    restarts: int
    init_restarts: int
    reason: str
    """Of the pod itself: `Evicted`, `NodeLost`, `Shutdown`."""
    containers: tuple[ContainerReport, ...]


class PodConditionRecord(msgspec.Struct, frozen=True, gc=False):
    """A condition of a pod that does not just hold."""

    type: str
    status: str
    reason: str
    since_s: float | None


NO_CONDITIONS: Final[tuple[PodConditionRecord, ...]] = ()


def report_of(status: PodStatus) -> PodReport | None:
    """Return what stands out; None if nothing does."""
    main, init = status.container_statuses or (), status.init_container_statuses or ()
    groups = ((MAIN, main), (INIT, init), (EPHEMERAL, status.ephemeral_container_statuses or ()))
    found = PodReport(
        restarts=sum(each.restart_count for each in main),
        init_restarts=sum(each.restart_count for each in init),
        reason=status.reason,
        containers=tuple(each for group, statuses in groups for each in _stopped(group, statuses)),
    )
    return found if found != _NOTHING else None


_NOTHING: Final = PodReport(0, 0, "", ())


def _stopped(group: str, statuses: Iterable[ContainerStatus]) -> Iterator[ContainerReport]:
    for each in statuses:
        state = each.state or ContainerState()
        if state.terminated is not None:
            code = state.terminated.exit_code or 0
            yield ContainerReport(group, state.terminated.reason or "", code)
        elif state.waiting is not None and state.waiting.reason:
            yield ContainerReport(group, state.waiting.reason, None)


def conditions_of(conditions: Iterable[Condition] | None) -> tuple[PodConditionRecord, ...]:
    """Return the conditions that are not just True."""
    return tuple(
        PodConditionRecord(each.type, each.status, each.reason, _since_s(each))
        for each in conditions or ()
        if each.status != "True" or each.reason
    )


def _since_s(condition: Condition) -> float | None:
    moment = condition.last_transition_time
    return None if moment is None else moment.timestamp()
