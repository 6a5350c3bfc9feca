# SPDX-License-Identifier: Apache-2.0
"""What steps depend on: what must hold before they act, and through what they act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.kube.api import KubeApi
from rebalancer.migration.bare_pods import BarePods
from rebalancer.migration.eviction import ApiEviction, EvictionDriver
from rebalancer.migration.pod_marks import PodMarker
from rebalancer.migration.surge import Surge
from rebalancer.migration.temporary_pdb.controller import TemporaryPdbs
from rebalancer.pacing.policy import PacingPolicy
from rebalancer.refusals import Refusal


def _always_synced() -> str | None:
    return None


def _always_leads() -> bool:
    return True


def _may_drain(_: MigrationRecord, __: Snapshot) -> Refusal | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """What must hold before a step changes anything; asked again right before an eviction."""

    pacing: PacingPolicy
    is_leader: Callable[[], bool] = _always_leads
    why_not_synced: Callable[[], str | None] = _always_synced
    """Returns why the cache may not show the cluster as it is."""
    why_not_drained: Callable[[MigrationRecord, Snapshot], Refusal | None] = _may_drain
    """Returns why the pods of a node under maintenance may not leave yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuators:
    """Everything through which steps change pods and PodDisruptionBudgets."""

    client: KubeApi
    """Reads pods as they are now."""
    eviction: EvictionDriver
    marker: PodMarker
    temporary_pdbs: TemporaryPdbs
    bare_pods: BarePods
    surge: Surge

    @classmethod
    def of(cls, client: KubeApi, temporary_pdbs: TemporaryPdbs, bare_pods: BarePods) -> Actuators:
        """Return those that evict through the Eviction API."""
        return cls(
            client=client,
            eviction=ApiEviction(client),
            marker=PodMarker(client),
            temporary_pdbs=temporary_pdbs,
            bare_pods=bare_pods,
            surge=Surge(client),
        )
