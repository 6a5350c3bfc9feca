# SPDX-License-Identifier: Apache-2.0
"""Without the Migration CRD nothing is moved, and the command that installs it is said."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from common.cache.reader import CACHED_KINDS, MIGRATION_KIND, VPA_KIND, ClusterReader
from common.cli import StartError
from common.clock import SYSTEM
from common.config import RebalancerConfiguration
from common.kube.client import connect
from common.kube.resources import NODES
from common.metrics import Metrics
from rebalancer.main import RebalancerOptions, run
from simulator.api import DEFINITIONS
from simulator.faults import ServerError
from tests.support.stands.extender import eventually
from tests.support.stands.simulated_cluster import cluster_of
from tests.support.worlds.migrations import definition

QUICK = {"reading": {"backoffMin": "10ms", "backoffMax": "50ms"}}
INSTALL = "the Migration CRD is not installed: run kubectl apply --server-side -k deploy/crds"


async def test_the_rebalancer_does_not_start_without_it_and_says_how_to_install_it(
    tmp_path: Path,
) -> None:
    async with cluster_of(1) as cluster:
        options = RebalancerOptions(
            kubeconfig=str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        )
        with pytest.raises(StartError) as refusal:
            await run(RebalancerConfiguration(), options, clock=SYSTEM, announce=lambda **_: None)
    assert str(refusal.value) == INSTALL


async def test_a_right_that_is_missing_is_no_missing_crd(tmp_path: Path) -> None:
    async with cluster_of(1, definition()) as cluster:
        cluster.faults.inject(ServerError(status=403, resources=("migrations",)))
        options = RebalancerOptions(
            kubeconfig=str(cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        )
        with pytest.raises(StartError, match=r"^cannot read Migrations: ") as refusal:
            await run(RebalancerConfiguration(), options, clock=SYSTEM, announce=lambda **_: None)
    assert "CRD" not in str(refusal.value)


async def test_a_crd_that_is_deleted_stops_everything_at_once_until_it_is_there_again(
    tmp_path: Path,
) -> None:
    config = RebalancerConfiguration.model_validate(QUICK)
    nodes = next(reading for reading in CACHED_KINDS if reading.resource == NODES)
    async with (
        cluster_of(1, definition()) as cluster,
        connect(
            kubeconfig=str(cluster.write_kubeconfig(tmp_path / "kubeconfig")), clock=SYSTEM
        ) as client,
    ):
        reader = ClusterReader(
            client,
            reading=config.reading,
            clock=SYSTEM,
            metrics=Metrics("rebalancer"),
            kinds=(nodes, replace(MIGRATION_KIND, optional=False)),
        )
        reading = asyncio.create_task(reader.run())
        try:
            await reader.wait_synced()
            assert reader.why_not_synced() is None
            cluster.store.delete(DEFINITIONS, "migrations.evenkeel.io")
            # What is not synced keeps the migration controller from every step.
            await eventually(reader.why_not_synced, "it notices")
            assert reader.why_not_synced() == f"waiting for migrations ({INSTALL})"
            assert reader.why_not_steered() is None, "what is needed is not spared"
            cluster.create([definition()])
            await eventually(lambda: reader.why_not_synced() is None, "it is read again")
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("status", [404, 403])
async def test_autoscalers_that_cannot_be_read_stop_nothing(status: int, tmp_path: Path) -> None:
    """Most clusters have no VPA, and an older role may not read it."""
    config = RebalancerConfiguration.model_validate(QUICK)
    nodes = next(reading for reading in CACHED_KINDS if reading.resource == NODES)
    async with (
        cluster_of(1) as cluster,
        connect(
            kubeconfig=str(cluster.write_kubeconfig(tmp_path / "kubeconfig")), clock=SYSTEM
        ) as client,
    ):
        cluster.faults.inject(
            ServerError(status=status, verbs=("list",), resources=("verticalpodautoscalers",))
        )
        reader = ClusterReader(
            client,
            reading=config.reading,
            clock=SYSTEM,
            metrics=Metrics("rebalancer"),
            kinds=(nodes, VPA_KIND),
        )
        reading = asyncio.create_task(reader.run())
        try:
            await reader.wait_synced()
            absent = reader.reflector_of(VPA_KIND.resource)
            await eventually(lambda: absent.absent, "it notices")
            assert reader.why_not_synced() is None
            assert reader.why_not_steered() is None
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
