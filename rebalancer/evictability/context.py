"""What gates look at besides the pod: one value per look at the cluster.

Whatever many pods share is worked out once and kept: selectors are compiled, budgets found
by label, a workload's standing counted at its first pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec

from common.cluster.records import ControllerId, NodeName, Owner, PodRecord
from common.cluster.selectors import EVERYTHING, NOTHING, Selector, parse
from common.cluster.snapshot import Snapshot
from common.cluster.workloads import WorkloadRecord
from common.config import RebalancerConfiguration
from common.load import LoadView
from rebalancer.evictability.budgets import Budgets
from rebalancer.evictability.past import NO_PAST, Past
from rebalancer.reasons import Refusal

STATEFUL_SET: Final = "StatefulSet.apps"
JOB: Final = "Job.batch"
READ_OWNERS: Final = frozenset({"ReplicaSet.apps", "ReplicationController", STATEFUL_SET, JOB})
"""Kinds that make a new pod when one of theirs goes, and whose objects we read."""


Refusals = tuple[Refusal, ...]
_Likeness = tuple[int, int, int, int, str, bool]


class Purpose(StrEnum):
    """What a pod would be moved for."""

    LOAD = "load"
    MAINTENANCE = "maintenance"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod's owner is doing."""

    controller_id: ControllerId
    """Who the pods say their controller is."""
    owner: Owner
    kind: str
    """`Kind.group`, the way `replacingOwners` spells it."""
    controller: WorkloadRecord | None
    """Who makes the replacement; None if we do not read its kind, or it is not there."""
    workload: WorkloadRecord | None
    """What a person would name: of a ReplicaSet its Deployment."""
    pods: int
    """Pods of the owner that neither ended nor are about to."""
    ready: int
    replaces: bool
    """It makes a new pod when one goes, somewhere."""

    @property
    def replicas(self) -> int:
        """How many pods the workload is meant to have."""
        return self.workload.desired if self.workload is not None else self.pods

    @property
    def workload_id(self) -> ControllerId:
        """What the workload's moves are remembered by."""
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
    """The threshold; None if there is none, or if nobody knows its class."""

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
    """Everything that a gate may ask, for one purpose."""

    snapshot: Snapshot
    config: RebalancerConfiguration
    now_s: float
    past: Past
    purpose: Purpose
    budgets: Budgets
    rules: Rules
    load: LoadView | None = None
    """What is believed of load; None where only the objects are looked at."""
    _standings: dict[ControllerId, Standing] = field(default_factory=dict)
    _claims: dict[NodeName, Mapping[str, int]] = field(default_factory=dict)
    _replicas: dict[_Likeness, tuple[PodRecord, Refusals]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        config: RebalancerConfiguration,
        *,
        now_s: float,
        past: Past = NO_PAST,
        purpose: Purpose = Purpose.LOAD,
        load: LoadView | None = None,
    ) -> Context:
        """Prepare for judging the pods of a snapshot."""
        return cls(
            snapshot=snapshot,
            config=config,
            now_s=now_s,
            past=past,
            purpose=purpose,
            budgets=Budgets(snapshot.budgets.values()),
            rules=Rules.of(config, snapshot),
            load=load,
        )

    def meant_for(self, purpose: Purpose) -> Context:
        """Return the same look for another purpose; what is worked out is shared."""
        return replace(self, purpose=purpose, _replicas={})

    @property
    def for_load(self) -> bool:
        return self.purpose is Purpose.LOAD

    def once(self, pod: PodRecord, judge: Callable[[PodRecord, Context], Refusals]) -> Refusals:
        """Return what `judge` says of a pod, asking it once for all replicas of a template.

        What replicas share is one object, so its id stands for it; the pod is kept along,
        for an id may be given again to something else once its object is gone.
        """
        likeness = (
            id(pod.shape), id(pod.labels), id(pod.annotations), id(pod.owner),
            pod.namespace, pod.owned,
        )  # fmt: skip
        found = self._replicas.get(likeness)
        if found is None:
            found = self._replicas[likeness] = pod, judge(pod, self)
        return found[1]

    def standing(self, pod: PodRecord) -> Standing | None:
        """Return how the pod's owner is doing; None for a pod without a controller."""
        owner, controller = pod.owner, pod.controller_id
        if owner is None or controller is None:
            return None
        found = self._standings.get(controller)
        if found is None:
            found = self._standings[controller] = self._count(pod, owner, controller)
        return found

    def replacing(self, pod: PodRecord) -> Standing | None:
        """Return the same of an owner that replaces its pods, None of any other."""
        found = self.standing(pod)
        return found if found is not None and found.replaces else None

    def users(self, claim: str, node: NodeName) -> int:
        """Return how many pods on the node use the claim."""
        counted = self._claims.get(node)
        if counted is None:
            counted = self._claims[node] = _claim_users(self.snapshot, node)
        return counted.get(claim, 0)

    def _count(self, pod: PodRecord, owner: Owner, controller: ControllerId) -> Standing:
        snapshot, kind = self.snapshot, _spelt(owner)
        pods = snapshot.by_owner[controller].values()
        living = [p for p in pods if not (p.terminating or p.finished)]
        return Standing(
            controller_id=controller,
            owner=owner,
            kind=kind,
            controller=snapshot.controller(pod),
            workload=snapshot.top_workload(pod),
            pods=len(living),
            ready=sum(p.ready for p in living),
            replaces=kind in self.rules.replacing_owners,
        )


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


def _claim_users(snapshot: Snapshot, node: NodeName) -> Mapping[str, int]:
    view = snapshot.nodes.get(node)
    pods = view.pods.values() if view is not None else ()
    return Counter(f"{p.namespace}/{name}" for p in pods for name in set(p.shape.claims))
