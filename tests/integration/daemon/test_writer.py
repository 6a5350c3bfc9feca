"""Migrations on the wire: accepted by the definition, one for each pod, a failed one replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from common.clock import SYSTEM
from common.cluster.migrations import MigrationSpec, NodeUse, Uses, read_prediction
from common.config import RebalancerConfiguration
from common.kube.client import connect
from common.kube.resources import MIGRATIONS
from common.metrics import Metrics
from common.observer import Belief
from rebalancer.writing import MigrationWriter, Written, spec_of
from simulator.api import DEFINITIONS
from tests.support.daemon_parts import move_of
from tests.support.migrations import definition
from tests.support.planner_world import NOW_S, PlannerWorld
from tests.support.simulated_stand import SimulatedApi, simulated_api

PREDICTED = Uses(source=NodeUse(cpu_percent=50.0, memory_percent=40.0))


@asynccontextmanager
async def written_to(folder: Path) -> AsyncIterator[tuple[SimulatedApi, MigrationWriter]]:
    async with simulated_api(folder) as api:
        api.store.create(DEFINITIONS, definition())
        async with connect(kubeconfig=str(api.kubeconfig), clock=SYSTEM) as client:
            yield api, MigrationWriter(client, Metrics("test"))


def planned(**pod: Any) -> MigrationSpec:
    """Return what the daemon would write about a pod."""
    world = PlannerWorld()
    world.node("n1")
    world.pod("p", "n1", 30.0, **pod)
    look = world.look()
    [uid] = look.snapshot.pods
    move = move_of("p", uid=uid, alternatives=("n3", "n4"), needs=("another",))
    belief = Belief(look.snapshot, look.load)
    spec = spec_of(move, "plan-7", belief, RebalancerConfiguration(), NOW_S)
    assert spec is not None
    return spec


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "none"])
async def test_what_is_planned_is_accepted(kind: str, tmp_path: Path) -> None:
    spec = planned(kind=kind)
    async with written_to(tmp_path) as (api, writer):
        answer = await writer.write(spec, PREDICTED)
        [made] = api.store.list(MIGRATIONS)
    assert answer.result is Written.CREATED
    assert answer.record is not None
    assert answer.record.uid == made["metadata"]["uid"]
    assert answer.record.needs == ("another",)
    assert read_prediction(made["metadata"]["annotations"]) == PREDICTED


async def test_a_second_one_for_the_same_pod_is_fine_and_changes_nothing(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, writer):
        first = await writer.write(planned(), PREDICTED)
        second = await writer.write(planned(), PREDICTED)
        [made] = api.store.list(MIGRATIONS)
    assert (second.result, second.record) == (Written.EXISTS, None)
    assert first.record is not None
    assert first.record.uid == made["metadata"]["uid"]


async def test_a_failed_one_gives_way_to_the_next(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, writer):
        first = await writer.write(planned(), PREDICTED)
        second = await writer.write(planned(), PREDICTED, first.record)
        [made] = api.store.list(MIGRATIONS)
    assert first.record is not None
    assert second.record is not None
    assert second.record.uid == made["metadata"]["uid"] != first.record.uid


async def test_a_stranger_in_its_place_is_left_alone(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, writer):
        old = (await writer.write(planned(), PREDICTED)).record
        new = (await writer.write(planned(), PREDICTED, old)).record
        answer = await writer.write(planned(), PREDICTED, old)
        [made] = api.store.list(MIGRATIONS)
    assert answer.result is Written.EXISTS
    assert new is not None
    assert made["metadata"]["uid"] == new.uid


async def test_an_error_of_the_server_is_a_value(tmp_path: Path) -> None:
    async with written_to(tmp_path) as (api, writer):
        api.faults.add(verbs=["create"], status=500)
        assert (await writer.write(planned(), PREDICTED)).result is Written.FAILED
