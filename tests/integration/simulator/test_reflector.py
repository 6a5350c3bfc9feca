# SPDX-License-Identifier: Apache-2.0
"""Our reflector works against the simulator, through everything a server does to it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from common.api.objects import Pod
from common.clock import SYSTEM
from common.config import Duration, Reading
from common.kube.client import connect
from common.kube.reflector import ListWatch, Reflector
from common.kube.resources import PODS
from common.metrics import Metrics
from simulator import build
from simulator.api import DeleteOptions
from tests.support.stands.simulated import SimulatedApi, simulated_api

READING = Reading(page_size=3, backoff_min=Duration(0.01), backoff_max=Duration(0.05))
AT_ONCE = DeleteOptions(grace_s=0)


class Shelf:
    """A sink that remembers names and versions."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.changed = asyncio.Condition()

    def upsert(self, obj: Pod) -> None:
        self.held[_key(obj)] = obj.metadata.resource_version
        self._notify()

    def delete(self, obj: Pod) -> None:
        self.held.pop(_key(obj), None)
        self._notify()

    def keys(self) -> Iterable[str]:
        return list(self.held)

    def forget(self, key: str) -> None:
        self.held.pop(key, None)
        self._notify()

    def _notify(self) -> None:
        self._task = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(true)


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[SimulatedApi]:
    async with simulated_api(tmp_path, bookmark_every_s=0.1) as running:
        yield running


@asynccontextmanager
async def reflecting(
    api: SimulatedApi, field_selector: str = ""
) -> AsyncIterator[tuple[Shelf, Reflector[Pod]]]:
    shelf = Shelf()
    async with connect(kubeconfig=str(api.kubeconfig), clock=SYSTEM, qps=1000, burst=1000) as kube:
        reflector = Reflector(
            kube,
            ListWatch(PODS, Pod, field_selector=field_selector),
            shelf,
            reading=READING,
            clock=SYSTEM,
            metrics=Metrics("test"),
            rng=random.Random(1),
        )
        task = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(20):
                await reflector.wait_synced()
            yield shelf, reflector
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _versions(api: SimulatedApi) -> dict[str, str]:
    return {
        f"default/{pod['metadata']['name']}": pod["metadata"]["resourceVersion"]
        for pod in api.store.list(PODS)
    }


async def test_follows_a_cluster_through_pages_and_changes(api: SimulatedApi) -> None:
    for index in range(10):
        api.store.create(PODS, build.pod(f"pod-{index}"))
    async with reflecting(api) as (shelf, _):
        assert shelf.held == _versions(api)
        api.store.create(PODS, build.pod("late"))
        api.store.patch(PODS, "pod-1", {"metadata": {"labels": {"x": "1"}}}, namespace="default")
        api.store.delete(PODS, "pod-2", namespace="default", options=AT_ONCE)
        await shelf.until(lambda: shelf.held == _versions(api))


async def test_resumes_after_dropped_watches(api: SimulatedApi) -> None:
    async with reflecting(api) as (shelf, _):
        lists = api.faults.add(verbs=["list"])
        for index in range(5):
            while not api.faults.drop_watches("pods"):
                await SYSTEM.sleep(0.005)
            api.store.create(PODS, build.pod(f"pod-{index}"))
            await shelf.until(lambda: shelf.held == _versions(api))
        assert lists.hits == 0, "it listed again although it could have resumed"


async def test_lists_again_after_compaction(api: SimulatedApi) -> None:
    api.store.create(PODS, build.pod("old"))
    async with reflecting(api) as (shelf, _):
        api.faults.add(verbs=["watch"], status=500, times=2)
        while not api.faults.drop_watches("pods"):
            await SYSTEM.sleep(0.005)
        api.store.delete(PODS, "old", namespace="default", options=AT_ONCE)
        api.store.create(PODS, build.pod("new"))
        api.store.storage.compact()
        await shelf.until(lambda: shelf.held == _versions(api))


async def test_gets_through_refusals(api: SimulatedApi) -> None:
    for index in range(7):
        api.store.create(PODS, build.pod(f"pod-{index}"))
    api.faults.add(status=500, times=2)
    async with reflecting(api) as (shelf, _):
        assert shelf.held == _versions(api)


async def test_bookmarks_move_the_version_of_a_quiet_watch(api: SimulatedApi) -> None:
    async with reflecting(api, "spec.nodeName=here") as (shelf, reflector):
        api.store.create(PODS, build.pod("elsewhere", node="there"))
        target = api.store.resource_version
        async with asyncio.timeout(20):
            while (reflector.resource_version or 0) < target:
                await SYSTEM.sleep(0.01)
        assert shelf.held == {}
