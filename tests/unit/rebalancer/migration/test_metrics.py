# SPDX-License-Identifier: Apache-2.0
"""The metrics of Migrations."""

from __future__ import annotations

import pytest

from common.api.migrations import Outcome
from common.cache.state import ClusterState
from common.cluster.interning import Interner
from common.cluster.migrations import migration_record
from common.metrics import Metrics
from rebalancer.migration.metrics import MigrationMetrics
from tests.support.worlds.migration_views import NOW_S
from tests.support.worlds.migrations import migration, spec_of


@pytest.mark.parametrize(("strategy", "label"), [("LoadBalancing",) * 2, ("Strange", "other")])
def test_strategies_of_strangers_make_no_new_series(strategy: str, label: str) -> None:
    metrics = Metrics("test")
    counts = MigrationMetrics(metrics, ClusterState())
    found = migration_record(migration(spec_of(strategy=strategy)), Interner())
    counts.ended(found, Outcome.AS_PLANNED, NOW_S)
    labels = {"outcome": "AsPlanned", "strategy": label}
    assert metrics.registry.get_sample_value("evenkeel_migrations_total", labels) == 1
