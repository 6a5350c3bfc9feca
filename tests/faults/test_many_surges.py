# SPDX-License-Identifier: Apache-2.0
"""Hundreds of surges while requests fail, counts change and rollouts run: no gap, no leftover.

Pods are watched without a break: the only drops are those that the owner of a count asks for.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from common.api.contract import RANKED_BY
from common.kube.resources import DEPLOYMENTS, MIGRATIONS
from common.kube.timestamps import micro_time
from simulator import build
from simulator.api import Json
from tests.support.oracles.availability import Availability, replicas
from tests.support.stands.closed_loop import Loop, closed_loop, ending

SINGLES, LARGER, NODES = 15, 10, 6
# 20 waves are 500 moves, which take three minutes.
WAVES = int(os.environ.get("EVENKEEL_SURGE_WAVES", "5"))
MANY = (SINGLES + LARGER) * WAVES
WIDE: dict[str, Any] = {
    "surge": "Always",
    "maxReschedulePods": 10_000,
    "maxInFlightPerNode": 100,
    "maxInboundPerNode": 100,
    "workloadCooldown": "0s",
    "lineageCooldown": "0s",
    "reschedulingInterval": "60s",
    "usageInterval": "20s",
    # The clock goes on while a busy machine computes, and a deadline that it misses is no finding.
    "migrationDeadline": "10h",
    # What others change ends many moves here; whether that stops moves is tested elsewhere.
    "breaker": {"window": 1000, "minimum": 1000},
}
ENOUGH_S = 36_000.0
OTHERS_DID_IT = {"CountChanged", "RaiseReverted", "WorkloadChanged", "PodGone", "SurgeReverted"}


class Owners:
    """Those who own the counts, and change them and the templates at any moment."""

    def __init__(self, loop: Loop, counts: dict[str, int], seen: Availability) -> None:
        self._loop = loop
        self._seen = seen
        self.counts = counts
        self._rng = random.Random(7)
        self._version = 0

    def meddle(self, app: str, step: str, name: str) -> None:
        """Do something to an app as soon as a Migration has done a step."""
        act = self._rng.choice([self._rescale, self._roll_out])
        self._loop.when_done(name, step, lambda: act(app))

    def _rescale(self, app: str) -> None:
        # One more is what we raise to: that cannot be told apart (docs/migrations.md).
        count = max(1, self.counts[app] + self._rng.choice([-1, +2]))
        self.counts[app] = count
        self._seen.wanted[app] = min(self._seen.wanted[app], count)
        self._patch(app, {"replicas": count})

    def _roll_out(self, app: str) -> None:
        self._version += 1
        note = {"example.com/version": str(self._version)}
        self._patch(app, {"template": {"metadata": {"annotations": note}}})

    def _patch(self, app: str, spec: Json) -> None:
        self._loop.store.patch(DEPLOYMENTS, app, {"spec": spec}, namespace="default")


def app_of(number: int) -> Json:
    count = 1 if number < SINGLES else 3
    made = build.deployment(f"app-{number}", count, cpu="50m", usage_cpu="50m")
    made["spec"]["strategy"] = {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    return made


@pytest.mark.long(15)
async def test_hundreds_of_surges_leave_no_gap_and_no_replica_too_many(tmp_path: Path) -> None:
    apps = [app_of(number) for number in range(SINGLES + LARGER)]
    counts = {each["metadata"]["name"]: each["spec"]["replicas"] for each in apps}
    seldom: dict[str, Any] = {"usageInterval": "20s"}
    async with closed_loop(tmp_path, *apps, nodes=NODES, load=seldom) as loop:
        await loop.until(lambda: len(loop.ready()) == sum(counts.values()), "all pods run")
        seen = Availability(loop.store, dict(counts))
        owners = Owners(loop, counts, seen)
        add = loop.cluster.server.faults.add
        faults = {
            "writes": add(verbs=["create", "patch", "update"], status=500, probability=0.1),
            "reads": add(verbs=["get"], status=500, probability=0.1),
            "lost scales": add(resources=["deployments/scale"], loses=True, probability=0.1),
            "lost writes": add(verbs=["patch", "delete"], loses=True, probability=0.02),
        }
        async with loop.rebalancer(**WIDE):
            for wave in range(WAVES):
                await surge_each(loop, owners, wave)
            for fault in faults.values():
                fault.times = 0
            await loop.until(lambda: at_rest(loop, counts), "every count is its owner's")
    endings = Counter(ending(each) for each in loop.migrations())
    print({name: fault.hits for name, fault in faults.items()}, dict(endings), len(seen.gaps))
    assert seen.gaps == []
    assert {app: replicas(loop, app) for app in counts} == counts
    assert loop.witness.evicted == []
    assert 0.9 * MANY <= sum(endings.values()) <= MANY
    calm = MANY - sum(endings[reason] for reason in OTHERS_DID_IT)
    assert endings["AsPlanned"] >= 0.95 * calm
    assert not any(RANKED_BY in (p["metadata"].get("annotations") or {}) for p in loop.pods())


async def surge_each(loop: Loop, owners: Owners, wave: int) -> None:
    """Move one pod of each app by surge, and change some of the apps meanwhile."""
    counts = owners.counts
    await loop.until(lambda: at_rest(loop, counts), "all apps are at rest")
    owners._seen.wanted.update(counts)
    names: list[str] = []
    moved = {each["metadata"]["name"] for each in loop.migrations()}
    for number, app in enumerate(sorted(counts)):
        fresh = [pod for pod in loop.ready(app) if pod["metadata"]["uid"] not in moved]
        # A pod that a move failed for has its Migration for as long as that is kept.
        pod = fresh[0] if fresh else loop.ready(app)[0]
        if not fresh:
            loop.store.delete(MIGRATIONS, pod["metadata"]["uid"])
        spec = {"planId": f"wave-{wave}", "deadline": micro_time(loop.clock.now() + ENOUGH_S)}
        name = loop.plan(pod, target_of(pod), surge=True, **spec)
        if number % 5 == wave % 5 and counts[app] > 1:
            owners.meddle(app, ("Raised", "Replaced", "Ready", "Ranked")[wave % 4], name)
        names.append(name)
    await loop.until_ended(*names)


def at_rest(loop: Loop, counts: dict[str, int]) -> bool:
    found = Counter(pod["metadata"]["labels"]["app"] for pod in loop.pods())
    ready = Counter(pod["metadata"]["labels"]["app"] for pod in loop.ready())
    return found == ready == Counter(counts)


def target_of(pod: Json) -> str:
    here = int(pod["spec"]["nodeName"].rpartition("-")[2])
    return f"node-{(here + 1) % NODES}"
