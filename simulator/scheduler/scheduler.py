# SPDX-License-Identifier: Apache-2.0
"""The scheduling loop: take a pod, find a node, and bind it or record why not.

One pod at a time, as the real one; extenders are awaited inside the cycle, and binding follows
the decision without an await in between. The API rejects a binding that is outdated.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import structlog

from common.clock import within
from common.cluster.records import PodRecord, PodUid
from common.fit import Candidate, Question
from common.kube.resources import NODES, PODS
from simulator.api import Change, EventType, Json, condition, timestamp, with_condition
from simulator.api.errors import NotFound, Refusal
from simulator.cache import ClusterCache
from simulator.context import Context
from simulator.scheduler.choice import best, extender_scores, own_scores
from simulator.scheduler.cluster_events import (
    ClusterEvent,
    node_event,
    pod_event,
    storage_kinds,
)
from simulator.scheduler.config import SchedulerConfig
from simulator.scheduler.diagnosis import EXTENDER, NO_NODES, Diagnosis, Status
from simulator.scheduler.extenders import Extender, ExtenderError, extenders_of
from simulator.scheduler.preemption import Preemptor
from simulator.scheduler.queue import QueuedPod, SchedulingQueue
from simulator.scheduler.search import NodeOrder, diagnose, nodes_to_find
from simulator.scheduler.world_cache import WorldCache
from simulator.time_scale import yield_once

log: structlog.stdlib.BoundLogger = structlog.get_logger()

_YIELD_EVERY: Final = 10


class Scheduler:
    """Schedules the pods of its profiles."""

    def __init__(
        self, context: Context, cache: ClusterCache, config: SchedulerConfig | None = None
    ) -> None:
        self._context = context
        self._store = context.store
        self._cache = cache
        self.config = config or SchedulerConfig()
        self.extenders: list[Extender] = extenders_of(
            self.config.extenders, clock=context.time_scale.clock
        )
        self._names = self.config.scheduler_names
        self.queue = SchedulingQueue(
            context.time_scale.elapsed_s,
            initial_backoff_s=self.config.pod_initial_backoff_seconds,
            max_backoff_s=self.config.pod_max_backoff_seconds,
        )
        self._world_cache = WorldCache(context.store, cache)
        self._order: NodeOrder | None = None
        self._placing: PodUid | None = None
        self._start = 0
        self._wake = asyncio.Event()
        self._preemptor = Preemptor(context)
        self.scheduled = 0
        """How many pods it has bound."""
        self._subscribe()

    def _subscribe(self) -> None:
        self._store.subscribe(PODS, self._on_pod, replay=True)
        self._store.subscribe(NODES, self._on_node)
        for resource in storage_kinds():
            self._store.subscribe(resource, self._on_storage)

    async def run(self) -> None:
        """Schedule forever."""
        since_yield = 0
        try:
            while True:
                pod = self.queue.pop()
                if pod is None:
                    await self._wait()
                    continue
                await self._try(pod)
                since_yield += 1
                if since_yield >= _YIELD_EVERY:
                    since_yield = 0
                    await yield_once()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections to extenders."""
        for extender in self.extenders:
            await extender.close()

    async def _wait(self) -> None:
        self._wake.clear()
        due_s = self.queue.next_due_s()
        if due_s is None:
            await self._wake.wait()
            return
        left_s = self._context.time_scale.real_s(due_s - self._context.time_scale.elapsed_s())
        with suppress(TimeoutError):
            await within(self._context.time_scale.clock, max(left_s, 0.001), self._wake.wait())

    def _on_pod(self, change: Change) -> None:
        pod, uid = change.obj, PodUid(change.obj["metadata"]["uid"])
        if pod["spec"].get("nodeName"):
            self.queue.remove(uid)
            self._on_event(pod_event(change))
            if uid != self._placing:
                self._world_cache.on_pod(change)
            return
        metadata = pod["metadata"]
        if change.type is EventType.DELETED or "deletionTimestamp" in metadata:
            self.queue.remove(uid)
        elif self._is_mine(pod):
            if uid not in self.queue:
                key = f"{metadata['namespace']}/{metadata['name']}"
                self.queue.add(key, uid, pod["spec"].get("priority") or 0)
                self._wake.set()
            elif _has_changed(change):
                self.queue.update(uid)
                self._wake.set()

    def _is_mine(self, pod: Json) -> bool:
        spec = pod["spec"]
        return spec.get("schedulerName") in self._names and not spec.get("schedulingGates")

    def _on_node(self, change: Change) -> None:
        old = change.old_obj
        labels = change.obj["metadata"].get("labels")
        if (
            old is None
            or change.type is EventType.DELETED
            or old["metadata"].get("labels") != labels
        ):
            self._order = None
        self._world_cache.changed()
        self._on_event(node_event(change))

    def _on_storage(self, _: Change) -> None:
        self._world_cache.changed()
        self._on_event(ClusterEvent.STORAGE)

    def _on_event(self, event: ClusterEvent | None) -> None:
        if event is not None and self.queue.on_event(event):
            self._wake.set()

    async def _try(self, queued: QueuedPod) -> None:
        """Run one cycle for a pod."""
        record = self._cache.pod(queued.key)
        namespace, _, name = queued.key.partition("/")
        pod = self._store.find(PODS, name, namespace)
        if pod is None or record is None or record.uid != queued.uid or record.node:
            self.queue.remove(queued.uid)
            return
        try:
            await self._cycle(queued, pod, record)
        except ExtenderError as error:
            self._fail(queued, pod, "SchedulerError", str(error))
            self.queue.failed(queued, frozenset(), error=True)
        except Refusal as refusal:
            log.warning("pod not bound", pod=queued.key, error=refusal.message)
            self.queue.failed(queued, frozenset(), error=True)
        except Exception as error:
            log.exception("scheduling failed", pod=queued.key, error=str(error))
            self.queue.failed(queued, frozenset(), error=True)

    async def _cycle(self, queued: QueuedPod, pod: Json, record: PodRecord) -> None:
        world = self._world_cache.current()
        if not world.snapshot.nodes:
            # No plugin rejected it, so no event would help it: retry after the backoff.
            self._fail(queued, pod, "Unschedulable", NO_NODES)
            self.queue.failed(queued, frozenset(), error=True)
            return
        if self._order is None:
            self._order = NodeOrder.of(world.snapshot)
        order = self._order
        candidate = Candidate.of(record)
        ask = world.ask(candidate)
        feasible, diagnosis = await self._feasible(ask, pod, record, order)
        if feasible:
            node = await self._choose(ask, pod, record, feasible)
            await self._bind(pod, node, candidate)
            return
        nominated, tried = await self._preemptor.preempt(
            self._world_cache.fresh(), candidate, record, pod, diagnosis, self.extenders
        )
        self._fail(queued, pod, "Unschedulable", diagnosis.message(tried), nominated)
        self.queue.failed(queued, frozenset(diagnosis.plugins))

    async def _feasible(
        self, ask: Question, pod: Json, record: PodRecord, order: NodeOrder
    ) -> tuple[list[str], Diagnosis]:
        """Return the feasible nodes after the extenders, and the diagnosis."""
        promised = record.nominated_node
        if (
            promised
            and promised in ask.world.snapshot.nodes
            and not ask.rejections(promised, first=True)
        ):
            with suppress(ExtenderError):
                alone = await self._filter(pod, [promised], Diagnosis(1))
                if alone:
                    return alone, Diagnosis(1)
        mask = ask.mask()
        enough = nodes_to_find(len(order), self.config.percentage(record.shape.scheduler_name))
        start = self._start % len(order)
        seen = order.window(mask, ask.index.facts.row_of, start, enough)
        self._start = (start + len(seen.examined)) % len(order)
        diagnosis = Diagnosis(len(order))
        left = await self._filter(pod, list(seen.feasible), diagnosis) if seen.feasible else []
        if left:
            return left, diagnosis
        fitting = set(seen.feasible)
        refused = [name for name in seen.examined if name not in fitting]
        found = diagnose(ask, refused, len(order))
        found.statuses.update(diagnosis.statuses)
        found.plugins |= diagnosis.plugins
        return [], found

    async def _filter(self, pod: Json, names: list[str], diagnosis: Diagnosis) -> list[str]:
        """Filter nodes with the extenders, one after the other."""
        left = names
        for extender in self.extenders:
            if not left:
                break
            if not extender.filters or not extender.is_interested(pod):
                continue
            try:
                left, answer = await extender.filter(pod, left, self._node)
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                log.info("extender skipped", extender=extender.name, error=str(error))
                continue
            for node, reason in answer.failed.items():
                diagnosis.statuses[node] = Status((reason,), resolvable=True)
            for node, reason in answer.unresolvable.items():
                diagnosis.statuses[node] = Status((reason,))
        if len(left) != len(names):
            diagnosis.plugins.add(EXTENDER)
        return left

    def _node(self, name: str) -> Json:
        found = self._store.find(NODES, name)
        return found if found is not None else {"metadata": {"name": name}}

    async def _choose(self, ask: Question, pod: Json, record: PodRecord, names: list[str]) -> str:
        if len(names) == 1:
            return names[0]
        own = own_scores(ask, names)
        if not self.extenders:
            return best(names, own, None, record, self._context.rng)
        scored = await extender_scores(self.extenders, pod, names, self._node)
        return best(names, own, scored, record, self._context.rng)

    async def _bind(self, pod: Json, node: str, candidate: Candidate) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        binder = next(
            (e for e in self.extenders if e.config.bind_verb and e.is_interested(pod)), None
        )
        if binder is None or not await self._bound_by(binder, pod, node):
            self._place(pod, node, candidate)
        self.queue.remove(PodUid(metadata["uid"]))
        self.scheduled += 1
        self._record(
            pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}", "Binding"
        )

    def _place(self, pod: Json, node: str, candidate: Candidate) -> None:
        metadata = pod["metadata"]
        self._placing = PodUid(metadata["uid"])
        try:
            self._store.bind(metadata["name"], metadata["namespace"], node, uid=metadata["uid"])
        finally:
            self._placing = None
        self._world_cache.placed(candidate, node)

    async def _bound_by(self, binder: Extender, pod: Json, node: str) -> bool:
        """Bind a pod through an extender; return whether it did."""
        try:
            await binder.bind(pod, node)
        except ExtenderError:
            if not binder.ignorable:
                raise
            return False
        return True

    def _fail(
        self,
        queued: QueuedPod,
        pod: Json,
        reason: str,
        message: str,
        nominated: str | None = None,
    ) -> None:
        """Record why a pod has no node; `nominated` is its nominated node."""
        metadata = pod["metadata"]
        now = timestamp(self._context.time_scale.clock.now())
        why = condition("PodScheduled", "False", now, reason=reason, message=message)

        def told(old: Json) -> Json:
            made = with_condition(old, why)
            if nominated is None:
                return made
            status = {k: v for k, v in made["status"].items() if k != "nominatedNodeName"}
            more = {"nominatedNodeName": nominated} if nominated else {}
            return {**made, "status": {**status, **more}}

        with suppress(NotFound):
            self._store.modify(
                PODS, metadata["name"], told, namespace=metadata["namespace"], status=True
            )
        self._record(pod, "FailedScheduling", message, "Scheduling", warning=True)

    def _record(
        self, pod: Json, reason: str, note: str, action: str, *, warning: bool = False
    ) -> None:
        name = pod["spec"].get("schedulerName", "default-scheduler")
        self._context.recorder.record(
            pod, by=name, reason=reason, note=note, action=action, warning=warning
        )


def _has_changed(change: Change) -> bool:
    """Return whether a pod itself has changed, not only its status."""
    old, new = change.old_obj, change.obj
    if old is None or old["spec"] != new["spec"]:
        return True
    return any(old["metadata"].get(k) != new["metadata"].get(k) for k in ("labels", "annotations"))
