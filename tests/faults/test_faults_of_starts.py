# SPDX-License-Identifier: Apache-2.0
"""A node that cannot start pods: what a failed move says, and that nothing follows it there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from common.kube.resources import EVENTS
from simulator import build
from simulator.faults import ImagePulls, SlowStarts
from tests.faults.test_faults_of_metrics import plan_at
from tests.support.stands.closed_loop import Loop, closed_loop
from tests.support.stands.extender import eventually, maintain
from tests.support.stands.migration import condition

Json = dict[str, Any]  # Any: what a program says

# Two of three pods fit below the ceiling.
WEB = build.deployment("web", 3, cpu="100m", usage_cpu="2500m")
CROWDED = {"web": ["node-0"] * 3}
BROKEN = "node-1"


def refused(plan: Json, node: str = BROKEN) -> list[str]:
    found = {each["name"]: each for each in plan.get("nodes", ())}
    return [why["name"] for why in found[node]["notATarget"]] if node in found else []


async def test_a_failed_move_says_why_its_replacement_did_not_start(tmp_path: Path) -> None:
    async with closed_loop(
        tmp_path, build.deployment("web", 4), places={"web": ["node-0"] * 4}
    ) as loop:
        loop.cluster.faults.inject(ImagePulls(node=BROKEN))
        async with loop.rebalancer(migrationDeadline="30s"):
            [pod, *_] = loop.on("node-0")
            name = loop.plan(pod, BROKEN)
            await loop.until_says(name, "Ready", "ImagePullBackOff")
            [status] = await loop.until_ended(name)
            assert status["phase"] == "Failed"
            assert status["message"].startswith("DeadlineExceeded: ")
            assert "ImagePullBackOff: container app of default/web-" in status["message"]
            said = condition({"status": status}, "Ready")
            assert (said["status"], said["reason"]) == ("False", "ImagePullBackOff")
            concerned = {"Pod", "Deployment", "Node"}
            await loop.until(lambda: concerned <= told(loop).keys(), "an Event on each")
            assert told(loop).keys() == concerned
            assert all("ImagePullBackOff" in note for note in told(loop).values())
            loop.cluster.faults.clear()


async def test_a_new_leader_knows_to_which_node_moves_have_failed(tmp_path: Path) -> None:
    web = build.deployment("web", 4)
    async with closed_loop(tmp_path, web, places={"web": ["node-0"] * 4}) as loop:
        loop.cluster.faults.inject(SlowStarts(node=BROKEN, factor=1000.0))
        async with loop.rebalancer(migrationDeadline="30s") as health:
            [pod, *_] = loop.on("node-0")
            name = loop.plan(pod, BROKEN)
            [status] = await loop.until_ended(name)
            assert "ContainerCreating: container app of default/web-" in status["message"]
            await eventually(partial(is_refused, health), "nothing more goes there")
        async with loop.rebalancer() as health:
            await eventually(partial(is_refused, health), "the next one knows it, too")


async def is_refused(health: str) -> bool:
    return refused(await plan_at(health)) == ["StartsNoPods"]


def told(loop: Loop) -> dict[str, str]:
    """Return the Events about failed moves: what they say, by the kind that they are about."""
    return {
        event["regarding"]["kind"]: event["note"]
        for event in loop.store.list(EVENTS)
        if event["reason"] == "MigrationFailed"
    }


async def test_no_load_move_goes_to_a_node_where_pods_do_not_start(tmp_path: Path) -> None:
    tenant = build.deployment("late", 1, cpu="100m", spec={"nodeName": BROKEN})
    async with closed_loop(tmp_path, WEB, places=CROWDED) as loop:
        loop.cluster.faults.inject(ImagePulls(node=BROKEN))
        loop.cluster.create([tenant])
        await loop.until(lambda: waits(loop, "late"), "a pod of another workload does not start")
        async with loop.rebalancer() as health:
            await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "a pod is moved")
            assert {each["spec"]["target"] for each in loop.migrations()} == {"node-2"}
            plan = await plan_at(health)
            assert refused(plan) == ["StartsNoPods"]
            assert any(note.startswith(f"{BROKEN} takes no pods") for note in plan["notes"])
            loop.cluster.faults.clear()
            await loop.until(lambda: len(loop.ready("late")) == 1, "it starts after all")

            async def opened() -> bool:
                return "StartsNoPods" not in refused(await plan_at(health))

            await eventually(opened, "the node takes pods again")


async def test_an_image_that_runs_nowhere_closes_no_node(tmp_path: Path) -> None:
    typo = {**build.container(cpu="100m"), "image": "registry.invalid/typo:1"}
    bad = [
        build.deployment(f"bad-{node}", 1, spec={"nodeName": node, "containers": [typo]})
        for node in ("node-1", "node-2")
    ]
    async with closed_loop(tmp_path, WEB, places=CROWDED) as loop:
        loop.cluster.faults.inject(ImagePulls(image=typo["image"]))
        loop.cluster.create(bad)
        await loop.until(
            lambda: waits(loop, "bad-node-1") and waits(loop, "bad-node-2"), "no image"
        )
        async with loop.rebalancer():
            await loop.until(lambda: loop.outcomes() == ["AsPlanned"], "the node is relieved")
            loop.cluster.faults.clear()


async def test_a_drain_goes_there_as_the_last_resort(tmp_path: Path) -> None:
    pinned = build.deployment("late", 1, cpu="100m", spec={"nodeName": BROKEN})
    web = build.deployment("web", 2, cpu="100m", spec={"nodeSelector": {"pool": "a"}})
    nodes = [
        build.node("node-0", labels={"pool": "a"}),
        build.node(BROKEN, labels={"pool": "a"}),
        build.node("node-2"),
    ]
    other = build.deployment("other", 1, cpu="100m")
    places = {"web": ["node-0"] * 2, "other": ["node-2"]}
    async with closed_loop(tmp_path, web, other, nodes=nodes, places=places) as loop:
        loop.cluster.faults.inject(ImagePulls(node=BROKEN))
        loop.cluster.create([pinned])
        await loop.until(lambda: waits(loop, "late"), "a pod does not start")
        async with loop.rebalancer(enabledStrategies=["NodeMaintenance"]) as health:
            maintain(loop.cluster, "node-0", on=True)
            await loop.until(lambda: loop.migrations(), "the drain goes on")
            [*moves] = loop.migrations()
            assert {each["spec"]["target"] for each in moves} == {BROKEN}
            assert all("last resort" in each["spec"]["message"] for each in moves)
            assert (await plan_at(health))["nodes"]
            loop.cluster.faults.clear()
            await loop.until(lambda: not loop.on("node-0") and len(loop.ready("web")) == 2, "empty")
            maintain(loop.cluster, "node-0", on=False)


def waits(loop: Loop, app: str) -> bool:
    """Tell whether the pods of an app wait for their image."""
    states = [
        status["state"].get("waiting", {}).get("reason")
        for pod in loop.pods(app)
        for status in pod.get("status", {}).get("containerStatuses") or ()
    ]
    return "ImagePullBackOff" in states
