"""What the migration controller asks of others.

All of them look at a `Scene`: one Migration and the cluster around it, at one moment. They
are asked again and again and must not mind: an answer is about now, an effect that is there
already is not made twice.
"""

from __future__ import annotations

from typing import Protocol

from common.cluster.migrations import MigrationRecord
from common.cluster.records import PodRecord
from rebalancer.extenders import Asked
from rebalancer.migration.eviction import Stopped
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Verdict
from rebalancer.reasons import Refusal


class Steering(Protocol):
    """Knows limits, switches and gates, and what the extenders know."""

    def may_start(
        self, migration: MigrationRecord, scene: Scene, besides: Refusal | None = None
    ) -> Refusal | None:
        """Return why the move may not begin or go on now.

        Asked before the first step and once more right before the eviction, when the
        Migration is InProgress already: it must never count against itself. A refusal for
        good fails the Migration, any other one lets it wait. `besides` is what the asker
        knows against it: whoever is refused, by whom ever, keeps no place in any limit.
        """
        ...

    def stopped(self, migration: MigrationRecord) -> Refusal | None:
        """Return by which switch somebody has stopped the move, now; quick to answer."""
        ...

    def acknowledged(self, resource_version: int, scheduler: str) -> Refusal | None:
        """Return which live extender does not know the Migrations up to this version yet."""
        ...

    def asked(self, replacement: PodRecord, bound_s: float) -> Asked:
        """Tell whether an extender was asked about the pod before it was bound."""
        ...

    def trying(self, migration: MigrationRecord) -> str:
        """Return what is said of a move that tries whether moving is well again, else nothing."""
        ...

    def needs_the_past(self, migration: MigrationRecord) -> bool:
        """Tell whether a finished Migration must stay though its time is over."""
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

    async def replace(self, migration: MigrationRecord, scene: Scene, stopped: Stopped) -> Verdict:
        """Create the copy named `replacement_name` if it is not there, unless it is `stopped`.

        Proceed once the copy exists: the machine notes it as the replacement when it has a
        node, and waits until it is Ready, before the original is evicted. Fail gives up.
        """
        ...

    async def roll_back(self, migration: MigrationRecord, scene: Scene) -> None:
        """Remove the copy of a Migration that failed before the eviction, if it is there."""
        ...
