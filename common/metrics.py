# SPDX-License-Identifier: Apache-2.0
"""The metrics of one program.

Each program owns one registry, made in its `run()`; nothing is global, so two programs in
one test process never add to each other's counters. Every name starts with `evenkeel_`;
the process, interpreter and garbage collector report under their customary names.

Asking twice for a metric returns the same object, so parts that share a figure need not
know each other. Asking for it with another type or other labels is a mistake and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from common import __version__

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "evenkeel_"
# Prometheus, VictoriaMetrics and curl all read this one; nothing newer is needed.
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
BUCKETS: Final[tuple[float, ...]] = Histogram.DEFAULT_BUCKETS

# No one reads the time series that says when a counter was created.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

M = TypeVar("M", Counter, Gauge, Histogram)


class _Alone(Collector):
    """One family, for a renderer that expects a registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


Readings = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""Returns the series of a gauge as they are now: the values of its labels, and the figure."""


class _Live(Collector):
    """A gauge whose series come and go with what it measures."""

    def __init__(self, name: str, help: str, labels: Sequence[str], read: Readings) -> None:
        self._named = (name, help, labels)
        self._read = read

    def describe(self) -> Iterator[Metric]:
        name, help, labels = self._named
        yield GaugeMetricFamily(name, help, labels=labels)

    def collect(self) -> Iterator[Metric]:
        name, help, labels = self._named
        family = GaugeMetricFamily(name, help, labels=labels)
        for values, figure in self._read():
            family.add_metric(values, figure)
        yield family


class Metrics:
    """Makes the metrics of one program and renders them."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.registry = CollectorRegistry()
        self._made: dict[str, tuple[tuple[object, ...], Counter | Gauge | Histogram]] = {}
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = self.gauge("build_info", "Which program this is; always 1.", ("program", "version"))
        build.labels(program, __version__).set(1)

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter `evenkeel_<name>`; its name ends in `_total`."""
        return self._once(
            Counter,
            name,
            labels,
            (),
            lambda full: Counter(full, help, labels, registry=self.registry),
        )

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge `evenkeel_<name>`."""
        return self._once(
            Gauge, name, labels, (), lambda full: Gauge(full, help, labels, registry=self.registry)
        )

    def live_gauge(self, name: str, help: str, labels: Sequence[str], read: Readings) -> None:
        """Have the gauge `evenkeel_<name>`, whose series are read whenever it is scraped."""
        self.registry.register(_Live(PREFIX + name, help, labels, read))

    def histogram(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = BUCKETS,
    ) -> Histogram:
        """Return the histogram `evenkeel_<name>`; its name ends in the unit."""
        return self._once(
            Histogram,
            name,
            labels,
            buckets,
            lambda full: Histogram(full, help, labels, buckets=buckets, registry=self.registry),
        )

    def render(self) -> bytes:
        """Return all metrics in the text format of `CONTENT_TYPE`."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Return the same one family at a time, each as it is when it is asked for."""
        for family in self.registry.collect():
            yield generate_latest(_Alone(family))

    def _once(
        self,
        type_: type[M],
        name: str,
        labels: Sequence[str],
        buckets: Sequence[float],
        make: Callable[[str], M],
    ) -> M:
        full = name if name.startswith(PREFIX) else PREFIX + name
        shape = (type_.__name__, tuple(labels), tuple(buckets))
        known, metric = self._made.get(full, (shape, None))
        if known != shape:
            raise ValueError(f"{full} exists as {known}, not as {shape}")
        if not isinstance(metric, type_):
            metric = make(full)
            self._made[full] = (shape, metric)
        return metric
