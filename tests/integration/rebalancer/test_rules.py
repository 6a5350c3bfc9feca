# SPDX-License-Identifier: Apache-2.0
"""Pools, namespaces and windows through the running programs: each gets what it asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.config import RebalancerConfiguration
from common.kube.resources import NAMESPACES, NODES, Resource
from rebalancer.main import RebalancerOptions
from rebalancer.main import run as run_rebalancer
from simulator import build
from simulator.faults import SlowStarts
from tests.support.http import fetch
from tests.support.stands.closed_loop import PATIENCE_S, Loop, closed_loop
from tests.support.stands.extender import eventually
from tests.support.stands.loop_programs import REBALANCER, is_ready_at, running

Json = dict[str, Any]  # Any: what a program says, and what it is told

CEILINGS = "ResourceOptimization"
POOLS: list[Json] = [
    # Relieved early.
    {"name": "web", "nodeSelector": "pool=web", "cpuThreshold": 60.0, "modes": {CEILINGS: "act"}},
    # Packed: nothing moves as long as a node does not burn.
    {"name": "batch", "nodeSelector": {"pool": "batch"}, "cpuThreshold": 95.0},
]
SPACES: list[Json] = [
    {"selector": "team=shop"},
    {"selector": {"kubernetes.io/metadata.name": "bank"}, "modes": {CEILINGS: "observe"}},
]
ALWAYS = [{"schedule": "* * * * *", "duration": "1m"}]


def nodes() -> list[Json]:
    return [
        build.node(f"{pool}-{number}", labels={"pool": pool})
        for pool in ("web", "batch")
        for number in range(2)
    ]


def app(name: str, namespace: str, pool: str) -> Json:
    """Return three pods that use an eighth of a node each."""
    where = {"nodeSelector": {"pool": pool}}
    return build.deployment(name, 3, namespace=namespace, cpu="100m", usage_cpu="1000m", spec=where)


@asynccontextmanager
async def two_pools(folder: Path) -> AsyncIterator[Loop]:
    """Give two pools with the same load: three quarters of the first node of each."""
    apps = [
        app("cart", "shop", "web"),
        app("ledger", "bank", "web"),
        app("train", "shop", "batch"),
        app("sum", "bank", "batch"),
    ]
    places = {
        **dict.fromkeys(("cart", "ledger"), ["web-0"] * 3),
        **dict.fromkeys(("train", "sum"), ["batch-0"] * 3),
    }
    spaces = [build.namespace("shop", labels={"team": "shop"}), build.namespace("bank")]
    async with closed_loop(
        folder, *spaces, *apps, nodes=nodes(), places=places, load={"pools": POOLS}
    ) as loop:
        await loop.until(lambda: len(loop.ready()) == 12, "all are Ready")
        yield loop


async def why(console: str, kind: str, name: str) -> Json:
    answer = await fetch(f"http://{console}/api/why", kind=kind, name=name)
    found: Json = answer.json()
    return found


def facts(document: Json) -> dict[str, str]:
    return {fact["label"]: fact["text"] for fact in document["facts"]}


async def test_two_pools_and_two_namespaces_that_want_the_opposite(tmp_path: Path) -> None:
    given = {**REBALANCER, "pools": POOLS, "namespaces": SPACES, "mode": "observe"}
    config = RebalancerConfiguration.model_validate(given)
    async with two_pools(tmp_path) as loop:
        ledger = [pod["metadata"]["uid"] for pod in loop.pods("ledger")]
        options = RebalancerOptions(kubeconfig=str(loop.kubeconfig), console_port=0)
        async with running(run_rebalancer, config, options, loop.clock) as said:
            await eventually(
                lambda: is_ready_at(f"http://{said['health']}"), "ready", patience_s=PATIENCE_S
            )
            # Two of the six pods have to go, and only those of the shop may.
            await loop.until(lambda: len(loop.on("web-0")) <= 4, "web-0 is relieved")
            await loop.until(lambda: len(loop.ready("cart")) == 3, "the shop is whole again")
            await loop.cycles(f"http://{said['health']}", 3)
            cart, pods = loop.on("web-1", "cart"), loop.pods()
            kept = await why(said["console"], "pod", f"bank/{_of(loop, 'ledger')}")
            packed = await why(said["console"], "node", "batch-0")
            moved = await why(said["console"], "pod", f"shop/{_of(loop, 'cart')}")
            relieved = await why(said["console"], "node", "web-0")
            shown = (await fetch(f"http://{said['console']}/api/cluster")).json()
            await loop.settled()
        assert len(cart) == 2
        assert [pod["metadata"]["uid"] for pod in loop.pods("ledger")] == ledger
        assert len(loop.on("batch-0")) == 6
        assert len(loop.witness.evicted) == 2
        assert len(pods) == 12

    # By these the map is colored.
    allowed = {cell[0]: cell[-2:] for cell in shown["cluster"]["nodes"]}
    assert allowed["web-0"] == [60.0, None]
    assert allowed["batch-1"] == [95.0, None]
    assert facts(kept)["Namespace rule"] == (
        "namespaces[1] (kubernetes.io/metadata.name=bank) sets modes"
    )
    assert facts(kept)[CEILINGS].startswith("observe, by namespaces[1]")
    assert "RuleObserves" in [gate["name"] for gate in kept["gates"] if not gate["passed"]]
    assert facts(moved)["Namespace rule"] == "namespaces[0] (team=shop) sets nothing"
    assert facts(moved)[CEILINGS] == "act, by pool web"
    assert facts(packed)["Pool rule"] == "pool batch (pool=batch) sets cpuThreshold"
    assert facts(packed)["Ceilings"] == "95 % CPU, 80 % memory"
    assert facts(packed)[CEILINGS] == "observe, by the configuration"
    assert facts(relieved)["Pool rule"] == "pool web (pool=web) sets cpuThreshold, modes"
    assert facts(relieved)["Ceilings"] == "60 % CPU, 80 % memory"


def _of(loop: Loop, name: str) -> str:
    return str(loop.pods(name)[0]["metadata"]["name"])


def closed(loop: Loop) -> list[Json]:
    """Return a window that opens half a year from now."""
    now = datetime.fromtimestamp(loop.clock.now(), UTC)
    month = (now.month + 5) % 12 + 1
    return [{"schedule": f"0 0 1 {month} *", "duration": "1h", "timeZone": "Europe/Berlin"}]


async def test_a_window_that_closes_stops_beginnings_and_nothing_else(tmp_path: Path) -> None:
    """Eleven pods have to go, one after the other; the window closes after the first."""
    web = build.deployment("web", 12, cpu="100m", usage_cpu="500m")
    given: Json = {"cpuThreshold": 10.0, "maxInFlightPerNode": 1, "workloadCooldown": "0s"}
    async with closed_loop(
        tmp_path, web, places={"web": ["node-0"] * 12}, load={"cpuThreshold": 10.0}
    ) as loop:
        await loop.until(lambda: len(loop.ready("web")) == 12, "all are Ready")
        loop.cluster.faults.inject(SlowStarts(factor=3.0))
        file = loop.configured(**given, schedule=ALWAYS)
        loop.when_evicted(lambda: loop.configured(**given, schedule=closed(loop)))
        async with loop.rebalancer(file, **given, schedule=ALWAYS) as health:
            plan: Json = {}

            async def waits() -> bool:
                answer = await fetch(f"{health}/debug/plan", output="json")
                plan.update(answer.json() if answer.is_success else {})
                notes = plan.get("notes", ())
                return any("put off: it waits for the schedule" in note for note in notes)

            await eventually(waits, "the plan says so", patience_s=PATIENCE_S)
            assert all("schedule of the configuration" in m["deferredBy"] for m in plan["moves"])
            await loop.settled()
            evicted = len(loop.witness.evicted)
            assert 1 <= evicted < 11
            await loop.cycles(health, 3)
            assert len(loop.witness.evicted) == evicted
            # What was under way has ended well.
            assert set(loop.outcomes()) == {"AsPlanned"}
            loop.configured(**given, schedule=ALWAYS)
            await loop.until(lambda: len(loop.witness.evicted) > evicted, "it goes on")
            loop.configured(**given, schedule=closed(loop))


HOT: Json = {"name": "hot", "nodeSelector": "tier=hot", "cpuThreshold": 10.0}
REST: Json = {"name": "rest", "nodeSelector": "", "cpuThreshold": 95.0}


def label(loop: Loop, kind: Resource, name: str, labels: Json) -> None:
    loop.store.patch(kind, name, {"metadata": {"labels": labels}})


def ruled(loop: Loop, *pools: Json) -> Path:
    """Return a file of which only pools act, and no pods of a calm namespace."""
    act = [{**pool, "modes": {CEILINGS: "act"}} for pool in pools]
    calm = {"selector": "team=calm", "modes": {CEILINGS: "observe"}}
    given: Json = {"maxInFlightPerNode": 1, "workloadCooldown": "0s"}
    return loop.configured(mode="observe", pools=act, namespaces=[calm], **given)


CHANGES: dict[str, Callable[[Loop], object]] = {
    "the pool is removed": lambda loop: ruled(loop, REST),
    "the last pool is removed": ruled,
    "the pools are reordered": lambda loop: ruled(loop, REST, HOT),
    "the node leaves the pool": lambda loop: label(loop, NODES, "node-0", {"tier": "cold"}),
    "the namespace observes": lambda loop: label(loop, NAMESPACES, "default", {"team": "calm"}),
    "the pool is renamed": lambda loop: ruled(loop, {**HOT, "name": "warm"}, REST),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_rules_that_change_while_moves_are_under_way(tmp_path: Path, change: str) -> None:
    """Eleven pods have to go, one after the other; the rules change with the first eviction."""
    web = build.deployment("web", 12, cpu="100m", usage_cpu="500m")
    nodes = [build.node(f"node-{n}", labels={"tier": "cold" if n else "hot"}) for n in range(3)]
    async with closed_loop(
        tmp_path, web, nodes=nodes, places={"web": ["node-0"] * 12}, load={"pools": [HOT, REST]}
    ) as loop:
        await loop.until(lambda: len(loop.ready("web")) == 12, "all are Ready")
        loop.when_evicted(lambda: CHANGES[change](loop))
        file = ruled(loop, HOT, REST)
        config = yaml.safe_load(file.read_text())
        async with loop.rebalancer(file, **config) as health:
            await loop.until(lambda: loop.witness.evicted, "the first pod has left")
            if change == "the pool is renamed":
                await loop.until(lambda: len(loop.witness.evicted) >= 3, "others follow")
                ruled(loop, REST)
            await loop.settled()
            await loop.cycles(health, 2)
            evicted = len(loop.witness.evicted)
            await loop.cycles(health, 2)
            assert len(loop.witness.evicted) == evicted < 8
            # What was under way has ended well, and the rest was not begun.
            assert len(loop.ready("web")) == 12
            assert loop.outcomes().count("AsPlanned") == evicted
