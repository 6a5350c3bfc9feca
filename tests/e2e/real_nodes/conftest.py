# SPDX-License-Identifier: Apache-2.0
"""Tests in this folder run on real kubelets; where the host cannot, a skip says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bench.stands.cluster import Cluster
from controlplane.cluster import ControlPlane
from controlplane.real_nodes import host
from tests.support.stands.control_plane import started
from tests.support.stands.real_nodes import NODES


@pytest.fixture(scope="session")
def real_plane(request: pytest.FixtureRequest) -> ControlPlane:
    """A control plane with three real nodes, for all tests of this folder."""
    if reason := host.obstacle():
        pytest.skip(reason)
    return started(request, real_nodes=len(NODES))


@pytest.fixture
async def cluster(real_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The cluster of real nodes with a fresh namespace."""
    mine = Cluster(real_plane, tmp_path)
    await mine.open()
    try:
        yield mine
    finally:
        await mine.clear()
