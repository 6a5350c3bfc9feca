# SPDX-License-Identifier: Apache-2.0
"""Nodes emptied by the running programs: labels without effect, blocked drains, deadlines.

No pod moves twice: the witness of the loop complains about a second eviction of a lineage.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from common.api.contract import DO_NOT_DISRUPT, DRAINED_CONDITION, under_maintenance
from common.kube.resources import EVENTS, NODES, PDBS
from simulator import build
from simulator.api import Json
from simulator.faults import MetricsUnavailable, ServerError, SlowStarts
from tests.faults.test_faults_of_metrics import plan_at
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.command import evenkeel, started
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.loop_programs import figure

MAINTENANCE: dict[str, Any] = {"enabledStrategies": ["NodeMaintenance"]}


def told(loop: Loop, reason: str) -> list[str]:
    """Return what the Events with a reason say."""
    return [event["note"] for event in loop.store.list(EVENTS) if event["reason"] == reason]


def drained(loop: Loop, node: str = "node-0") -> tuple[str, str]:
    """Return status and reason of a node's condition."""
    for found in loop.store.get(NODES, node)["status"]["conditions"]:
        if found["type"] == DRAINED_CONDITION:
            return found["status"], found["reason"]
    return "", ""


async def test_a_label_is_not_ignored_in_silence(tmp_path: Path) -> None:
    async with (
        closed_loop(tmp_path, build.deployment("web", 2), places={"web": ["node-0"] * 2}) as loop,
        loop.rebalancer() as health,
    ):
        await loop.until_ready("web", 2)
        maintain(loop.cluster, "node-0", on=True)
        await loop.until(lambda: told(loop, "MaintenanceIgnored"), "an Event says so")

        async def noted() -> bool:
            notes = (await plan_at(health)).get("notes", ())
            return any("node-0" in note and "enabledStrategies" in note for note in notes)

        await eventually(noted, "the plan says so")
        assert loop.migrations() == []
        maintain(loop.cluster, "node-0", on=False)


async def test_no_pod_leaves_before_the_cordon_and_the_announcement(tmp_path: Path) -> None:
    """The Event cannot be written, and that blocks nothing."""
    seen: list[bool] = []
    async with closed_loop(
        tmp_path, build.deployment("web", 3), places={"web": ["node-0"] * 3}
    ) as loop:
        await loop.until_ready("web", 3)
        loop.cluster.faults.inject(
            ServerError(status=500, verbs=("create",), resources=("events",))
        )
        fault = loop.cluster.faults.inject(
            ServerError(status=500, verbs=("patch",), resources=("nodes",))
        )

        loop.when_evicted(lambda: seen.append(bool(loop.ours())))
        async with loop.rebalancer(**MAINTENANCE) as health:
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(loop.migrations, "moves are planned")
            await loop.cycles(health, 2)
            assert loop.witness.evicted == []
            loop.cluster.faults.withdraw(fault)
            await loop.until(lambda: drained(loop) == ("True", "Drained"), "it is empty")
            assert await figure(health, "events_dropped_total") > 0
            maintain(loop.cluster, "node-0", on=False)
            await loop.until(lambda: drained(loop) == ("", ""), "the condition is gone")
    assert seen == [True]


async def test_a_blocked_drain_names_its_pods_and_goes_on_when_it_can(tmp_path: Path) -> None:
    budget = build.pdb("web", match={"app": "web"}, min_available=3)
    places = {"web": ["node-0"] * 3, "api": ["node-0"] * 2}
    async with closed_loop(
        tmp_path, build.deployment("web", 3), build.deployment("api", 2), budget, places=places
    ) as loop:
        await loop.until_ready("web", 3)
        async with loop.rebalancer(**MAINTENANCE):
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: drained(loop) == ("False", "Blocked"), "it is blocked")
            await loop.until(lambda: told(loop, "MaintenanceBlocked"), "an Event says so")
            assert told(loop, "MaintenanceBlocked")[-1].count("for PDB web") == 3
            assert told(loop, "MaintenanceDone") == []
            loop.store.delete(PDBS, "web", namespace="default")
            await loop.until(lambda: drained(loop) == ("True", "Drained"), "it is empty")
            await loop.until(lambda: told(loop, "MaintenanceDone"), "an Event says so")
            maintain(loop.cluster, "node-0", on=False)


async def test_after_the_deadline_wishes_no_longer_hold_but_budgets_do(tmp_path: Path) -> None:
    wish = {DO_NOT_DISRUPT: "true"}
    volume = {"volumes": [{"name": "data", "emptyDir": {}}]}
    apps = {"wish": 2, "one": 1, "data": 2, "kept": 2}
    manifests = [
        build.deployment("wish", 2, annotations=wish),
        build.deployment("one", 1),
        build.deployment("data", 2, spec=volume),
        build.deployment("kept", 2, annotations=wish),
        build.pdb("kept", match={"app": "kept"}, min_available=2),
        build.pod("bare", node="node-0", labels={"app": "bare"}),
    ]
    places = {app: ["node-0"] * count for app, count in apps.items()}
    settings = {**MAINTENANCE, "maintenance": {"deadline": "40s"}, "singleReplica": "refuse"}
    async with closed_loop(tmp_path, *manifests, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == 8, "all are Ready")
        async with loop.rebalancer(**settings):
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: told(loop, "MaintenanceDeadline"), "it is announced")
            early = len(loop.witness.evicted)
            await loop.until(
                lambda: {app_of(pod) for pod in loop.on("node-0")} == {"kept", "bare"},
                "all but what a budget protects, and the bare pod, have left",
            )
            await loop.until(lambda: drained(loop) == ("False", "Blocked"), "it says so")
            maintain(loop.cluster, "node-0", on=False)
    assert early <= 1


