# SPDX-License-Identifier: Apache-2.0
"""What a move was expected to do to its nodes, and what it did.

A finished Migration is verified once both of its nodes have samples that are newer than its
end and need not be corrected by its own pods, and no other move is under way from or to them.
Where that takes too long, because one move follows another, nothing can be learned from it:
it is counted and given up. The prediction is kept in the Migration itself, so a new leader
goes on where the old one stopped. Nothing depends on the result: it can be read in the
metrics, in the status of the Migration and in an Event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec
import structlog

from common.api.migrations import NodeUse, Outcome, Phase, Uses
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.cluster.records import NodeName
from common.kube.errors import KubeError, NotFound
from common.load import Change, LoadView, NodeLoad
from common.metrics import Metrics
from common.null_json import UNDECODABLE
from common.observer import Observer
from rebalancer.events import EventRecorder, MigrationEvents
from rebalancer.projection import nodes_of
from rebalancer.store import MigrationStore

log: structlog.stdlib.BoundLogger = structlog.get_logger()

BUCKETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0)
"""Points of utilization."""
CHECK_EVERY_S: Final = 5.0


def due(
    migrations: Iterable[MigrationRecord], load: LoadView, *, done: Collection[str]
) -> list[MigrationRecord]:
    """Return the finished Migrations whose nodes show by now what the moves did."""
    known = list(migrations)
    # Another move of the same nodes would be measured too, and blamed on this one.
    moving = nodes_of(migration for migration in known if migration.open)
    return [
        migration
        for migration in known
        if _ended_well(migration)
        and migration.uid not in done
        and moving.isdisjoint((migration.source, migration.target))
        and all(_measured_since(migration, load.nodes.get(n)) for n in _nodes(migration))
    ]


def overdue(migration: MigrationRecord, *, now_s: float, patience_s: float) -> bool:
    """Tell whether a Migration ended too long ago: its nodes show something else by now."""
    return migration.finished_s is not None and now_s - migration.finished_s > patience_s


def actual_use(migration: MigrationRecord, load: LoadView) -> Uses:
    """Return what both nodes use now."""
    return Uses(
        source=_use(load.nodes[migration.source]), target=_use(load.nodes[migration.target])
    )


def errors(predicted: Uses, actual: Uses) -> Iterator[tuple[str, str, float]]:
    """Yield (node, resource, points) of each figure that was predicted."""
    pairs = (
        ("source", predicted.source, actual.source),
        ("target", predicted.target, actual.target),
    )
    for node, expected, found in pairs:
        if expected is not None and found is not None:
            yield node, "cpu", abs(found.cpu_percent - expected.cpu_percent)
            yield node, "memory", abs(found.memory_percent - expected.memory_percent)


def _ended_well(migration: MigrationRecord) -> bool:
    """Tell whether a pod was replaced; of any other move nothing was predicted."""
    return migration.phase == Phase.COMPLETED and migration.outcome != Outcome.NOT_REPLACED


def _nodes(migration: MigrationRecord) -> tuple[NodeName, NodeName]:
    return migration.source, migration.target


def _measured_since(migration: MigrationRecord, load: NodeLoad | None) -> bool:
    if load is None or not load.known or migration.finished_s is None:
        return False
    if load.sample_end_s is not None and load.sample_end_s <= migration.finished_s:
        return False
    # What is corrected by the pod's own share is what was predicted, and not a measurement.
    moved = {migration.pod_uid, migration.replacement_uid}
    corrected = (each for each in load.differences if each.change is not Change.LEAVING)
    return moved.isdisjoint(each.uid for each in corrected)


def _use(load: NodeLoad) -> NodeUse:
    """Return what was predicted: the load without pods that are still terminating."""
    return NodeUse(
        cpu_percent=round(load.settled_cpu_percent, 2),
        memory_percent=round(load.settled_mem_percent, 2),
    )


class MoveVerifier:
    """Compares finished moves with their prediction; a failure here stops nothing else."""

    def __init__(
        self,
        observer: Observer,
        store: MigrationStore,
        *,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        patience_s: float,
        every_s: float = CHECK_EVERY_S,
    ) -> None:
        """Check every `every_s`; a Migration that ended `patience_s` ago is given up."""
        self._observer = observer
        self._store = store
        self._events = MigrationEvents(recorder)
        self._clock = clock
        self._patience_s = patience_s
        self._every_s = every_s
        self._done: set[str] = set()
        self._began_s = clock.now()
        self._errors = metrics.histogram(
            "prediction_error_points",
            "Points between predicted and measured utilization of the nodes of a move.",
            ("node", "resource"),
            buckets=BUCKETS,
        )
        self._unchecked = metrics.counter(
            "predictions_unchecked_total",
            "Moves whose nodes could not be measured before others touched them.",
        )

    async def run(self) -> None:
        """Verify moves until canceled; a term of leading."""
        self._began_s = self._clock.now()
        while True:
            try:
                await self.verify()
            except Exception:  # the next round starts from the cluster again
                log.exception("verification failed")
            await self._clock.sleep(self._every_s)

    async def verify(self) -> None:
        """Verify the moves that ended since the last round."""
        belief = await self._observer.look(self._store.predecessors(), self._store.overlay)
        migrations = belief.snapshot.migrations
        self._done.intersection_update({migration.uid for migration in migrations.values()})
        self._give_up_overdue(migrations.values())
        for migration in due(migrations.values(), belief.load, done=self._done):
            if await self._verified(migration, actual_use(migration, belief.load)):
                self._done.add(migration.uid)

    def _give_up_overdue(self, migrations: Iterable[MigrationRecord]) -> None:
        """Give up Migrations whose nodes show something else by now."""
        now_s = self._clock.now()
        for migration in migrations:
            late = overdue(migration, now_s=now_s, patience_s=self._patience_s)
            if not late or migration.uid in self._done or not _ended_well(migration):
                continue
            self._done.add(migration.uid)
            # What ended before this term was for the leader of that time to verify.
            if not overdue(migration, now_s=self._began_s, patience_s=0.0):
                self._unchecked.inc()
                log.info("move not verified in time", migration=migration.name)

    async def _verified(self, migration: MigrationRecord, actual: Uses) -> bool:
        """Write down what a move did; false if it is worth another try."""
        try:
            found = await self._store.read(migration.name)
            if found.uid == migration.uid and found.actual is None and found.predicted is not None:
                await self._record(found, found.predicted, actual)
        except (NotFound, *UNDECODABLE) as error:
            log.warning("move not verified", migration=migration.name, error=str(error))
        except KubeError as error:
            log.warning("move not verified yet", migration=migration.name, error=str(error))
            return False
        return True

    async def _record(self, migration: MigrationRecord, predicted: Uses, actual: Uses) -> None:
        await self._store.update_status(migration, {"predicted": predicted, "actual": actual})
        # A replacement elsewhere says nothing about how well the target was predicted.
        if migration.outcome == Outcome.AS_PLANNED:
            for node, resource, points in errors(predicted, actual):
                self._errors.labels(node, resource).observe(points)
        self._events.measured(migration, predicted, actual)
        log.info(
            "move verified",
            pod=f"{migration.namespace}/{migration.pod_name}",
            plan_id=migration.plan_id,
            outcome=migration.outcome,
            predicted=msgspec.to_builtins(predicted),
            actual=msgspec.to_builtins(actual),
        )
