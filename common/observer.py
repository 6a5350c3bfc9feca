# SPDX-License-Identifier: Apache-2.0
"""Reads one cluster continuously, and holds the latest belief about its load.

Watches fill the state; a source is sampled every `usageInterval` into the load tracker. Both
programs observe the cluster through this module, so they believe the same about the same cluster.
A source that fails is asked again; its nodes become unknown as their samples age.

Where `auto` finds no metrics, it searches for them again every `usageInterval` and uses them once
they are there. Until then the rebalancer plans on requests, notes that and does not act on it; to
an extender, which cannot show a plan first, all nodes are unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, ParamSpec, TypeVar

import structlog

from common.cache.reader import CACHED_KINDS, CachedKind, ClusterReader
from common.cache.snapshot import Snapshot
from common.checkpoint import Checkpoint, no_checkpoint
from common.clock import Clock
from common.cluster.records import PodUid
from common.config import Configuration, SourceKind
from common.kube.api import KubeApi
from common.kube.backoff import Backoff
from common.load import (
    NO_PREDECESSORS,
    Belief,
    Load,
    LoadTracker,
    why_no_nodes,
    why_no_pods,
)
from common.load_metrics import LoadMetrics
from common.metrics import Metrics
from common.usage import (
    NOTHING_MEASURED,
    SourceChoice,
    UsageError,
    UsageSource,
)
from common.usage.auto import choose_source, open_source

log: structlog.stdlib.BoundLogger = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")
Overlay = Callable[[Snapshot], Snapshot]


def _unchanged(snapshot: Snapshot) -> Snapshot:
    return snapshot


class Observer:
    """Keeps a reader and a load tracker in step with one cluster."""

    def __init__(
        self,
        client: KubeApi,
        config: Configuration,
        *,
        clock: Clock,
        metrics: Metrics,
        kinds: Sequence[CachedKind] = CACHED_KINDS,
        checkpoint: Checkpoint = no_checkpoint,
        requests_stand_in: bool = True,
    ) -> None:
        """`checkpoint` is called often by threads that work on all pods, and may pause them.

        `requests_stand_in` says whether load is what pods request where `auto` finds no
        metrics; otherwise all nodes are unknown then.
        """
        self._client = client
        self._config = config
        self._clock = clock
        self._checkpoint = checkpoint
        self._listeners: list[Callable[[], None]] = []
        self._tracker: LoadTracker | None = None
        self._turn = asyncio.Lock()
        self.latest: Belief | None = None
        """The last belief that `look` returned; None until there is one, or after `forget`."""
        self._sampled = asyncio.Event()
        self._trouble = ""
        self._requests_stand_in = requests_stand_in
        self.source = SourceChoice(configured=config.usage_source, asked=config.usage_source)
        """Which source is asked; what `auto` turned out to mean is known after the start."""
        self.reader: Final = ClusterReader(
            client,
            reading=config.reading,
            clock=clock,
            metrics=metrics,
            kinds=kinds,
        )
        self._samples = metrics.counter(
            "usage_samples_total", "Rounds of measurements, by result.", ("result",)
        )
        self._skipped = metrics.counter(
            "usage_entries_skipped_total", "Measurements of a node or a pod that were invalid."
        )
        self._took = metrics.gauge(
            "usage_sample_timestamp_seconds", "When usage was last read, in seconds of Unix time."
        )
        self._missing = metrics.gauge(
            "usage_missing",
            "1 while `usageSource: auto` finds no metrics.",
        )
        self._unknown = metrics.gauge("nodes_unknown", "Nodes whose load is unknown.")
        self._load_metrics = LoadMetrics(metrics)

    async def run(self) -> None:
        """Read and sample until canceled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run())
            await self.reader.wait_synced()
            await self._sample_continuously()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each round of measurements; requests are not measured."""
        self._listeners.append(listener)

    async def wait_sampled(self) -> None:
        """Return when usage has been read once; where nothing is measured, at once."""
        await self._sampled.wait()

    @property
    def resting(self) -> bool:
        """Tell whether too little is known about load to move anything for it."""
        return self.latest is None or self.latest.load.resting

    def forget(self) -> None:
        """Drop the latest belief: a new term of leading does not rest on what was seen before."""
        self.latest = None

    async def look(
        self,
        predecessors: Mapping[PodUid, Load] = NO_PREDECESSORS,
        overlay: Overlay = _unchanged,
    ) -> Belief:
        """Return the cluster as it is known now and what is believed of its load.

        `predecessors` says what the pods used that some of the pods replaced, `overlay` adds
        own writes to a snapshot that the watch does not show yet.
        """
        self.latest = await self._belief(predecessors, overlay)
        self._unknown.set(self.latest.load.unknown)
        self._load_metrics.update(self.latest.load)
        return self.latest

    async def peek(self) -> Belief:
        """Return the same for pages that only show it: nothing is kept, and no gauge is set."""
        return await self._belief(NO_PREDECESSORS, _unchanged)

    async def _belief(self, predecessors: Mapping[PodUid, Load], overlay: Overlay) -> Belief:
        snapshot, now_s = self.reader.state.snapshot(), self._clock.now()
        known = overlay(snapshot)
        source, trouble = self.source, self._trouble
        tracker = self._tracker or LoadTracker(self._config)
        load = await self._in_turn(tracker.view, snapshot, now_s, predecessors, self._checkpoint)
        # Added twice: writes that the watch shows by now, and those made in the meantime.
        return Belief(overlay(known), load, source, trouble)

    def why_not_ready(self) -> str | None:
        """Return what is missing before the cluster is known."""
        return self.reader.why_not_synced() or (
            None if self._sampled.is_set() else f"waiting for usage: {self._trouble or 'reading'}"
        )

    async def _sample_continuously(self) -> None:
        backoff = Backoff(
            floor_s=self._config.reading.backoff_min.seconds,
            cap_s=self._config.usage_interval.seconds,
            rng=random.Random(),
        )
        while True:
            try:
                choice = await choose_source(self._config.usage_source, self._client)
                async with open_source(
                    choice.asked,
                    self._client,
                    nodes=lambda: [v.node for v in self.reader.state.snapshot().nodes.values()],
                    prometheus=self._config.prometheus,
                    pressure=self._config.pressure,
                    clock=self._clock,
                    checkpoint=self._checkpoint,
                ) as source:
                    await self._sample_from(source, choice)
            except UsageError as error:
                self._failed(error)
                await self._clock.sleep(backoff.next_s())
            except Exception as error:  # a source that cannot be opened must not end the program
                log.exception("usage source failed")
                self._failed(UsageError(f"{type(error).__name__}: {error}"))
                await self._clock.sleep(backoff.next_s())

    def _use(self, choice: SourceChoice) -> LoadTracker:
        """Switch to a source; samples of different sources are not mixed."""
        self.source = choice
        self._missing.set(choice.without_metrics)
        from_requests = choice.asked is SourceKind.REQUESTS and (
            self._requests_stand_in or not choice.without_metrics
        )
        self._tracker = LoadTracker(self._config, from_requests=from_requests)
        if choice.without_metrics:
            log.warning("no metrics: nothing is moved or scored for load", why=choice.why)
        else:
            log.info("usage source chosen", source=choice.asked.value, why=choice.why)
        return self._tracker

    async def _sample_from(self, source: UsageSource, choice: SourceChoice) -> None:
        """Sample until canceled; where there are no metrics, until there are some."""
        tracker, measures = self._use(choice), choice.asked is not SourceKind.REQUESTS
        while True:
            if await self._sample_once(source, tracker) and measures:
                for listener in self._listeners:
                    listener()
            await self._clock.sleep(self._config.usage_interval.seconds)
            if choice.without_metrics and await self._metrics_appeared():
                return

    async def _metrics_appeared(self) -> bool:
        """Check for metrics; on doubt there are still none, which was logged before."""
        try:
            choice = await choose_source(self._config.usage_source, self._client)
        except UsageError:
            return False
        return not choice.without_metrics

    async def _sample_once(self, source: UsageSource, tracker: LoadTracker) -> bool:
        """Take one round of measurements; tell whether there was one."""
        try:
            sample = await source.sample()
            snapshot, now_s = self.reader.state.snapshot(), self._clock.now()
            if sample is not NOTHING_MEASURED and (none := why_no_nodes(sample, snapshot)):
                raise UsageError(f"{source.name}: {none}")
            await self._in_turn(tracker.observe, sample, snapshot, now_s, self._checkpoint)
        except UsageError as error:
            self._failed(error)
            return False
        except Exception as error:  # no answer of a source may end the program
            log.exception("sample not processed", source=source.name)
            self._failed(UsageError(f"{source.name}: {type(error).__name__}: {error}"))
            return False
        self._skipped.inc(sample.skipped)
        self._took.set(now_s)
        self._sampled.set()
        missing = why_no_pods(sample, snapshot, now_s)
        if missing is not None:  # its samples of nodes are valid all the same
            self._failed(UsageError(f"{source.name}: {missing}"))
            return True
        self._samples.labels("taken").inc()
        if self._trouble:
            self._trouble = ""
            log.info("usage is read again", source=source.name)
        return True

    async def _in_turn(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Use the tracker in a thread: one pass over all pods is too long for the loop.

        The caller may be canceled, a thread cannot: the turn ends with the thread.
        """
        await self._turn.acquire()
        call = partial(work, *args, **kwargs)
        done = asyncio.get_running_loop().run_in_executor(None, call)
        done.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(done)

    def _failed(self, error: UsageError) -> None:
        self._samples.labels("failed").inc()
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("usage not read", error=self._trouble)
