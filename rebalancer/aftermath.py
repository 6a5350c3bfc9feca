"""What a move was expected to do to its nodes, and what it did.

A finished Migration is looked at once both of its nodes have samples that are newer than its
end and need not be corrected by its own pods, and nothing else is on its way from or to them.
Where that takes too long, because one move follows the other, nothing could be learned from
it: it is counted, and let be. What was predicted stands in the Migration itself, so a new
leader goes on where the old one stopped. Nothing depends on the result: it is there to be
read, in the metrics, in the Migration's status and in an Event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog

from common.clock import Clock
from common.cluster.migrations import (
    Migration,
    MigrationRecord,
    NodeUse,
    Outcome,
    Phase,
    Uses,
    read_prediction,
)
from common.cluster.records import NodeName
from common.kube.errors import KubeError, NotFound
from common.kube.resources import MIGRATIONS, Resource
from common.load import Change, LoadView, NodeLoad
from common.metrics import Metrics
from common.null_json import UNDECODABLE, JsonDecoder
from common.observer import Belief
from rebalancer.choosing import nodes_of
from rebalancer.migration.announcing import Announcer, EventRecorder

log: structlog.stdlib.BoundLogger = structlog.get_logger()

BUCKETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0)
"""Points of utilisation."""
LOOK_S: Final = 5.0


def due(
    migrations: Iterable[MigrationRecord], load: LoadView, *, done: Collection[str]
) -> list[MigrationRecord]:
    """Return the finished Migrations whose nodes show by now what they did."""
    known = list(migrations)
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
    """Tell whether a Migration ended so long ago that its nodes show something else by now."""
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


class StatusClient(Protocol):
    """The part of `KubeClient` that is needed here."""

    async def get(self, path: str) -> bytes: ...

    async def patch(
        self, resource: Resource, body: Any, *, name: str, subresource: str | None = None
    ) -> bytes: ...


class Aftermath:
    """Looks after finished moves; what goes wrong here stops nobody."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Belief]],
        client: StatusClient,
        *,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        patience_s: float,
        every_s: float = LOOK_S,
    ) -> None:
        """Ask every `every_s`; a Migration that ended `patience_s` ago is let be."""
        self._look = look
        self._client = client
        self._announcer = Announcer(recorder)
        self._clock = clock
        self._patience_s = patience_s
        self._every_s = every_s
        self._done: set[str] = set()
        self._began_s = clock.now()
        self._decoder = JsonDecoder(Migration)
        self._errors = metrics.histogram(
            "prediction_error_points",
            "Points between predicted and measured utilisation of the nodes of a move.",
            ("node", "resource"),
            buckets=BUCKETS,
        )
        self._unchecked = metrics.counter(
            "predictions_unchecked_total",
            "Moves whose nodes could not be measured before others touched them.",
        )

    async def run(self) -> None:
        """Look after moves for ever; a term of leading."""
        self._began_s = self._clock.now()
        while True:
            try:
                await self.look()
            except Exception:  # the next look starts from the cluster again
                log.exception("aftermath not looked at")
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        """Look after the moves that ended since."""
        belief = await self._look()
        migrations = belief.snapshot.migrations
        self._done.intersection_update({migration.uid for migration in migrations.values()})
        self._let_be(migrations.values())
        for migration in due(migrations.values(), belief.load, done=self._done):
            if await self._told(migration, actual_use(migration, belief.load)):
                self._done.add(migration.uid)

    def _let_be(self, migrations: Iterable[MigrationRecord]) -> None:
        """Give up those whose nodes show something else by now."""
        now_s = self._clock.now()
        for migration in migrations:
            late = overdue(migration, now_s=now_s, patience_s=self._patience_s)
            if not late or migration.uid in self._done or not _ended_well(migration):
                continue
            self._done.add(migration.uid)
            # What ended before we led was somebody else's to look after.
            if not overdue(migration, now_s=self._began_s, patience_s=0.0):
                self._unchecked.inc()
                log.info("aftermath not measured", migration=migration.name)

    async def _told(self, migration: MigrationRecord, actual: Uses) -> bool:
        """Write down what came of a move; false if it is worth another try."""
        try:
            predicted = await self._predicted(migration)
            if predicted is not None:
                await self._record(migration, predicted, actual)
        except (NotFound, *UNDECODABLE) as error:
            log.warning("aftermath not told", migration=migration.name, error=str(error))
        except KubeError as error:
            log.warning("aftermath not told yet", migration=migration.name, error=str(error))
            return False
        return True

    async def _predicted(self, migration: MigrationRecord) -> Uses | None:
        """Return what was predicted; None if it was looked after already."""
        found = self._decoder.decode(await self._client.get(MIGRATIONS.path(name=migration.name)))
        told = found.metadata.uid != migration.uid or found.status.actual is not None
        return None if told else read_prediction(found.metadata.annotations or {})

    async def _record(self, migration: MigrationRecord, predicted: Uses, actual: Uses) -> None:
        status = {"predicted": predicted, "actual": actual}
        await self._client.patch(
            MIGRATIONS, {"status": status}, name=migration.name, subresource="status"
        )
        if migration.outcome == Outcome.AS_PLANNED:
            for node, resource, points in errors(predicted, actual):
                self._errors.labels(node, resource).observe(points)
        self._announcer.measured(migration, predicted, actual)
        log.info(
            "aftermath",
            pod=f"{migration.namespace}/{migration.pod_name}",
            plan_id=migration.plan_id,
            outcome=migration.outcome,
            predicted=msgspec.to_builtins(predicted),
            actual=msgspec.to_builtins(actual),
        )
