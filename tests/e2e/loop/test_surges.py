# SPDX-License-Identifier: Apache-2.0
"""Nodes are emptied one after another by surge, whatever happens meanwhile.

Counts change, rollouts run, the program crashes, and a tenth of what it asks the API server
fails, half of the writes after they took effect. Ready replicas are counted after every single
event of the pods' watch, on a real control plane. The same without surge stands beside it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.stands.cluster import Cluster
from bench.stands.episode import OPEN, migrations_of, nothing_open, phase_of
from bench.stands.extender_process import extender_running, install, use_extender
from bench.stands.faulty_api import faulty_api
from bench.stands.real_scenario import Pods, app_of, ending, is_ready, node_of, watched
from bench.stands.rebalancer_process import (
    LOAD,
    QUICK,
    ROLES,
    USER,
    rebalancer_as,
    rebalancer_with,
)
from common.api.contract import DELETION_COST, DRAINED_CONDITION
from simulator import build
from tests.support.stands.control_plane import Say

pytestmark = pytest.mark.real

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

NODES, APPS = 6, 20
SETTINGS: Json = {
    **QUICK,
    **LOAD,
    "usageSource": "requests",
    "enabledStrategies": ["NodeMaintenance"],
    "lineageCooldown": "0s",
    "workloadCooldown": "0s",
    # What others change ends many moves here; whether that stops moves is tested elsewhere.
    "breaker": {"window": 1000, "minimum": 1000},
}
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With all seeds it goes on until 500 pods have moved."""
    if "moves" in metafunc.fixturenames:
        metafunc.parametrize("moves", [500 if metafunc.config.getoption("--all-seeds") else 25])


class Gaps:
    """How many replicas of each app were missing at most, by what its owner wants."""

    def __init__(self, pods: Pods, wanted: Mapping[str, int]) -> None:
        self.pods = pods
        self.wanted = dict(wanted)
        self.found: set[tuple[str, int]] = set()

    def look(self) -> None:
        ready = Counter(app_of(p) for p in self.pods.now.values() if is_ready(p) and not ending(p))
        for app, count in self.wanted.items():
            if ready[app] < count:
                self.found.add((app, count - ready[app]))

    @property
    def at_rest(self) -> bool:
        there = Counter(app_of(pod) for pod in self.pods.now.values())
        return self.pods.settled and there == Counter(self.wanted)


class Owners:
    """Those who own the counts, and change them and the templates at any moment."""

    def __init__(self, cluster: Cluster, gaps: Gaps) -> None:
        self._cluster = cluster
        self._gaps = gaps
        self._rng = random.Random(7)
        self.did: Counter[str] = Counter()

    async def meddle(self) -> None:
        app = self._rng.choice(sorted(self._gaps.wanted))
        act = self._rng.choice([self._rescale, self._roll_out])
        self.did[act.__name__] += 1
        await act(app)

    async def _rescale(self, app: str) -> None:
        """Set another count, as an autoscaler does."""
        old = self._gaps.wanted[app]
        # One more is what we raise to: that cannot be told apart (docs/migrations.md).
        count = old - 1 if old > 3 else old + 2
        self._gaps.wanted[app] = min(old, count)
        await self._cluster.kubectl("scale", f"deployment/{app}", f"--replicas={count}")
        await self._cluster.wait(lambda: self._ready(app) == count, 120.0, f"{app} has {count}")
        self._gaps.wanted[app] = count

    async def _roll_out(self, app: str) -> None:
        await self._cluster.kubectl("rollout", "restart", f"deployment/{app}")
        await self._cluster.kubectl("rollout", "status", f"deployment/{app}", "--timeout=120s")

    def _ready(self, app: str) -> int:
        pods = self._gaps.pods.now.values()
        return sum(app_of(p) == app and is_ready(p) and not ending(p) for p in pods)


