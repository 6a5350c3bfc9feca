# SPDX-License-Identifier: Apache-2.0
"""What metrics show of the pacing policy: breakers, refusals and extenders."""

from __future__ import annotations

from collections.abc import Iterable

from common.api.migrations import Purpose
from common.metrics import Metrics
from rebalancer.pacing.breaker import Breakers
from rebalancer.pacing.extenders import ExtenderView
from rebalancer.pacing.history import BreakerState
from rebalancer.refusals import Refusal


class PacingMetrics:
    """The gauges and the counter of pacing."""

    def __init__(self, metrics: Metrics) -> None:
        self._breaker_open = metrics.gauge(
            "breaker_open", "1 while moves are stopped, 0.5 while one may try.", ("purpose",)
        )
        self._stopped = metrics.gauge(
            "namespaces_stopped", "Namespaces whose moves are stopped.", ("purpose",)
        )
        self._quarantined = metrics.gauge(
            "workloads_quarantined", "Workloads that are not moved for a while.", ("purpose",)
        )
        self._limits = metrics.counter(
            "limits_total", "Migrations that had to wait or failed, by reason.", ("limit",)
        )
        self._live = metrics.gauge(
            "extenders_live", "Extenders whose Lease was renewed in the last 15 seconds."
        )
        self._deaf = metrics.gauge(
            "extenders_deaf", "Extenders that renew their Lease but miss new Migrations."
        )
        self._share = metrics.gauge(
            "extender_share", "Share of the nodes that a scheduler shows.", ("scheduler",)
        )

    def refused(self, refusal: Refusal) -> None:
        """Count a refusal."""
        self._limits.labels(refusal.name).inc()

    def breakers(self, purpose: Purpose, breakers: Breakers, shown: BreakerState) -> None:
        """Show whether moves for a purpose may begin."""
        self._breaker_open.labels(purpose.value).set(1 if shown.open else 0.5 * shown.half_open)
        self._stopped.labels(purpose.value).set(len([*breakers.stopped_namespaces()]))
        self._quarantined.labels(purpose.value).set(breakers.quarantined())

    def extenders(self, view: ExtenderView, schedulers: Iterable[str]) -> None:
        """Show which extenders live, and how many nodes schedulers show them."""
        self._live.set(len(view.live) + len(view.deaf))
        self._deaf.set(len(view.deaf))
        for scheduler in schedulers:
            if (share := view.share(scheduler)) is not None:
                self._share.labels(scheduler).set(share)
