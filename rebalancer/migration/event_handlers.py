# SPDX-License-Identifier: Apache-2.0
"""Which Migrations to reconcile when something in the cluster changes.

Reconciling is cheap but not free, and a cluster changes all the time: so only those
Migrations are enqueued whose next step can depend on the change. A Migration that waits is
reconciled periodically anyway; a missed event costs time, not correctness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from common.api.contract import under_maintenance
from common.api.migrations import Step
from common.cache.state import ClusterState
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, NodeRecord, PodRecord
from common.cluster.storage import LeaseRecord
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import Strategy

Enqueue = Callable[[str], None]
IndexKey = str | ControllerId | None


class EventHandlers:
    """Listens to the cluster's state and enqueues the Migrations that a change concerns."""

    def __init__(self, state: ClusterState, *, enqueue: Enqueue, enqueue_soon: Enqueue) -> None:
        self._enqueue = enqueue
        self._enqueue_soon = enqueue_soon
        self._open: dict[str, MigrationRecord] = {}
        self._index: dict[IndexKey, set[str]] = defaultdict(set)
        for migration in state.migrations.records.freeze().values():
            self._on_migration(None, migration)
        state.migrations.listen(self._on_migration)
        state.pods.listen(self._on_pod)
        state.budgets.listen(self._on_budget)
        state.leases.listen(self._on_lease)
        state.nodes.listen(self._on_node)
        for table in (
            state.deployments,
            state.replica_sets,
            state.stateful_sets,
            state.jobs,
            state.replication_controllers,
        ):
            table.listen(self._on_workload)

    def _on_migration(self, old: MigrationRecord | None, new: MigrationRecord | None) -> None:
        for found in (old, new):
            if found is not None:
                self._enqueue(found.name)
        if old is not None:
            self._remove_from_index(old)
        if new is not None and new.open:
            self._add_to_index(new)
        elif old is not None and old.open:
            self._enqueue_limited()

    def _on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            for key in (pod.uid, pod.controller_id, pod.key):
                self._enqueue_all(self._index.get(key, ()))

    def _on_workload(self, old: WorkloadRecord | None, new: WorkloadRecord | None) -> None:
        for found in (old, new):
            if found is not None:
                self._enqueue_all(self._index.get(found.controller_id, ()))

    def _on_budget(self, old: BudgetRecord | None, new: BudgetRecord | None) -> None:
        found = new or old
        # Matching selectors here would cost more than reconciling the namespace's Migrations.
        if found is not None:
            self._enqueue_all(self._index.get(found.namespace, ()))

    def _on_lease(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        """Extenders report in their Leases what they know."""
        self._enqueue_all(
            [name for name, found in self._open.items() if _waits_for_extenders(found)]
        )

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """When a maintenance begins, nothing goes there; when it ends, its moves stop at once."""
        before, now = _in_maintenance(old), _in_maintenance(new)
        if before and not now:
            drains = Strategy.NODE_MAINTENANCE
            self._enqueue_all(n for n, found in self._open.items() if found.strategy == drains)
        elif new is not None and now and not before:
            self._enqueue_all(n for n, found in self._open.items() if found.target == new.name)

    def _enqueue_limited(self) -> None:
        """A Migration has ended: those behind a limit may begin, soon and once for several."""
        for name, found in self._open.items():
            if not found.done(Step.EVICTED):
                self._enqueue_soon(name)

    def _add_to_index(self, migration: MigrationRecord) -> None:
        self._open[migration.name] = migration
        for key in _index_keys(migration):
            self._index[key].add(migration.name)

    def _remove_from_index(self, migration: MigrationRecord) -> None:
        self._open.pop(migration.name, None)
        for key in _index_keys(migration):
            self._index[key].discard(migration.name)
            if not self._index[key]:
                del self._index[key]

    def _enqueue_all(self, names: Iterable[str]) -> None:
        for name in tuple(names):
            self._enqueue(name)


def _index_keys(migration: MigrationRecord) -> Iterator[IndexKey]:
    """Yield what an object must have in common with a Migration to matter to it."""
    yield from (migration.pod_uid, migration.namespace, *migration.needs)
    if migration.controller_id is not None:
        yield migration.controller_id
    else:
        # The copy of a bare pod has no owner to be found by; its name is known in advance.
        yield f"{migration.namespace}/{migration.replacement_name}"
    if migration.workload_id is not None:
        yield migration.workload_id


def _in_maintenance(node: NodeRecord | None) -> bool:
    return node is not None and under_maintenance(node.labels)


def _waits_for_extenders(migration: MigrationRecord) -> bool:
    waits = migration.done(Step.BUDGET_CHECKED) and not migration.done(Step.ACKNOWLEDGED)
    return waits or (migration.done(Step.REPLACED) and not migration.done(Step.READY))