async def test_nodes_are_emptied_without_a_gap_whatever_happens_meanwhile(
    cluster: Cluster, tmp_path: Path, say: Say, moves: int
) -> None:
    async with extender_running(
        cluster, tmp_path, settings={**LOAD, "usageSource": "requests"}
    ) as e:
        await install(cluster)
        nodes = await cluster.add_nodes(NODES)
        # More moves take more apps, not only more time.
        apps = [_app(cluster, number) for number in range(max(APPS, moves // 6))]
        await cluster.create(apps)
        await use_extender(cluster, e.url)
        async with watched(cluster) as pods:
            wanted = {str(a["metadata"]["name"]): int(a["spec"]["replicas"]) for a in apps}
            gaps = Gaps(pods, wanted)
            await cluster.wait(lambda: gaps.at_rest, 90.0, "all pods run")
            pods.checks.append(gaps.look)
            owners = Owners(cluster, gaps)
            await cluster.bind(USER, *ROLES)
            async with faulty_api(await cluster.kubeconfig_of(user=USER)) as (kubeconfig, faults):
                emptying = Emptying(cluster, tmp_path, kubeconfig, gaps, owners)
                crashes = await emptying.in_turn(nodes, moves)
            outcomes = await _outcomes(cluster)
            say(f"{sum(outcomes.values())} moves, {dict(outcomes)}, while {dict(owners.did)}, "
                f"{crashes} crashes and {dict(faults.did)} requests; "
                f"gaps: {sorted(gaps.found)}")  # fmt: skip
            assert faults.did["refused"] > 0
            assert faults.did["lost"] > 0
            assert gaps.found == set()
            assert {surge for _, surge in await _moved(cluster)} == {True}
            assert outcomes["AsPlanned"] >= 0.5 * moves
            await _nothing_is_left(cluster, gaps)

            gaps.found.clear()
            settings = {**SETTINGS, "surge": "Never", "singleReplica": "allow"}
            async with rebalancer_with(cluster, tmp_path, ROLES, settings=settings, name="never"):
                singles = [pod for pod in pods.now.values() if wanted[app_of(pod)] == 1]
                await _emptied(cluster, node_of(singles[0]))
            await cluster.wait(lambda: gaps.at_rest, 90.0, "all replacements run")
            say(f"without surge, one node: {len(gaps.found)} apps had a gap")
            assert gaps.found != set()


def _app(cluster: Cluster, number: int) -> Json:
    count = 1 if number % 5 < 3 else 3
    made = build.deployment(
        f"app-{number}", count, namespace=cluster.namespace, cpu="50m", usage_cpu="50m"
    )
    made["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return made


@dataclass(frozen=True, slots=True)
class Emptying:
    """Nodes that are emptied while others change things."""

    cluster: Cluster
    folder: Path
    kubeconfig: Path
    gaps: Gaps
    owners: Owners

    async def in_turn(self, nodes: list[str], moves: int) -> int:
        """Empty nodes until enough pods have moved; return how often the program was killed."""
        wave = 0
        while sum((await _outcomes(self.cluster)).values()) < moves:
            async with self._crashing(f"wave-{wave}", crash=wave % 2 == 0):
                meddling = asyncio.create_task(self._meddled())
                try:
                    await _emptied(self.cluster, nodes[wave % NODES])
                finally:
                    await meddling
            await self.cluster.wait(lambda: self.gaps.at_rest, 120.0, "every count is its owner's")
            wave += 1
        return (wave + 1) // 2

    async def _meddled(self) -> None:
        for _ in range(3):
            await self.owners.meddle()

    @asynccontextmanager
    async def _crashing(self, name: str, *, crash: bool) -> AsyncIterator[None]:
        """Run the program, kill it in the middle if wanted, and start it again."""
        settings = {**SETTINGS, "surge": "Always"}
        start = partial(rebalancer_as, self.kubeconfig, self.folder, settings=settings)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(start(name=name))
            await first.announced()

            async def crashed() -> None:
                await self.cluster.wait(lambda: _some_raised(self.cluster), 90.0, "a raised count")
                await first.kill()
                await stack.enter_async_context(start(name=f"{name}-again"))

            later = asyncio.create_task(crashed()) if crash else None
            try:
                yield
            finally:
                if later is not None:
                    await later


async def _some_raised(cluster: Cluster) -> bool:
    return any(map(_is_raised, await migrations_of(cluster)))


def _is_raised(migration: Json) -> bool:
    done = {each["type"] for each in migration.get("status", {}).get("conditions", ())}
    return "Raised" in done and "Evicted" not in done


async def _emptied(cluster: Cluster, node: str) -> None:
    await cluster.maintain(node, on=True)
    wait = (f"--for=condition={DRAINED_CONDITION}", f"node/{node}", "--timeout=240s")
    await cluster.kubectl("wait", *wait)
    await cluster.maintain(node, on=False)
    await cluster.wait(lambda: nothing_open(cluster), 90.0, "no move is under way")


async def _nothing_is_left(cluster: Cluster, gaps: Gaps) -> None:
    """Every count is its owner's, and no pod carries a deletion cost of ours."""
    api = cluster.control_plane.api
    found = (await asyncio.to_thread(api.get, DEPLOYMENTS.format(cluster.namespace)))["items"]
    assert {d["metadata"]["name"]: d["spec"]["replicas"] for d in found} == gaps.wanted
    notes = [pod["metadata"].get("annotations", {}) for pod in gaps.pods.now.values()]
    assert not any(DELETION_COST in each for each in notes)


async def _moved(cluster: Cluster) -> list[tuple[str, bool]]:
    """Return the apps of all moves, and whether each was a surge."""
    specs = [each["spec"] for each in await migrations_of(cluster)]
    return [(spec["workload"]["name"], spec.get("surge", False)) for spec in specs]


async def _outcomes(cluster: Cluster) -> Counter[str]:
    ended = [m["status"] for m in await migrations_of(cluster) if phase_of(m) not in OPEN]
    return Counter(str(each.get("outcome") or each.get("reason")) for each in ended)
