"""What the migration controller asks of others.

All of them look at a `Scene`: one Migration and the cluster around it, at one moment. They
are asked again and again and must not mind: an answer is about now, an effect that is there
already is not made twice.
"""

from __future__ import annotations

from typing import Protocol

from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Verdict
from rebalancer.reasons import Refusal


class Steering(Protocol):
    """Knows limits, switches and gates, and what the extenders know."""

    def may_start(self, migration: MigrationRecord, scene: Scene) -> Refusal | None:
        """Return why the move may not begin or go on now.

        Asked before the first step and once more right before the eviction, when the
        Migration is InProgress already: it must never count against itself. A refusal for
        good fails the Migration, any other one lets it wait.
        """
        ...

    def acknowledged(self, resource_version: int, scheduler: str) -> Refusal | None:
        """Return which live extender does not know the Migrations up to this version yet."""
        ...

    def guided(self, replacement: PodRecord, scheduler: str, bound_s: float) -> bool:
        """Tell whether an extender was asked by that scheduler since the pod was created."""
        ...


class Guard(Protocol):
    """Protects a workload without a budget while its pods move."""

    async def protect(self, migration: MigrationRecord, scene: Scene) -> Verdict:
        """Make sure that the guard stands, if one is wanted; Proceed lets the eviction come."""
        ...

    async def release(self, migration: MigrationRecord, scene: Scene) -> Verdict:
        """Take the guard away unless another open Migration of the workload needs it.

        Asked after the Migration is closed, until it proceeds. Wait has it asked again.
        """
        ...


class Replacer(Protocol):
    """Makes the replacement of a pod that nobody else would replace."""

    async def replace(self, migration: MigrationRecord, scene: Scene) -> Verdict:
        """Create the copy named `replacement_name` if it is not there.

        Proceed once the copy exists: the machine notes it as the replacement when it has a
        node, and waits until it is Ready, before the original is evicted. Fail gives up.
        """
        ...

    async def roll_back(self, migration: MigrationRecord, scene: Scene) -> None:
        """Remove the copy of a Migration that failed before the eviction, if it is there."""
        ...
