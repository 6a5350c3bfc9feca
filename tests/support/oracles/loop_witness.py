# SPDX-License-Identifier: Apache-2.0
"""Sees every eviction in the moment it happens, and judges it without the rebalancer's code.

The Eviction API tells a pod why it has to go, which tells its evictions from everything
else that deletes pods. Each is held against the budgets that stand in that moment, against
what protects a pod, and against all evictions before. A pod that is on its way out can be
evicted again without any change of it: how often that happened the API server counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from common.api.contract import (
    DO_NOT_DISRUPT,
    MAINTENANCE_FORCED_FROM,
    MIRROR_POD,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.api.selectors import LabelSelector
from common.cluster.disruption import counts_matching_pods, desired_healthy
from common.cluster.selectors import Selector, from_label_selector
from common.kube.resources import (
    DEPLOYMENTS,
    MIGRATIONS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    STATEFULSETS,
)
from common.kube.timestamps import parse_time
from simulator.api import Change, Json, Store, is_ready

_OWNERS = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS, "Deployment": DEPLOYMENTS}
_WIRE = LabelSelector | None
_REFERENCE = ("apiVersion", "kind", "name", "uid")
_SYSTEM_PRIORITY = 2_000_000_000


class Witness:
    """Remembers all evictions and whatever was wrong with one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lineages: dict[str, str] = {}
        self.evicted: list[str] = []
        """The uids of evicted pods, in order."""
        self.complaints: list[str] = []
        store.subscribe(PODS, self._on_pod)

    def check(self) -> None:
        """Fail if anything was wrong."""
        wrong = [*self.complaints, *self._against_the_count()]
        assert not wrong, wrong

    def _against_the_count(self) -> Iterator[str]:
        for uid, times in Counter(self._store.evictions).items():
            if times > 1:
                yield f"the eviction of {uid} was accepted {times} times"
            if uid not in self.evicted:
                yield f"{uid} was evicted and not seen to go"

    def _on_pod(self, change: Change) -> None:
        pod = change.obj
        uid = pod["metadata"]["uid"]
        if uid in self.evicted or not _is_evicted(pod):
            return
        self.evicted.append(uid)
        self.complaints += [
            *self._against_budgets(pod),
            *self._against_protection(pod),
            *self._against_repetition(pod),
        ]

    def _against_budgets(self, pod: Json) -> Iterator[str]:
        meta = pod["metadata"]
        for budget in self._store.list(PDBS, meta["namespace"]):
            wanted = _selector(budget)
            if not _has(pod, wanted):
                continue
            covered = [p for p in self._store.list(PODS, meta["namespace"]) if _has(p, wanted)]
            healthy = [p for p in covered if is_ready(p) and not _is_ending(p)]
            healthy = [p for p in healthy if p["metadata"]["uid"] != meta["uid"]]
            least = self._least(budget, covered)
            if is_ready(pod) and len(healthy) < least:
                words = f"{len(healthy)} healthy, {least} wanted"
                yield f"{meta['name']} was evicted against {budget['metadata']['name']}: {words}"

    def _least(self, budget: Json, covered: list[Json]) -> int:
        """Return how many healthy pods a budget asks for."""
        limits = (budget["spec"].get("minAvailable"), budget["spec"].get("maxUnavailable"))
        matching = counts_matching_pods(*limits)
        return desired_healthy(*limits, len(covered) if matching else self._wanted(covered))

    def _wanted(self, pods: list[Json]) -> int:
        """Return how many pods the workloads of these are to have together."""
        found = {}
        for pod in pods:
            for owner in pod["metadata"].get("ownerReferences") or ():
                top = root_of(self._store, owner, pod["metadata"]["namespace"])
                found[top["uid"]] = top, pod["metadata"]["namespace"]
        tops = [self._store.find(_OWNERS[t["kind"]], t["name"], n) for t, n in found.values()]
        return sum(top["spec"]["replicas"] for top in tops if top is not None)

    def _against_protection(self, pod: Json) -> Iterator[str]:
        meta, spec = pod["metadata"], pod["spec"]
        notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
        owners = {owner["kind"] for owner in meta.get("ownerReferences") or ()}
        protected = {
            "its namespace": meta["namespace"] in ("kube-system", "kube-public"),
            "its DaemonSet": "DaemonSet" in owners,
            "being a mirror pod": MIRROR_POD in notes,
            "its priority": spec.get("priority", 0) >= _SYSTEM_PRIORITY,
        }
        wishes = {
            SAFE_TO_EVICT: notes.get(SAFE_TO_EVICT) == "false",
            DO_NOT_DISRUPT: notes.get(DO_NOT_DISRUPT) == "true",
            PREFER_NO_EVICTION: PREFER_NO_EVICTION in notes,
            RESCHEDULING_LABEL: labels.get(RESCHEDULING_LABEL) == "disabled",
        }
        if not self._past_deadline(pod):
            protected |= wishes
        for why, holds in protected.items():
            if holds:
                yield f"{meta['name']} was evicted, protected by {why}"

    def _past_deadline(self, pod: Json) -> bool:
        """Tell whether the node of a pod says that wishes no longer hold by the pod's end."""
        node = self._store.find(NODES, pod["spec"]["nodeName"])
        said = (node or {}).get("metadata", {}).get("annotations") or {}
        forced = said.get(MAINTENANCE_FORCED_FROM)
        ends = pod["metadata"]["deletionTimestamp"]
        return forced is not None and parse_time(forced) <= parse_time(ends)

    def _against_repetition(self, pod: Json) -> Iterator[str]:
        lineage = self._lineage(pod)
        if lineage in self._lineages:
            yield f"{pod['metadata']['name']} was evicted, as {self._lineages[lineage]} before it"
        self._lineages[lineage] = pod["metadata"]["name"]

    def _lineage(self, pod: Json) -> str:
        """Return what a pod and its replacements have in common."""
        meta = pod["metadata"]
        owners = meta.get("ownerReferences") or ()
        if owners and owners[0]["kind"] == "StatefulSet":
            return f"{meta['namespace']}/{meta['name']}"
        moves = self._store.list(MIGRATIONS)
        before = {
            m["status"]["replacement"]["uid"]: m["spec"]["pod"]["uid"]
            for m in moves
            if (m.get("status") or {}).get("replacement")
        }
        uid: str = meta["uid"]
        while uid in before:
            uid = before[uid]
        return uid


def root_of(store: Store, owner: Json, namespace: str) -> Json:
    """Return a reference to the workload that a person would name, from a pod's owner."""
    resource = _OWNERS.get(owner["kind"])
    found = (store.find(resource, owner["name"], namespace) if resource else None) or {}
    above = (found.get("metadata", {}).get("ownerReferences") or [None])[0]
    chosen: Json = above or owner
    return {key: chosen[key] for key in _REFERENCE}


def _is_evicted(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    told = any(c.get("reason") == "EvictionByEvictionAPI" for c in conditions)
    return told and _is_ending(pod)


def _is_ending(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _selector(budget: Json) -> Selector:
    return from_label_selector(msgspec.convert(budget["spec"].get("selector"), _WIRE))


def _has(pod: Json, wanted: Selector) -> bool:
    return wanted.matches(pod["metadata"].get("labels") or {})
