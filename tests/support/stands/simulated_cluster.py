# SPDX-License-Identifier: Apache-2.0
"""A small living cluster for a test, and ways to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from common.clock import SYSTEM, Clock
from common.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
)
from common.kube.timestamps import parse_time
from simulator import build
from simulator.api import Change, Json, is_ready
from simulator.build import Manifest
from simulator.cluster import Settings, SimulatedCluster, simulate
from tests.support.clock import FakeClock

KINDS = (DEPLOYMENTS, EVENTS, NODES, PDBS, PODS, REPLICASETS, STATEFULSETS)
SPEED = 50.0
LONG_S = 30.0


@asynccontextmanager
async def cluster_of(
    nodes: int | Iterable[Manifest] = 3,
    *manifests: Manifest,
    clock: Clock = SYSTEM,
    seed: int = 1,
    speed: float = SPEED,
    **settings: Any,
) -> AsyncIterator[SimulatedCluster]:
    """Run a cluster with nodes and objects; on the real clock it is fast."""
    made = nodes
    if isinstance(made, int):
        made = [build.node(f"node-{number}", zone="abc"[number % 3]) for number in range(made)]
    first = [*made, *manifests]
    chosen = Settings(seed=seed, speed=speed, **settings)
    async with simulate(chosen, clock=clock, build=lambda c: void(c.create(first))) as cluster:
        yield cluster


async def until(cluster: SimulatedCluster, done: Callable[[], Any], what: str = "") -> None:
    """Wait until something holds, looking whenever an object changes."""
    changed = asyncio.Event()
    stops = [cluster.store.subscribe(kind, lambda _: changed.set()) for kind in KINDS]
    try:
        async with asyncio.timeout(LONG_S):
            while not done():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        raise AssertionError(f"not within {LONG_S:g} s: {what or 'what was waited for'}") from None
    finally:
        for stop in stops:
            stop()


async def pass_time(clock: FakeClock, seconds: float, *, step_s: float = 0.5) -> None:
    """Let time pass in steps small enough for everybody to react in between."""
    for _ in range(round(seconds / step_s)):
        await clock.advance(step_s)


def pods_of(cluster: SimulatedCluster, app: str, namespace: str = "default") -> list[Json]:
    """Return the pods of an app that are not ending."""
    return [
        pod
        for pod in cluster.pods(namespace)
        if pod["metadata"]["labels"].get("app") == app
        and "deletionTimestamp" not in pod["metadata"]
    ]


def ready(cluster: SimulatedCluster, app: str) -> list[Json]:
    """Return the pods of an app that are ready."""
    return [pod for pod in pods_of(cluster, app) if is_ready(pod)]


def condition(pod: Json, type_: str) -> Json:
    """Return a condition of a pod; an empty one if it has none."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == type_), {})


def events(cluster: SimulatedCluster, reason: str) -> list[Json]:
    """Return the events with a reason."""
    return [event for event in cluster.store.list(EVENTS) if event["reason"] == reason]


class History:
    """Remembers changes of pods, for what is over when a test looks."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.changes: list[Change] = []
        cluster.store.subscribe(PODS, self.changes.append)


def void(_: object) -> None:
    """Drop a value."""


def measured_pods(cluster: SimulatedCluster) -> list[Json]:
    """Return the PodMetrics that tell what pods use.

    Stamps have whole seconds: a sample of the second in which a pod started tells nothing of it.
    """
    pods = {(_name(pod), _namespace(pod)): pod for pod in cluster.store.list(PODS)}

    def tells(found: Json) -> bool:
        pod = pods.get((_name(found), _namespace(found)))
        start = None if pod is None else pod.get("status", {}).get("startTime")
        return start is not None and parse_time(found["timestamp"]) > parse_time(start) + 1

    return [found for found in cluster.metrics.pod_metrics() if tells(found)]


def _name(obj: Json) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Json) -> str:
    return str(obj["metadata"]["namespace"])
