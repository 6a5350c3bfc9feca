# SPDX-License-Identifier: Apache-2.0
"""What people see of plans: log lines, metrics, and a page on the health port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
import structlog
from starlette.responses import PlainTextResponse, Response

from common.health import HEADERS
from common.metrics import Metrics
from common.terminal import as_text
from rebalancer.planner import Plan
from rebalancer.report import as_json, render

if TYPE_CHECKING:
    from starlette.requests import Request

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class PlanPublisher:
    """Holds the last plan, logs it once and sets the metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self.plan: Plan | None = None
        self._logged: object = None
        self._took = metrics.histogram("plan_duration_seconds", "How long planning took.")
        self._evictions = metrics.gauge("plan_evictions", "Evictions in the last plan.")
        self._bound = metrics.gauge(
            "plan_lower_bound", "The fewest evictions that could meet the goals of the last plan."
        )
        self._refused = metrics.gauge(
            "plan_pods_refused",
            "Pods that stay on nodes above their goals, in the last plan, by reason.",
            ("reason",),
        )
        self._unmet = metrics.gauge("plan_goals_unmet", "Goals that the last plan does not meet.")

    def plan_made(self, plan: Plan, took_s: float) -> None:
        """Count a plan that was made just now."""
        self._took.observe(took_s)
        self._evictions.set(len(plan.moves))
        self._bound.set(plan.lower_bound.evictions)
        self._unmet.set(len(plan.unmet))
        self._refused.clear()
        for reason, pods in Counter(r.name for p in plan.refused for r in p.reasons).items():
            self._refused.labels(reason).set(pods)
        self.plan = plan

    def publish(self, plan: Plan) -> None:
        """Hold a plan, and log it unless it equals the last one."""
        self.plan = plan
        logged = ([(m.uid, m.target) for m in plan.moves], plan.goals, plan.notes)
        if logged == self._logged:
            return
        self._logged = logged
        _log(plan)

    def note(self, notes: Iterable[str]) -> None:
        """Add to the plan what became of it."""
        if self.plan is not None:
            self.plan = noted(self.plan, notes)

    def forget(self) -> None:
        """Drop the plan: another process plans now."""
        self.plan = self._logged = None


def noted(plan: Plan, notes: Iterable[str]) -> Plan:
    """Return the plan with more notes, without duplicates."""
    whole = tuple(dict.fromkeys((*plan.notes, *notes)))
    return plan if whole == plan.notes else msgspec.structs.replace(plan, notes=whole)


def _log(plan: Plan) -> None:
    log.info(
        "plan",
        plan_id=plan.plan_id,
        evictions=len(plan.moves),
        this_cycle=sum(move.this_cycle for move in plan.moves),
        lower_bound=plan.lower_bound.evictions,
        goals=len(plan.goals),
        unmet=len(plan.unmet),
    )
    for move in plan.moves:
        log.info(
            "planned",
            plan_id=plan.plan_id,
            pod=move.pod,
            node=move.source,
            target=move.target,
            why=move.message,
            deferred_by=move.deferred_by,
        )
    for note in plan.notes:
        log.info("note", plan_id=plan.plan_id, text=note)


def plan_page(
    plan: Callable[[], Plan | None], who_leads: Callable[[], str]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that shows the last plan, for people or with `?output=json`."""

    async def page(request: Request) -> Response:
        found = plan()
        if found is None:
            text = f"no plan was made here yet: {who_leads()}\n"
            return PlainTextResponse(text, status_code=404, headers=HEADERS)
        if request.query_params.get("output") == "json":
            return Response(as_json(found), media_type="application/json", headers=HEADERS)
        return PlainTextResponse(as_text(render(found)), headers=HEADERS)

    return page
