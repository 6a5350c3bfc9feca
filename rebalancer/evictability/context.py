# SPDX-License-Identifier: Apache-2.0
"""What gates need besides the pod: one value per snapshot.

What many pods share is worked out once and kept: selectors are compiled, PDBs indexed by
label, an owner's pods counted at its first pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from common.api.migrations import Purpose, Step
from common.cache.snapshot import Snapshot
from common.cluster.migrations import MigrationRecord
from common.cluster.records import ControllerId, NodeName, Owner, PodRecord
from common.cluster.selectors import EVERYTHING, NOTHING, Selector, parse
from common.cluster.workloads import WorkloadRecord
from common.config import RebalancerConfiguration
from common.load import LoadView
from rebalancer.evictability.budgets import Budgets
from rebalancer.evictability.history import NO_HISTORY, MoveHistory
from rebalancer.refusals import Refusal
from rebalancer.rules import ClusterRules

STATEFUL_SET: Final = "StatefulSet.apps"
JOB: Final = "Job.batch"
READ_OWNERS: Final = frozenset({"ReplicaSet.apps", "ReplicationController", STATEFUL_SET, JOB})
"""Kinds that create a new pod when one of theirs is gone, and that we watch."""


Refusals = tuple[Refusal, ...]
_TemplateKey = tuple[int, int, int, int, str, bool]


class OwnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a pod, and how many of its pods live and are ready."""

    controller_id: ControllerId
    """The controller that the pods name in their ownerReferences."""
    reference: Owner
    kind: str
    """`Kind.group`, as in `replacingOwners`."""
    controller: WorkloadRecord | None
    """What makes the replacement; None if we do not watch its kind, or it does not exist."""
    workload: WorkloadRecord | None
    """What users call the workload: for a ReplicaSet its Deployment."""
    wanted: int
    """How many pods its owner wants: without the one that a surge of ours added."""
    pods: int
    """Pods of the owner that have neither ended nor are terminating."""
    ready: int
    replaces: bool
    """It creates a new pod when one is gone."""

    @property
    def replicas(self) -> int:
        """How many pods the workload wants."""
        return self.wanted if self.workload is not None else self.pods

    @property
    def workload_id(self) -> ControllerId:
        """The key under which moves of the workload are recorded."""
        found = self.workload
        return found.controller_id if found is not None else self.controller_id


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, ready to be applied to pods."""

    excluded_namespaces: frozenset[str]
    excluded_pods: Selector
    wanted_pods: Selector
    wanted_namespaces: Selector
    schedulers: frozenset[str]
    replacing_owners: frozenset[str]
    protected_classes: frozenset[str]
    min_priority: int | None
    """The threshold; None if none is configured, or its PriorityClass does not exist."""

    @classmethod
    def of(cls, config: RebalancerConfiguration, snapshot: Snapshot) -> Rules:
        """Compile the configuration; the snapshot knows the priority classes."""
        excluded = config.excluded_pod_selector
        return cls(
            excluded_namespaces=frozenset(config.excluded_namespaces),
            excluded_pods=parse(excluded) if excluded else NOTHING,
            wanted_pods=_all_or(config.pod_selector),
            wanted_namespaces=_all_or(config.namespace_selector),
            schedulers=frozenset(config.scheduler_names),
            replacing_owners=READ_OWNERS.union(config.replacing_owners),
            protected_classes=frozenset(config.protected_storage_classes),
            min_priority=_min_priority(config, snapshot),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Context:
    """Everything that gates need besides the pod, for one purpose."""

    snapshot: Snapshot
    config: RebalancerConfiguration
    now_s: float
    history: MoveHistory
    purpose: Purpose
    budgets: Budgets
    rules: Rules
    load: LoadView | None = None
    """The estimated load; None where only the objects count."""
    surge: bool | None = None
    """Whether the move that is judged asks for a surge; None where that is not decided yet."""
    begun: bool = False
    """Whether the move that is judged has begun: windows do not stop it any more."""
    scope: ClusterRules = field(init=False, repr=False)
    """What pools and namespaces say at this moment."""
    _surges: dict[ControllerId, list[MigrationRecord]] = field(default_factory=dict)
    _autoscalers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    _owner_statuses: dict[ControllerId, OwnerStatus] = field(default_factory=dict)
    _seen_owners: dict[tuple[int, str], tuple[Owner, OwnerStatus]] = field(default_factory=dict)
    _claims: dict[NodeName, Mapping[str, int]] = field(default_factory=dict)
    _replicas: dict[_TemplateKey, tuple[PodRecord, Refusals]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scope = ClusterRules(self.config, self.snapshot, self.now_s)
        object.__setattr__(self, "scope", scope)

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        config: RebalancerConfiguration,
        *,
        now_s: float,
        history: MoveHistory = NO_HISTORY,
        purpose: Purpose = Purpose.LOAD,
        load: LoadView | None = None,
        surge: bool | None = None,
    ) -> Context:
        """Prepare for judging the pods of a snapshot."""
        return cls(
            snapshot=snapshot,
            config=config,
            now_s=now_s,
            history=history,
            purpose=purpose,
            budgets=Budgets(snapshot.budgets.values()),
            rules=Rules.of(config, snapshot),
            load=load,
            surge=surge,
            _surges=_surges(snapshot),
            _autoscalers={a.scaled: a.name for a in snapshot.autoscalers.values()},
        )

    def for_purpose(self, purpose: Purpose) -> Context:
        """Return the same context for another purpose; what is worked out is shared."""
        return replace(self, purpose=purpose, _replicas={})

    @property
    def for_load(self) -> bool:
        return self.purpose is Purpose.LOAD

    def judged_once(
        self, pod: PodRecord, judge: Callable[[PodRecord, Context], Refusals]
    ) -> Refusals:
        """Return what `judge` returns for a pod, calling it once for all replicas of a template.

        What replicas share is one object, so its id stands for it. The pod is kept beside the
        answer, because an id can be reused once its object is gone.
        """
        template_key = (
            id(pod.shape), id(pod.labels), id(pod.annotations), id(pod.owner),
            pod.namespace, pod.owned,
        )  # fmt: skip
        found = self._replicas.get(template_key)
        if found is None:
            found = self._replicas[template_key] = pod, judge(pod, self)
        return found[1]

    def owner_status(self, pod: PodRecord) -> OwnerStatus | None:
        """Return the status of the pod's owner; None for a pod without a controller."""
        owner = pod.owner
        if owner is None:
            return None
        # Asked by most gates; replicas share the object, which is kept, so its id stays its own.
        seen = self._seen_owners.get((id(owner), pod.namespace))
        if seen is None:
            seen = owner, self._status(pod, owner)
            self._seen_owners[id(owner), pod.namespace] = seen
        return seen[1]

    def _status(self, pod: PodRecord, owner: Owner) -> OwnerStatus:
        controller = owner.within(pod.namespace)
        found = self._owner_statuses.get(controller)
        if found is None:
            found = self._owner_statuses[controller] = self._count(pod, owner, controller)
        return found

    def replacing_owner(self, pod: PodRecord) -> OwnerStatus | None:
        """Return the same for an owner that replaces its pods, None for any other."""
        found = self.owner_status(pod)
        return found if found is not None and found.replaces else None

    def surges_of(self, workload: ControllerId) -> Sequence[MigrationRecord]:
        """Return the Migrations of a workload that ask for a surge, or remember one."""
        return self._surges.get(workload, ())

    def wanted_replicas(self, workload: WorkloadRecord) -> int:
        """Return how many replicas its owner wants; a raise of ours does not count."""
        raised = (m for m in self.surges_of(workload.controller_id) if has_raised(m))
        counts = (m.surge_replicas for m in raised if m.surge_replicas is not None)
        return next((n for n in counts if n + 1 == workload.desired), workload.desired)

    def autoscaler_of(self, workload: WorkloadRecord) -> str | None:
        """Return the HorizontalPodAutoscaler that sets the count of a workload."""
        return self._autoscalers.get((workload.namespace, workload.kind, workload.name))

    def claim_users(self, claim: str, node: NodeName) -> int:
        """Return how many pods on the node use the claim."""
        counted = self._claims.get(node)
        if counted is None:
            counted = self._claims[node] = _count_claim_users(self.snapshot, node)
        return counted.get(claim, 0)

    def _count(self, pod: PodRecord, owner: Owner, controller: ControllerId) -> OwnerStatus:
        snapshot, kind = self.snapshot, _spelt(owner)
        workload = snapshot.top_workload(pod)
        pods = snapshot.by_owner[controller].values()
        living = [p for p in pods if not (p.terminating or p.finished)]
        return OwnerStatus(
            controller_id=controller,
            reference=owner,
            kind=kind,
            controller=snapshot.controller(pod),
            workload=workload,
            wanted=0 if workload is None else self.wanted_replicas(workload),
            pods=len(living),
            ready=sum(p.ready for p in living),
            replaces=kind in self.rules.replacing_owners,
        )


