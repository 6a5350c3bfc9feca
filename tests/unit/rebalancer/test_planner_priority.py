# SPDX-License-Identifier: Apache-2.0
"""What informs people waits for a plan that is being made, and not for ever."""

from __future__ import annotations

import asyncio

from rebalancer.console_data import Questions
from rebalancer.planner_priority import PlannerPriority


async def test_a_question_waits_until_the_plan_is_made() -> None:
    planning = PlannerPriority()
    order: list[str] = []
    questions = Questions(planning)
    with planning:
        asked = asyncio.create_task(questions.ask(order.append, "answer"))
        await planning.wait_idle(0.05)  # long enough for an answer that does not wait
        order.append("plan")
    await asked
    assert order == ["plan", "answer"]


async def test_nothing_waits_while_no_plan_is_made() -> None:
    planning = PlannerPriority()
    with planning:
        pass
    async with asyncio.timeout(30):
        assert await Questions(planning).ask(len, "four") == 4


async def test_a_long_plan_does_not_keep_people_waiting() -> None:
    planning = PlannerPriority()
    with planning:
        async with asyncio.timeout(30):
            await planning.wait_idle(0.001)


async def test_a_plan_that_fails_ends_the_wait() -> None:
    planning = PlannerPriority()
    try:
        with planning:
            raise ValueError
    except ValueError:
        pass
    async with asyncio.timeout(30):
        await planning.wait_idle(60)
