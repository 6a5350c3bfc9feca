# SPDX-License-Identifier: Apache-2.0
"""Which containers of a pod run, and why the others do not.

Only what does not run is kept, so that a healthy pod costs nothing. The kubelet reports
app containers and init containers apart; a sidecar is an init container that restarts
always. An image is named as the spec names it, because the kubelet reports the resolved
name once a container runs (convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go),
and the same image must have the same name on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from common.api.objects import (
    Container,
    ContainerState,
    ContainerStatus,
    PodSpec,
    PodStatus,
    StateDetails,
)


class StalledContainer(msgspec.Struct, frozen=True, gc=False):
    """A container that should run and does not."""

    name: str
    image: str
    reason: str
    """`ImagePullBackOff`, `CrashLoopBackOff`, `ContainerCreating`, …; may be empty."""


NONE_STALLED: Final[tuple[StalledContainer, ...]] = ()


class Containers(NamedTuple):
    """What the kubelet says about the containers of a pod."""

    running: int | None
    stalled: tuple[StalledContainer, ...] = NONE_STALLED
    started: datetime | None = None
    """When the first of the containers that run now, and never ran before, began."""


def containers_of(spec: PodSpec, status: PodStatus) -> Containers:
    """Return what the kubelet says about a pod that has not ended."""
    init, main = status.init_container_statuses or (), status.container_statuses or ()
    if not init and not main:
        return Containers(None)
    running = sum(_runs(each.state) for each in (*init, *main))
    policy = spec.restart_policy
    # An ordinary init container has done its work once it has succeeded.
    once = "Never" if policy == "Never" else "OnFailure"
    stalled = (
        *_stalled(spec.init_containers or (), init, once),
        *_stalled(spec.containers, main, policy),
    )
    return Containers(running, stalled, _started((*init, *main)))


def _stalled(
    containers: Iterable[Container], statuses: Iterable[ContainerStatus], policy: str
) -> Iterator[StalledContainer]:
    by_name = {each.name: each for each in containers}
    for status in statuses:
        container, state = by_name.get(status.name), status.state or ContainerState()
        if container is None or _runs(state):
            continue
        if not _ended_for_good(state.terminated, container.restart_policy or policy):
            reason = (state.waiting or state.terminated or StateDetails()).reason
            yield StalledContainer(container.name, container.image, reason or "")


def _started(statuses: Iterable[ContainerStatus]) -> datetime | None:
    states = (status.state for status in statuses if not status.restart_count)
    running = (state.running for state in states if state is not None)
    return min((r.started_at for r in running if r is not None and r.started_at), default=None)


def _runs(state: ContainerState | None) -> bool:
    return state is not None and state.running is not None


def _ended_for_good(terminated: StateDetails | None, policy: str) -> bool:
    if terminated is None or policy == "Always":
        return False
    return policy == "Never" or terminated.exit_code == 0
