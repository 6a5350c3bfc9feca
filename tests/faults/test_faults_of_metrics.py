# SPDX-License-Identifier: Apache-2.0
"""Nothing measures usage, or not yet, or no longer: what is planned, said and done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.kube.resources import EVENTS
from simulator import build
from simulator.faults import AnyFault, MetricsAbsent, MetricsMissing, MetricsUnavailable
from simulator.nodes.metrics import OF_KUBELETS
from tests.support.http import fetch
from tests.support.stands.closed_loop import PATIENCE_S, Loop, closed_loop
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.loop_programs import figure

Json = dict[str, Any]  # Any: what a program says

# Two of three pods fit below the ceiling, by what they request and by what they use.
WEB = build.deployment("web", 3, cpu="2500m", usage_cpu="2500m")
CROWDED = {"web": ["node-0"] * 3}
AUTO: Json = {"usageSource": "auto"}
STRATEGIES = ["ResourceOptimization", "NodeMaintenance"]


async def plan_at(health: str) -> Json:
    answer = await fetch(f"{health}/debug/plan", output="json")
    found: Json = answer.json() if answer.is_success else {}
    return found


async def planned(health: str) -> Json:
    """Return the first plan that would move something."""
    found: Json = {}

    async def moves() -> bool:
        found.update(await plan_at(health))
        return bool(found.get("moves"))

    await eventually(moves, "a plan has moves")
    return found


def told(loop: Loop, reason: str) -> list[Json]:
    return [event for event in loop.store.list(EVENTS) if event["reason"] == reason]


async def test_without_metrics_a_plan_is_made_on_requests_said_and_not_carried_out(
    tmp_path: Path,
) -> None:
    async with (
        closed_loop(tmp_path, WEB, places=CROWDED, load=AUTO, metrics=False) as loop,
        loop.rebalancer(**AUTO) as health,
    ):
        plan = await planned(health)
        await loop.cycles(health, 3)
        assert plan["usage"]["source"] == "requests"
        assert plan["usage"]["withoutMetrics"] is True
        assert any(note.startswith("No metrics: the cluster does not") for note in plan["notes"])
        assert any("usageSource: requests" in note for note in plan["notes"])
        assert await figure(health, "usage_missing") == 1
        await loop.until(lambda: told(loop, "NoMetrics"), "an Event is written")
        [event] = told(loop, "NoMetrics")
        assert event["regarding"]["kind"] == "Lease"
        assert event["type"] == "Warning"
        assert loop.migrations() == []


async def test_requests_are_acted_on_where_the_configuration_says_so(tmp_path: Path) -> None:
    said: Json = {"usageSource": "requests"}
    async with (
        closed_loop(tmp_path, WEB, places=CROWDED, load=said, metrics=False) as loop,
        loop.rebalancer(**said) as health,
    ):
        await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "the hot node is relieved")
        assert await figure(health, "usage_missing") == 0
        assert told(loop, "NoMetrics") == []


FAULTS = pytest.mark.parametrize(
    "fault", [MetricsAbsent(), MetricsUnavailable()], ids=["404", "503"]
)


@FAULTS
async def test_a_node_is_emptied_without_metrics(tmp_path: Path, fault: AnyFault) -> None:
    async with closed_loop(tmp_path, WEB, places=CROWDED, guided=False) as loop:
        loop.cluster.faults.inject(fault)
        async with loop.rebalancer(**AUTO, enabledStrategies=STRATEGIES):
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(
                lambda: not loop.on("node-0") and len(loop.ready()) == 3, "it is empty"
            )
            maintain(loop.cluster, "node-0", on=False)


@FAULTS
async def test_metrics_that_appear_later_are_taken_up_without_a_restart(
    tmp_path: Path, fault: AnyFault
) -> None:
    async with closed_loop(tmp_path, WEB, places=CROWDED, guided=False) as loop:
        loop.cluster.faults.inject(fault)
        async with loop.extender(**AUTO), loop.rebalancer(**AUTO) as health:
            await loop.cycles(health, 3)
            assert loop.migrations() == []
            loop.cluster.faults.clear()
            await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "the hot node is relieved")
            plan = await plan_at(health)
            assert plan["usage"]["source"] == "metrics-server"
            assert await figure(health, "usage_missing") == 0
            if isinstance(fault, MetricsAbsent):
                await loop.until(lambda: told(loop, "UsageRead"), "that they are back is told")


async def test_metrics_that_disappear_do_not_turn_into_requests(tmp_path: Path) -> None:
    idle = build.deployment("web", 3, cpu="2500m", usage_cpu="100m")
    short: Json = {**AUTO, "metricExpiry": "20s"}
    async with (
        closed_loop(tmp_path, idle, places=CROWDED, load=short) as loop,
        loop.rebalancer(**short) as health,
    ):

        async def unknown() -> bool:
            return await figure(health, "nodes_unknown") == 3

        async def known() -> bool:
            return bool((await plan_at(health)).get("nodes")) and not await unknown()

        await eventually(known, "usage is read")
        loop.cluster.faults.inject(MetricsAbsent())
        await eventually(unknown, "the samples have expired")
        await loop.cycles(health, 3)
        plan = await plan_at(health)
        assert plan["usage"]["source"] == "metrics-server"
        assert plan["moves"] == []
        assert any(note.startswith("Usage is not read: metrics-server") for note in plan["notes"])
        await loop.until(lambda: told(loop, "UsageNotRead"), "an Event is written")
        assert loop.migrations() == []


async def test_a_source_that_measures_no_node_has_failed(tmp_path: Path) -> None:
    async with closed_loop(tmp_path, WEB, places=CROWDED, guided=False) as loop:
        loop.cluster.faults.inject(MetricsMissing())
        async with loop.extender(), loop.rebalancer() as health:
            await loop.until(lambda: told(loop, "UsageNotRead"), "an Event is written")

            async def noted() -> bool:
                notes = (await plan_at(health)).get("notes", ())
                return any("no sample of any of 3 Ready nodes" in note for note in notes)

            await eventually(noted, "the plan says why nothing is known", patience_s=PATIENCE_S)
            loop.cluster.faults.clear()
            await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "the hot node is relieved")


async def test_windows_of_real_kubelets_cost_no_second_eviction(tmp_path: Path) -> None:
    """Each pod is measured in its own window, and for a minute both nodes carry the moved one."""
    web = build.deployment(
        "web",
        3,
        cpu="100m",
        usage_cpu="2500m",
        annotations={build.STOP_AFTER: "60s"},
        spec={"terminationGracePeriodSeconds": 90},
    )
    async with (
        closed_loop(tmp_path, web, places=CROWDED, pipeline=OF_KUBELETS) as loop,
        loop.rebalancer() as health,
    ):
        await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "a pod is moved")
        assert len(loop.cluster.pods()) == 4, "the moved one still runs"
        await loop.until(lambda: len(loop.cluster.pods()) == 3, "it has ended")
        await loop.cycles(health, 10)
        assert len(loop.witness.evicted) == 1
