# SPDX-License-Identifier: Apache-2.0
"""Migrations on the wire: accepted by the definition, one for each pod, a failed one replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.api.migrations import MigrationSpec, NodeUse, Uses, read_prediction
from common.cache.state import ClusterState
from common.clock import SYSTEM
from common.config import RebalancerConfiguration
from common.kube.client import connect
from common.kube.resources import MIGRATIONS
from common.load import Belief
from common.metrics import Metrics
from rebalancer.launcher import spec_of
from rebalancer.store import CreateResult, MigrationStore
from simulator.api import DEFINITIONS
from tests.support.stands.simulated import SimulatedApi, simulated_api
from tests.support.worlds.loop import move_of
from tests.support.worlds.migrations import definition
from tests.support.worlds.planner import NOW_S, PlannerWorld

PREDICTED = Uses(source=NodeUse(cpu_percent=50.0, memory_percent=40.0))


@asynccontextmanager
async def written_to(folder: Path) -> AsyncIterator[tuple[SimulatedApi, MigrationStore]]:
    async with simulated_api(folder) as api:
        api.store.create(DEFINITIONS, definition())
        async with connect(kubeconfig=str(api.kubeconfig), clock=SYSTEM) as client:
            yield api, MigrationStore(client, ClusterState(), clock=SYSTEM, metrics=Metrics("test"))


def planned(**pod: Any) -> MigrationSpec:
    """Return what the loop would write about a pod."""
    world = PlannerWorld()
    world.node("n1")
    world.pod("p", "n1", 30.0, **pod)
    cluster = world.cluster()
    [uid] = cluster.snapshot.pods
    move = move_of("p", uid=uid, alternatives=("n3", "n4"), needs=("another",))
    belief = Belief(cluster.snapshot, cluster.load)
    spec = spec_of(move, "plan-7", belief, RebalancerConfiguration(), NOW_S)
    assert spec is not None
    return spec


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "none"])
async def test_what_is_planned_is_accepted(kind: str, tmp_path: Path) -> None:
    spec = planned(kind=kind)
    async with written_to(tmp_path) as (api, store):
        answer = await store.create(spec, PREDICTED)
        [made] = api.store.list(MIGRATIONS)
    assert answer.result is CreateResult.CREATED
    assert answer.record is not None
    assert answer.record.uid == made["metadata"]["uid"]
    assert answer.record.needs == ("another",)
    assert read_prediction(made["metadata"]["annotations"]) == PREDICTED


async def test_a_second_one_for_the_same_pod_is_fine_and_changes_nothing(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, store):
        first = await store.create(planned(), PREDICTED)
        second = await store.create(planned(), PREDICTED)
        [made] = api.store.list(MIGRATIONS)
    assert (second.result, second.record) == (CreateResult.EXISTS, None)
    assert first.record is not None
    assert first.record.uid == made["metadata"]["uid"]


async def test_a_failed_one_gives_way_to_the_next(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, store):
        first = await store.create(planned(), PREDICTED)
        second = await store.create(planned(), PREDICTED, first.record)
        [made] = api.store.list(MIGRATIONS)
    assert first.record is not None
    assert second.record is not None
    assert second.record.uid == made["metadata"]["uid"] != first.record.uid


async def test_a_stranger_in_its_place_is_left_alone(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, store):
        old = (await store.create(planned(), PREDICTED)).record
        new = (await store.create(planned(), PREDICTED, old)).record
        answer = await store.create(planned(), PREDICTED, old)
        [made] = api.store.list(MIGRATIONS)
    assert answer.result is CreateResult.EXISTS
    assert new is not None
    assert made["metadata"]["uid"] == new.uid


async def test_an_error_of_the_server_is_a_value(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, store):
        api.faults.add(verbs=["create"], status=500)
        assert (await store.create(planned(), PREDICTED)).result is CreateResult.FAILED