async def test_the_command_sets_the_label_and_follows_until_the_node_is_empty(
    tmp_path: Path,
) -> None:
    places = {"web": ["node-0"] * 3}
    async with closed_loop(tmp_path, build.deployment("web", 3), places=places) as loop:
        await loop.until_ready("web", 3)
        config = str(loop.configured(**MAINTENANCE))
        flags = ("--kubeconfig", str(loop.kubeconfig), "-n", "default", "--config", config)
        async with loop.rebalancer(**MAINTENANCE):
            found = await evenkeel(*flags, "drain", "node-0")
            assert found.code == 0, found.err
            assert not loop.on("node-0")
            assert "drain node-0 --cancel" in found.out
            assert "node-0: " in found.err, "it says how far it is"
            assert (await evenkeel(*flags, "drain", "node-0", "--cancel")).code == 0
            await loop.until(lambda: not loop.ours(), "the cordon is undone")


async def test_ctrl_c_ends_the_command_and_not_the_drain(tmp_path: Path) -> None:
    budget = build.pdb("web", match={"app": "web"}, min_available=2)
    places = {"web": ["node-0"] * 2}
    async with closed_loop(tmp_path, build.deployment("web", 2), budget, places=places) as loop:
        await loop.until_ready("web", 2)
        config = str(loop.configured(**MAINTENANCE))
        flags = ("--kubeconfig", str(loop.kubeconfig), "-n", "default", "--config", config)
        async with loop.rebalancer(**MAINTENANCE):
            async with started(*flags, "drain", "node-0") as process:
                assert process.stderr is not None
                while b"Draining node-0" not in (line := await process.stderr.readline()):
                    assert line, "it ended before it began"
                process.send_signal(signal.SIGINT)
                said = (await process.stderr.read()).decode()
                assert await process.wait() == 130
            assert under_maintenance(loop.store.get(NODES, "node-0")["metadata"]["labels"])
            maintain(loop.cluster, "node-0", on=False)
        assert "evenkeel drain node-0 --cancel" in said
        assert "Traceback" not in said


def app_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["app"])


async def test_nodes_that_are_labelled_one_after_the_other_are_one_plan(tmp_path: Path) -> None:
    """The last one while pods move there: they go elsewhere, and none moves twice."""
    nodes = [f"node-{number}" for number in range(5)]
    web, api = build.deployment("web", 4), build.deployment("api", 4)
    places = {"web": ["node-0", "node-1"] * 2, "api": ["node-0", "node-1"] * 2}
    async with closed_loop(tmp_path, web, api, nodes=5, places=places) as loop:
        await loop.until(lambda: len(loop.ready()) == 8, "all are Ready")
        loop.cluster.faults.inject(SlowStarts(factor=3.0))
        async with loop.rebalancer(**MAINTENANCE):
            for node in nodes[:2]:
                maintain(loop.cluster, node, on=True)
            await loop.until(lambda: targets(loop), "moves are planned")
            last = targets(loop)[0]
            maintain(loop.cluster, last, on=True)
            away = [*nodes[:2], last]
            await loop.until(
                lambda: all(drained(loop, node) == ("True", "Drained") for node in away),
                "all three are empty",
            )
            await loop.until(lambda: len(loop.ready()) == 8, "all are Ready again")
            for node in away:
                maintain(loop.cluster, node, on=False)
    first = {m["metadata"]["name"] for m in loop.migrations() if m["spec"]["target"] in nodes[:2]}
    assert first == set()


def targets(loop: Loop) -> list[str]:
    return sorted({m["spec"]["target"] for m in loop.migrations()})


async def test_a_node_is_emptied_after_metrics_have_stopped(tmp_path: Path) -> None:
    """Requests fill more than the ceiling allows; measured use was far below it."""
    web = build.deployment("web", 6, cpu="2000m", usage_cpu="200m")
    places = {"web": ["node-0", "node-0", "node-0", "node-1", "node-1", "node-2"]}
    settings = {**MAINTENANCE, "metricExpiry": "20s"}
    async with closed_loop(tmp_path, web, places=places, load={"metricExpiry": "20s"}) as loop:
        await loop.until_ready("web", 6)
        async with loop.rebalancer(**settings) as health:
            loop.cluster.faults.inject(MetricsUnavailable())

            async def unknown() -> bool:
                return await figure(health, "nodes_unknown") == 3

            await eventually(unknown, "no node is known")
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: drained(loop) == ("True", "Drained"), "it is empty")
            [note] = told(loop, "MaintenancePlanned")
            assert "by requests, at most" in note

            async def noted() -> bool:
                notes = (await plan_at(health)).get("notes", ())
                return any("by requests" in note for note in notes)

            await eventually(noted, "the plan says so")
            maintain(loop.cluster, "node-0", on=False)
