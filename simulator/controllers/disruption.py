# SPDX-License-Identifier: Apache-2.0
"""The disruption controller: keeps the status of PodDisruptionBudgets up to date.

Follows pkg/controller/disruption/disruption.go of v1.36; the arithmetic is in
`common.cluster.disruption`. A PDB is synced when it changes and when a pod that it covers
changes; a pod in `disruptedPods` counts as gone until it is, or for two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from common.clock import Clock
from common.cluster.disruption import (
    DELETION_TIMEOUT_S,
    AmountError,
    Counts,
    counts_matching_pods,
    desired_healthy,
)
from common.cluster.selectors import Selector
from common.kube.resources import (
    DEPLOYMENTS,
    PDBS,
    PODS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
    Resource,
)
from common.kube.timestamps import parse_time
from simulator.api import Change, EventType, Json, Store, SyncQueue, is_ready, timestamp
from simulator.api.kinds.budgets import with_allowed_condition
from simulator.api.kinds.selectors import selector_of
from simulator.controllers.controller import Key, key_of
from simulator.controllers.owned_pods import controller_of

_FINDERS: Final[dict[tuple[str, str], Resource]] = {
    ("", "ReplicationController"): REPLICATIONCONTROLLERS,
    ("apps", "ReplicaSet"): REPLICASETS,
    ("apps", "StatefulSet"): STATEFULSETS,
}


_NOTHING: Final[Mapping[str, _Coverage]] = {}


class SyncFailed(Exception):
    """The status of a PDB cannot be computed; the message goes into its condition."""


class _Coverage:
    """The pods that a PDB covers, kept up to date so that counting looks at no others."""

    __slots__ = ("pods", "selector", "wire")

    def __init__(self, wire: Json | None, pods: Iterable[Json]) -> None:
        self.wire = wire
        self.selector: Selector = selector_of(wire)
        self.pods: dict[str, Json] = {}
        for pod in pods:
            self.update(pod)

    def update(self, pod: Json) -> bool:
        """Update a pod; return whether it is or was covered."""
        name = pod["metadata"]["name"]
        if self.selector.matches(pod["metadata"].get("labels") or {}):
            self.pods[name] = pod
            return True
        return self.pods.pop(name, None) is not None


class DisruptionController:
    """Counts the pods of PDBs, and the disruptions that they allow."""

    def __init__(self, store: Store, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queue: SyncQueue[Key] = SyncQueue("disruption controller", clock)
        self._coverage: dict[str, dict[str, _Coverage]] = {}
        store.subscribe(PDBS, self._on_budget, replay=True)
        store.subscribe(PODS, self._on_pod)

    async def run(self) -> None:
        """Run forever."""
        await self._queue.run(self.sync)

    def work_off(self) -> None:
        """Sync all queued PDBs now."""
        self._queue.work_off(self.sync)

    def _on_budget(self, change: Change) -> None:
        namespace, name = key = key_of(change.obj)
        here = self._coverage.setdefault(namespace, {})
        if change.type is EventType.DELETED:
            here.pop(name, None)
            return
        known, wire = here.get(name), change.obj["spec"].get("selector")
        if known is None or known.wire != wire:
            here[name] = _Coverage(wire, self._store.list(PODS, namespace))
        self._queue.add(key)

    def _on_pod(self, change: Change) -> None:
        namespace, name = key_of(change.obj)
        for budget, coverage in self._coverage.get(namespace, _NOTHING).items():
            if change.type is EventType.DELETED:
                covered = coverage.pods.pop(name, None) is not None
            else:
                covered = coverage.update(change.obj)
            if covered:
                self._queue.add((namespace, budget))

    def sync(self, key: Key) -> None:
        """Sync the status of one PDB."""
        namespace, name = key
        budget = self._store.find(PDBS, name, namespace)
        if budget is None:
            return
        try:
            status, recheck_s = self._status_of(budget)
        except (SyncFailed, AmountError) as error:
            status, recheck_s = self._failed(budget, str(error)), None
        if status != budget.get("status"):
            self._store.modify(
                PDBS, name, lambda old: {**old, "status": status}, namespace=namespace, status=True
            )
        if recheck_s is not None:
            self._queue.add_after(key, recheck_s)

    def _failed(self, budget: Json, why: str) -> Json:
        """Return a status that allows no disruptions, with the reason."""
        status = {**(budget.get("status") or {}), "disruptionsAllowed": 0}
        return with_allowed_condition(status, timestamp(self._clock.now()), failure=why)

    def _status_of(self, budget: Json) -> tuple[Json, float | None]:
        """Return the status of a PDB, and when to sync it again."""
        namespace, name = key_of(budget)
        pods = tuple(self._coverage[namespace][name].pods.values())
        disrupted, recheck_s = self._still_disrupted(pods, budget)
        counts = self._counts(pods, budget["spec"], disrupted)
        status: Json = {
            "observedGeneration": budget["metadata"]["generation"],
            "disruptionsAllowed": counts.allowed,
            "currentHealthy": counts.healthy,
            "desiredHealthy": counts.desired,
            "expectedPods": counts.expected,
            "conditions": (budget.get("status") or {}).get("conditions") or [],
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        return with_allowed_condition(status, timestamp(self._clock.now())), recheck_s

    def _counts(self, pods: Sequence[Json], spec: Json, disrupted: Json) -> Counts:
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is None and least is None:
            expected = 0
        elif counts_matching_pods(least, most):
            expected = len(pods)
        else:
            expected = self._wanted(pods)
        healthy = sum(
            "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["name"] not in disrupted
            and is_ready(pod)
            for pod in pods
        )
        return Counts(expected, healthy, desired_healthy(least, most, expected))

    def _still_disrupted(self, pods: Sequence[Json], budget: Json) -> tuple[Json, float | None]:
        """Return the accepted evictions that do not show as deletions yet."""
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        if not noted:
            return {}, None
        now = self._clock.now()
        kept: Json = {}
        for pod in pods:
            at = noted.get(pod["metadata"]["name"])
            if at is None or "deletionTimestamp" in pod["metadata"]:
                continue
            if parse_time(at) + DELETION_TIMEOUT_S >= now:
                kept[pod["metadata"]["name"]] = at
        ends = [parse_time(at) + DELETION_TIMEOUT_S for at in kept.values()]
        # Times have whole seconds; without the extra second the sync would come too early.
        return kept, (min(ends) - now + 1 if ends else None)

    def _wanted(self, pods: Sequence[Json]) -> int:
        """Sum the desired replicas of the controllers of these pods; others do not count."""
        scales: dict[str, int] = {}
        for pod in pods:
            reference = controller_of(pod)
            if reference is None or reference["uid"] in scales:
                continue
            found = self._scale_of(reference, pod["metadata"]["namespace"])
            if found is None:
                name = pod["metadata"]["name"]
                raise SyncFailed(f'found no controllers for pod "{name}"')
            uid, scale = found
            scales[uid] = scale
        return sum(scales.values())

    def _scale_of(self, reference: Json, namespace: str) -> tuple[str, int] | None:
        """Return the controller that sets the scale, and its replicas (Deployment over set)."""
        group = reference["apiVersion"].rpartition("/")[0]
        resource = _FINDERS.get((group, reference["kind"]))
        if resource is None:
            raise SyncFailed(_no_scale(self._store, reference))
        owner = self._store.find(resource, reference["name"], namespace)
        if owner is None or owner["metadata"]["uid"] != reference["uid"]:
            return None
        above = controller_of(owner) if resource == REPLICASETS else None
        if above is not None and above["kind"] == "Deployment":
            deployment = self._store.find(DEPLOYMENTS, above["name"], namespace)
            if deployment is not None and deployment["metadata"]["uid"] == above["uid"]:
                owner = deployment
        return owner["metadata"]["uid"], owner["spec"]["replicas"]


def _no_scale(store: Store, reference: Json) -> str:
    kind = store.kinds.find(reference["apiVersion"], reference["kind"])
    if kind is None:
        return f'no matches for kind "{reference["kind"]}" in version "{reference["apiVersion"]}"'
    resource = kind.resource
    name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{name} does not implement the scale subresource"