def has_raised(migration: MigrationRecord) -> bool:
    """Tell whether the count of the workload may hold one more because of this Migration."""
    if migration.surge_replicas is None or migration.done(Step.LOWERED):
        return False
    return not migration.done(Step.CLEANED_UP)


def _surges(snapshot: Snapshot) -> dict[ControllerId, list[MigrationRecord]]:
    found: dict[ControllerId, list[MigrationRecord]] = {}
    for migration in snapshot.migrations.values():
        workload = migration.workload_id
        if workload is not None and (migration.surge or migration.reverted_s is not None):
            found.setdefault(workload, []).append(migration)
    return found


def _spelt(owner: Owner) -> str:
    group = owner.api_version.rpartition("/")[0]
    return f"{owner.kind}.{group}" if group else owner.kind


def _all_or(text: str) -> Selector:
    return parse(text) if text else EVERYTHING


def _min_priority(config: RebalancerConfiguration, snapshot: Snapshot) -> int | None:
    threshold = config.priority_threshold
    if threshold is None or threshold.name is None:
        return threshold.value if threshold is not None else None
    known = snapshot.priority_classes.get(threshold.name)
    return known.value if known is not None else None


def _count_claim_users(snapshot: Snapshot, node: NodeName) -> Mapping[str, int]:
    view = snapshot.nodes.get(node)
    pods = view.pods.values() if view is not None else ()
    return Counter(f"{p.namespace}/{name}" for p in pods for name in set(p.shape.claims))
