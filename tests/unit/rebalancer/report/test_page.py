# SPDX-License-Identifier: Apache-2.0
"""What people see of plans."""

from __future__ import annotations

import json

import httpx
import structlog
from starlette.applications import Starlette
from starlette.routing import Route

from common.metrics import Metrics
from rebalancer.planner import Plan
from rebalancer.report.page import PlanPublisher, noted, plan_page
from tests.support.worlds.loop import move_of, plan_of


async def page(plan: Plan | None, path: str = "/debug/plan") -> httpx.Response:
    app = Starlette(
        routes=[Route("/debug/plan", plan_page(lambda: plan, lambda: "rebalancer-b leads"))]
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return await client.get(path)


async def test_the_page_shows_the_plan_for_people() -> None:
    answer = await page(noted(plan_of(move_of("web-1")), ["paused is true"]))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    for words in ("1 eviction", "shop/web-1", "n2", "paused is true"):
        assert words in answer.text
    assert "\x1b" not in answer.text


async def test_the_page_shows_the_plan_for_machines() -> None:
    answer = await page(plan_of(move_of("web-1")), "/debug/plan?output=json")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text)["moves"][0]["pod"] == "shop/web-1"


async def test_the_page_says_that_there_is_no_plan() -> None:
    answer = await page(None)
    assert answer.status_code == 404
    assert "rebalancer-b leads" in answer.text


def test_a_plan_is_logged_once_until_it_says_something_else() -> None:
    publisher, plan = PlanPublisher(Metrics("test")), plan_of(move_of("web-1"))
    with structlog.testing.capture_logs() as logs:
        for told in (plan, plan, noted(plan, ["wait"])):
            publisher.publish(told)
    events = [line["event"] for line in logs]
    assert events == ["plan", "planned", "plan", "planned", "note"]


def test_notes_stand_there_once() -> None:
    plan = noted(plan_of(), ["a", "b", "a"])
    assert plan.notes == ("a", "b")
    assert noted(plan, ["b"]) is plan
