# SPDX-License-Identifier: Apache-2.0
"""Removes the pods that a plan lists for removal, by the Eviction API, each plan once.

The Eviction API deletes a pod that has ended without asking a PodDisruptionBudget (canIgnorePDB
in pkg/registry/core/pod/storage/eviction.go of Kubernetes v1.36), so no right to delete pods is
needed. Nothing waits for a replacement, and what fails is in the next plan again.

Only the leader removes, and right before each request it is asked again: whether moves are
paused, whether the mode is still `act`, and whether the pod still is what the plan took it for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.config import RebalancerConfiguration
from common.kube.events import ObjectRef
from common.runtime import Runtime
from rebalancer.events import EventRecorder
from rebalancer.goals import Removal
from rebalancer.migration.eviction import EvictionDriver, Result, Victim
from rebalancer.planner import Plan
from rebalancer.rules import ClusterRules

log: structlog.stdlib.BoundLogger = structlog.get_logger()

EVERY_S: Final = 0.5
"""How often it is looked whether there is a new plan."""
REMOVED: Final = "PodRemoved"


class PodRemover:
    """Carries out the removals of the last plan."""

    def __init__(
        self,
        state: ClusterState,
        driver: EvictionDriver,
        recorder: EventRecorder,
        *,
        plan: Callable[[], Plan | None],
        leads: Callable[[], bool],
        config: Callable[[], RebalancerConfiguration],
        runtime: Runtime,
    ) -> None:
        self._state = state
        self._driver = driver
        self._recorder = recorder
        self._plan = plan
        self._leads = leads
        self._config = config
        self._clock = runtime.clock
        self._done: tuple[Removal, ...] = ()
        self._removals = runtime.metrics.counter(
            "pod_removals_total",
            "Attempts to remove a pod without a target, by result.",
            ("result",),
        )

    async def run(self) -> None:
        """Carry out each plan once; a term of leading."""
        while True:
            plan = self._plan()
            # A plan to which notes are added stays the same plan, and keeps its list.
            if plan is not None and plan.removals is not self._done:
                self._done = plan.removals
                await self._carry_out()
            await self._clock.sleep(EVERY_S)

    async def _carry_out(self) -> None:
        groups: dict[str, list[Removal]] = {}
        for removal in (each for each in self._done if not each.deferred_by):
            if removal.group:
                groups.setdefault(removal.group, []).append(removal)
            else:
                await self._tried(removal)
        for members in groups.values():
            await self._restart(members)

    async def _restart(self, members: Sequence[Removal]) -> None:
        """Evict a group, the others together once one has been accepted."""
        stops = [why for each in members if (why := self._why_not(each)) is not None]
        if stops:
            log.info("pod group not restarted", group=members[0].group, why=stops[0])
            return
        first, *others = members
        if await self._tried(first):
            await asyncio.gather(*(self._tried(each) for each in others))

    async def _tried(self, removal: Removal) -> bool:
        """Remove a pod; tell whether it goes."""
        try:
            return await self._remove(removal)
        except Exception:  # the others go on; the next plan names it again
            log.exception("pod not removed", pod=removal.key)
            return False

    async def _remove(self, removal: Removal) -> bool:
        if self._why_not(removal) is not None:
            return False
        victim = Victim(
            namespace=removal.namespace,
            name=removal.name,
            uid=removal.pod,
            finished=removal.finished,
        )
        answer = await self._driver.evict(victim, lambda: self._why_not(removal))
        self._removals.labels(answer.result.value).inc()
        log.info("pod removal", pod=removal.key, result=answer.result.value, why=removal.message)
        if answer.result is Result.ACCEPTED:
            self._announce(removal)
        return answer.result in (Result.ACCEPTED, Result.GONE)

    def _why_not(self, removal: Removal) -> str | None:
        """Return why a pod is not removed after all."""
        config, snapshot, now_s = self._config(), self._state.snapshot(), self._clock.now()
        if not self._leads():
            return "another replica leads"
        if config.paused or snapshot.pause(now_s) is not None:
            return "moves are paused"
        rules = ClusterRules(config, snapshot, now_s)
        strategy, node = removal.strategy, removal.node
        # A group has pods on other nodes than the one that is drained.
        off = None if removal.group else rules.strategy_off(strategy, node, "")
        refusal = off or rules.observed(strategy, node, removal.namespace)
        return refusal.message if refusal is not None else _changed(removal, snapshot)

    def _announce(self, removal: Removal) -> None:
        pod = ObjectRef(
            kind="Pod",
            name=removal.name,
            namespace=removal.namespace,
            uid=removal.pod,
            api_version="v1",
        )
        note = f"Removed from {removal.node} by {removal.strategy}: {removal.message}"
        self._recorder.record(
            regarding=pod, type_="Normal", reason=REMOVED, note=note, action="Removing"
        )


def _changed(removal: Removal, snapshot: Snapshot) -> str | None:
    if removal.finished:
        return None  # it is in no snapshot; the driver reads it
    pod = snapshot.pods.get(removal.pod)
    if pod is None or pod.terminating:
        return "the pod is gone"
    if pod.ready and not removal.group:
        return "the pod has become Ready"
    return None
