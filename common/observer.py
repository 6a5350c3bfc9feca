"""Reads one cluster for ever, and holds a belief about its load.

Watches fill the state; a source is sampled every `usageInterval` into the load book. Both
programs look at the cluster through here, so they believe the same of the same cluster.
A source that fails is asked again; its nodes become unknown as their samples age.

Where `auto` finds no metrics, it looks for them again every `usageInterval` and takes them up
when they are there. Until then the rebalancer plans on requests, which it says and does not act
on; to an extender, which cannot show a plan to anybody first, all nodes are unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, ParamSpec, TypeVar

import structlog

from common.breathing import Breathe, go_on
from common.clock import Clock
from common.cluster.reader import ClusterReader, Reading
from common.cluster.records import PodUid
from common.cluster.snapshot import Snapshot
from common.config import Configuration, Prometheus
from common.kube.backoff import Backoff
from common.kube.client import KubeClient
from common.kube.reflector import ReflectorSettings
from common.levels import Levels
from common.load import (
    NO_PREDECESSORS,
    EstimateSettings,
    Load,
    LoadBook,
    LoadSettings,
    LoadView,
    why_no_nodes,
    why_no_pods,
)
from common.metrics import Metrics
from common.usage import (
    MEASURED,
    NOTHING_MEASURED,
    SourceChoice,
    SourceKind,
    UsageError,
    UsageSource,
)
from common.usage.auto import choose_source, open_source
from common.usage.prometheus import PrometheusSettings, Queries

log: structlog.stdlib.BoundLogger = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")


class Belief(NamedTuple):
    """A moment of the cluster and what is believed of its load."""

    snapshot: Snapshot
    load: LoadView
    source: SourceChoice = MEASURED
    trouble: str = ""
    """Why usage was not read the last time; empty if it was."""


class Observer:
    """Keeps a reader and a load book in step with one cluster."""

    def __init__(
        self,
        client: KubeClient,
        config: Configuration,
        *,
        clock: Clock,
        metrics: Metrics,
        readings: Sequence[Reading] | None = None,
        breathe: Breathe = go_on,
        requests_stand_in: bool = True,
    ) -> None:
        """`breathe` is called often by threads that work on all pods, and may pause them.

        `requests_stand_in` says whether load is what pods request where `auto` finds no
        metrics; otherwise all nodes are unknown then.
        """
        self._client = client
        self._config = config
        self._clock = clock
        self._breathe = breathe
        self._listeners: list[Callable[[], None]] = []
        self._book: LoadBook | None = None
        self._turn = asyncio.Lock()
        self._sampled = asyncio.Event()
        self._trouble = ""
        self._requests_stand_in = requests_stand_in
        self.source = SourceChoice(configured=config.usage_source, asked=config.usage_source)
        """Which source is asked; what `auto` turned out to mean is known after the start."""
        self.reader: Final = ClusterReader(
            client,
            settings=reflector_settings(config),
            clock=clock,
            metrics=metrics,
            readings=readings,
        )
        self._samples = metrics.counter(
            "usage_samples_total", "Rounds of measurements that were taken.", ("result",)
        )
        self._skipped = metrics.counter(
            "usage_entries_skipped_total", "Measurements of a node or a pod that made no sense."
        )
        self._took = metrics.gauge(
            "usage_sample_timestamp_seconds", "When usage was last read, as seconds of Unix time."
        )
        self._missing = metrics.gauge(
            "usage_missing",
            "1 while `usageSource: auto` finds no metrics.",
        )
        self._unknown = metrics.gauge(
            "nodes_unknown", "Nodes whose load is not known, at the last look."
        )
        self._levels = Levels(metrics)

    async def run(self) -> None:
        """Read and sample until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reader.run())
            await self.reader.wait_synced()
            await self._sample_for_ever()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each round of measurements; requests are not measured."""
        self._listeners.append(listener)

    async def wait_sampled(self) -> None:
        """Return when usage has been read once; where nothing is measured, at once."""
        await self._sampled.wait()

    async def look(self, predecessors: Mapping[PodUid, Load] = NO_PREDECESSORS) -> Belief:
        """Return the cluster as it is known now and what is believed of its load.

        `predecessors` says what the pods used that some of the pods replaced.
        """
        snapshot, now_s = self.reader.state.snapshot(), self._clock.now()
        source, trouble = self.source, self._trouble
        book = self._book or LoadBook(load_settings(self._config))
        load = await self._in_turn(book.view, snapshot, now_s, predecessors, self._breathe)
        self._unknown.set(load.unknown)
        self._levels.saw(load)
        return Belief(snapshot, load, source, trouble)

    def why_not_ready(self) -> str | None:
        """Say what is missing before the cluster is known."""
        return self.reader.why_not_synced() or (
            None if self._sampled.is_set() else f"waiting for usage: {self._trouble or 'reading'}"
        )

    async def _sample_for_ever(self) -> None:
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
                    prometheus=prometheus_settings(self._config.prometheus),
                    clock=self._clock,
                    breathe=self._breathe,
                ) as source:
                    await self._sample_from(source, choice)
            except UsageError as error:
                self._failed(error)
                await self._clock.sleep(backoff.next_s())
            except Exception as error:  # a source that cannot be opened must not end the program
                log.exception("source of usage failed")
                self._failed(UsageError(f"{type(error).__name__}: {error}"))
                await self._clock.sleep(backoff.next_s())

    def _use(self, choice: SourceChoice) -> LoadBook:
        """Begin with a source; what another one has said is not mixed with what it says."""
        self.source = choice
        self._missing.set(choice.without_metrics)
        from_requests = choice.asked is SourceKind.REQUESTS and (
            self._requests_stand_in or not choice.without_metrics
        )
        self._book = LoadBook(load_settings(self._config), from_requests=from_requests)
        if choice.without_metrics:
            log.warning("no metrics: nothing is moved or scored for load", why=choice.why)
        else:
            log.info("usage source chosen", source=choice.asked.value, why=choice.why)
        return self._book

    async def _sample_from(self, source: UsageSource, choice: SourceChoice) -> None:
        """Sample for ever; where there are no metrics, until there are some."""
        book, measures = self._use(choice), choice.asked is not SourceKind.REQUESTS
        while True:
            if await self._sample_once(source, book) and measures:
                for listener in self._listeners:
                    listener()
            await self._clock.sleep(self._config.usage_interval.seconds)
            if choice.without_metrics and await self._metrics_appeared():
                return

    async def _metrics_appeared(self) -> bool:
        """Look for metrics; on doubt there are still none, which has been said."""
        try:
            choice = await choose_source(self._config.usage_source, self._client)
        except UsageError:
            return False
        return not choice.without_metrics

    async def _sample_once(self, source: UsageSource, book: LoadBook) -> bool:
        """Take a round of measurements in; tell whether there was one."""
        try:
            sample = await source.sample()
            snapshot, now_s = self.reader.state.snapshot(), self._clock.now()
            if sample is not NOTHING_MEASURED and (none := why_no_nodes(sample, snapshot)):
                raise UsageError(f"{source.name}: {none}")
            await self._in_turn(book.observe, sample, snapshot, now_s, self._breathe)
        except UsageError as error:
            self._failed(error)
            return False
        except Exception as error:  # whatever a source says must not end the program
            log.exception("usage not taken in", source=source.name)
            self._failed(UsageError(f"{source.name}: {type(error).__name__}: {error}"))
            return False
        self._skipped.inc(sample.skipped)
        self._took.set(now_s)
        self._sampled.set()
        missing = why_no_pods(sample, snapshot, now_s)
        if missing is not None:  # what it says of nodes holds all the same
            self._failed(UsageError(f"{source.name}: {missing}"))
            return True
        self._samples.labels("taken").inc()
        if self._trouble:
            self._trouble = ""
            log.info("usage is read again", source=source.name)
        return True

    async def _in_turn(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Use the book in a thread: one pass over all pods is too long for the loop.

        Who asked may be cancelled, a thread cannot: the turn ends with the thread.
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


def reflector_settings(config: Configuration) -> ReflectorSettings:
    """Return how the configuration wants the cluster to be watched."""
    reading = config.reading
    return ReflectorSettings(
        page_size=reading.page_size,
        min_watch_s=reading.min_watch.seconds,
        max_watch_s=reading.max_watch.seconds,
        watch_grace_s=reading.watch_grace.seconds,
        silence_s=reading.silence.seconds,
        stale_after_s=reading.stale_after.seconds,
        backoff_min_s=reading.backoff_min.seconds,
        backoff_max_s=reading.backoff_max.seconds,
        connect_s=reading.connect_timeout.seconds,
    )


def load_settings(config: Configuration) -> LoadSettings:
    """Return how the configuration wants load to be judged."""
    estimates = config.estimates
    return LoadSettings(
        metric_expiry_s=config.metric_expiry.seconds,
        clock_skew_s=config.clock_skew.seconds,
        smoothing_s=config.smoothing.seconds,
        estimates=EstimateSettings(
            cpu_of_request=estimates.cpu_of_request,
            mem_of_request=estimates.memory_of_request,
            default_cpu_milli=estimates.cpu_milli,
            default_mem_bytes=estimates.mem_bytes,
        ),
    )


def prometheus_settings(wanted: Prometheus | None) -> PrometheusSettings | None:
    """Return how the configuration wants Prometheus to be asked."""
    if wanted is None:
        return None
    return PrometheusSettings(
        url=wanted.url,
        bearer_token_file=wanted.bearer_token_file,
        ca_file=wanted.ca_file,
        insecure_skip_verify=wanted.insecure_skip_verify,
        timeout_s=wanted.timeout.seconds,
        window_s=wanted.window.seconds,
        node_label=wanted.node_label,
        pod_jobs=wanted.pod_jobs,
        node_jobs=wanted.node_jobs,
        queries=Queries(**wanted.queries.model_dump()),
    )
