"""From a move of a plan to the Migration that asks for it.

A Migration carries all that the extenders and a later leader need, so that nobody has to
remember the plan: who replaces the pod, what the pod really uses, whom it waits for, and in
an annotation what both nodes are expected to use afterwards. It is named by the pod's uid: a
second one for the same pod is refused by the API server, and that is fine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from common.cluster.interning import Interner
from common.cluster.migrations import (
    Amounts,
    ControllerRef,
    Migration,
    MigrationRecord,
    MigrationSpec,
    NodeUse,
    PodRef,
    Uses,
    migration_record,
    new_migration,
)
from common.cluster.records import NodeName, Owner, PodRecord
from common.config import RebalancerConfiguration
from common.contract import COMPLETION_INDEX, PREDICTED_USE
from common.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from common.kube.resources import MIGRATIONS, Resource
from common.metrics import Metrics
from common.null_json import UNDECODABLE, JsonDecoder
from common.observer import Belief
from rebalancer.migration.deadlines import deadline_s
from rebalancer.migration.names import replacement_name
from rebalancer.planner import Level, Move

log: structlog.stdlib.BoundLogger = structlog.get_logger()

MAX_WORDS: Final = 1024
MAX_ALTERNATIVES: Final = 8
_INDEX: Final = re.compile(r"\d{1,9}")


def spec_of(
    move: Move, plan_id: str, belief: Belief, config: RebalancerConfiguration, now_s: float
) -> MigrationSpec | None:
    """Return what the Migration says; None if the pod is gone."""
    snapshot = belief.snapshot
    pod = snapshot.pods.get(move.uid)
    if pod is None:
        return None
    load = belief.load.load_of(pod)
    others = dict.fromkeys(n for n in move.alternatives if n not in (move.source, move.target))
    return MigrationSpec(
        pod=PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid),
        controller=_ref(pod.owner),
        workload=_ref(snapshot.top_owner(pod)),
        replacement_name="" if pod.owner is not None else replacement_name(pod.name, now_s),
        completion_index=_completion_index(pod),
        source=move.source,
        target=move.target,
        alternatives=tuple(others)[:MAX_ALTERNATIVES],
        strategy=move.strategy.value,
        reason=move.reason,
        message=move.words[:MAX_WORDS],
        plan_id=plan_id,
        deadline=datetime.fromtimestamp(deadline_s(pod, config, now_s), UTC),
        load=Amounts(cpu_milli=max(0.0, load.cpu_milli), memory_bytes=max(0.0, load.mem_bytes)),
        requests=Amounts(
            cpu_milli=float(pod.requests.cpu_milli), memory_bytes=float(pod.requests.mem_bytes)
        ),
        priority=pod.shape.priority,
        needs=tuple(move.needs),
    )


def predicted_use(move: Move, after: Mapping[NodeName, Level]) -> Uses:
    """Return what both nodes of a move are expected to use once the plan is carried out."""
    return Uses(source=_use(after.get(move.source)), target=_use(after.get(move.target)))


def _use(level: Level | None) -> NodeUse | None:
    # NaN, which JSON does not know, stands for a node that does not say how much it has.
    if level is None or level.cpu != level.cpu or level.memory != level.memory:
        return None
    return NodeUse(
        cpu_percent=round(max(0.0, level.cpu), 2), memory_percent=round(max(0.0, level.memory), 2)
    )


def _ref(owner: Owner | None) -> ControllerRef | None:
    if owner is None:
        return None
    return ControllerRef(
        api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
    )


def _completion_index(pod: PodRecord) -> int | None:
    text = pod.annotations.get(COMPLETION_INDEX, "")
    of_a_job = pod.owner is not None and pod.owner.kind == "Job"
    return int(text) if of_a_job and _INDEX.fullmatch(text) else None


class Written(StrEnum):
    """What became of a Migration that was to be created."""

    CREATED = "created"
    EXISTS = "exists"
    FAILED = "failed"


class Answer(NamedTuple):
    """The result, and the Migration as the API server keeps it."""

    result: Written
    record: MigrationRecord | None = None


class Unseen:
    """Migrations that were written and that the watch does not show yet.

    Until it does they are put into every look, otherwise the next plan would take the room
    and the limits for free that they take.
    """

    def __init__(self) -> None:
        self._records: dict[str, MigrationRecord] = {}

    def add(self, record: MigrationRecord | None) -> None:
        """Remember one that was created."""
        if record is not None:
            self._records[record.name] = record

    def shown_in(self, belief: Belief, now_s: float) -> Belief:
        """Return the belief with what the watch does not show; forget what it does."""
        seen = belief.snapshot.migrations
        self._records = {
            name: record
            for name, record in self._records.items()
            if not _shows(seen.get(name), record) and now_s < record.deadline_s
        }
        if not self._records:
            return belief
        whole = {**seen, **self._records}
        return belief._replace(snapshot=msgspec.structs.replace(belief.snapshot, migrations=whole))


def _shows(seen: MigrationRecord | None, record: MigrationRecord) -> bool:
    """Tell whether the watch shows this one, and not the failed one before it."""
    return seen is not None and (seen.uid == record.uid or seen.created_s > record.created_s)


class MigrationClient(Protocol):
    """The part of `KubeClient` that is needed here."""

    async def create(self, resource: Resource, body: Any) -> bytes: ...

    async def delete(self, resource: Resource, *, name: str, uid: str | None = None) -> bytes: ...


class MigrationWriter:
    """Creates Migrations; an error is a value, for the next cycle plans anew anyway."""

    def __init__(self, client: MigrationClient, metrics: Metrics) -> None:
        self._client = client
        self._decoder = JsonDecoder(Migration)
        self._shared = Interner()
        self._total = metrics.counter(
            "migrations_written_total", "Migrations that plans asked for.", ("result",)
        )

    async def write(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None = None
    ) -> Answer:
        """Create a Migration in place of an earlier one of the pod, which has failed."""
        answer = await self._written(spec, predicted, before)
        self._total.labels(answer.result.value).inc()
        return answer

    async def _written(
        self, spec: MigrationSpec, predicted: Uses, before: MigrationRecord | None
    ) -> Answer:
        body = new_migration(spec)
        body["metadata"]["annotations"] = {
            PREDICTED_USE: msgspec.json.encode(predicted).decode(),
        }
        try:
            if before is not None:
                await self._remove(before)
            made = self._decoder.decode(await self._client.create(MIGRATIONS, body))
        except AlreadyExists:
            return Answer(Written.EXISTS)
        except (KubeError, *UNDECODABLE) as error:
            pod = f"{spec.pod.namespace}/{spec.pod.name}"
            log.warning("migration not written", pod=pod, plan_id=spec.plan_id, error=str(error))
            return Answer(Written.FAILED)
        return Answer(Written.CREATED, migration_record(made, self._shared))

    async def _remove(self, before: MigrationRecord) -> None:
        # If somebody else was there first, creating will show whether that is a hindrance.
        with suppress(NotFound, Conflict):
            await self._client.delete(MIGRATIONS, name=before.name, uid=before.uid)
