"""Which Migrations to look at when something in the cluster changes.

Every look is cheap but not free, and a cluster changes all the time: so only those are
woken whose next step can depend on what changed. A Migration that waits is looked at now
and then anyway; what is missed here costs time, not correctness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from common.cluster.migrations import MigrationRecord, Step
from common.cluster.records import ControllerId, NodeRecord, PodRecord
from common.cluster.state import ClusterState
from common.cluster.storage import LeaseRecord
from common.cluster.workloads import BudgetRecord, WorkloadRecord
from common.config import Strategy
from common.contract import under_maintenance

Wake = Callable[[str], None]
Mark = str | ControllerId | None


class Waker:
    """Listens to a state and says which Migrations are concerned."""

    def __init__(self, state: ClusterState, *, wake: Wake, wake_soon: Wake) -> None:
        self._wake = wake
        self._wake_soon = wake_soon
        self._open: dict[str, MigrationRecord] = {}
        self._by_mark: dict[Mark, set[str]] = defaultdict(set)
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
                self._wake(found.name)
        if old is not None:
            self._unfile(old)
        if new is not None and new.open:
            self._file(new)
        elif old is not None and old.open:
            self._let_others_go()

    def _on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            for mark in (pod.uid, pod.controller_id, pod.key):
                self._wake_all(self._by_mark.get(mark, ()))

    def _on_workload(self, old: WorkloadRecord | None, new: WorkloadRecord | None) -> None:
        for found in (old, new):
            if found is not None:
                self._wake_all(self._by_mark.get(found.controller_id, ()))

    def _on_budget(self, old: BudgetRecord | None, new: BudgetRecord | None) -> None:
        found = new or old
        if found is not None:
            self._wake_all(self._by_mark.get(found.namespace, ()))

    def _on_lease(self, old: LeaseRecord | None, new: LeaseRecord | None) -> None:
        self._wake_all([name for name, found in self._open.items() if _asks_extenders(found)])

    def _on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """When a maintenance ends, its moves stop at once."""
        if _is_emptied(old) and not _is_emptied(new):
            emptying = Strategy.NODE_MAINTENANCE
            self._wake_all(n for n, found in self._open.items() if found.strategy == emptying)

    def _let_others_go(self) -> None:
        """One has ended: whom a limit held back may begin, soon and once for several ends."""
        for name, found in self._open.items():
            if not found.done(Step.EVICTED):
                self._wake_soon(name)

    def _file(self, migration: MigrationRecord) -> None:
        self._open[migration.name] = migration
        for mark in _marks(migration):
            self._by_mark[mark].add(migration.name)

    def _unfile(self, migration: MigrationRecord) -> None:
        self._open.pop(migration.name, None)
        for mark in _marks(migration):
            self._by_mark[mark].discard(migration.name)
            if not self._by_mark[mark]:
                del self._by_mark[mark]

    def _wake_all(self, names: Iterable[str]) -> None:
        for name in tuple(names):
            self._wake(name)


def _marks(migration: MigrationRecord) -> Iterator[Mark]:
    """Yield what a change must have in common with a Migration to matter to it."""
    yield from (migration.pod_uid, migration.namespace, *migration.needs)
    if migration.controller_id is not None:
        yield migration.controller_id
    else:
        yield f"{migration.namespace}/{migration.replacement_name}"
    if migration.workload_id is not None:
        yield migration.workload_id


def _is_emptied(node: NodeRecord | None) -> bool:
    return node is not None and under_maintenance(node.labels)


def _asks_extenders(migration: MigrationRecord) -> bool:
    waits = migration.done(Step.BUDGET_CHECKED) and not migration.done(Step.ACKNOWLEDGED)
    return waits or (migration.done(Step.REPLACED) and not migration.done(Step.READY))
