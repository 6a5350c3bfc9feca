# SPDX-License-Identifier: Apache-2.0
"""The `eviction` subresource: a deletion that respects the PodDisruptionBudget.

Follows pkg/registry/core/pod/storage/eviction.go of v1.36 step by step, its oddities
included: the disruption is counted before the uid is compared, so an eviction of the wrong pod
uses one up until the disruption controller notices; the 429 of an exhausted PDB has no
Retry-After.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from common.cluster.disruption import MAX_DISRUPTED_PODS, Claim, claim, needs_no_budget
from common.kube.resources import PDBS, PODS
from simulator.api import deletion
from simulator.api.deletion import DeleteOptions
from simulator.api.errors import (
    Cause,
    Forbidden,
    InternalError,
    TooManyRequests,
    about,
)
from simulator.api.kinds.budgets import (
    DISRUPTION_ALLOWED,
    SYNC_FAILED,
    with_allowed_condition,
)
from simulator.api.kinds.pods import condition, is_ready, with_condition
from simulator.api.kinds.selectors import selector_of
from simulator.api.metadata import timestamp
from simulator.api.registry import Registry
from simulator.api.storage import Entry, Json

DISRUPTION_BUDGET: Final = "DisruptionBudget"

_TOO_MANY: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)


def evict(registry: Registry, name: str, namespace: str | None, options: DeleteOptions) -> None:
    """Evict a pod or raise why not."""
    pod = registry.entry(registry.kind(PODS), name, namespace)
    _evict(registry, pod, name, options)
    if not options.dry_run:
        registry.evictions.append(pod.obj["metadata"]["uid"])


def _evict(registry: Registry, pod: Entry, name: str, options: DeleteOptions) -> None:
    if _needs_no_budget(pod.obj):
        _delete(registry, pod, options)
        return
    budgets = _budgets_of(registry, pod.obj)
    if len(budgets) > 1:
        raise InternalError(_SEVERAL)
    claimed = _claim(pod.obj, budgets[0].obj) if budgets else Claim.NOTHING
    if claimed is Claim.DISRUPTION:
        _take(registry, budgets[0], name, dry_run=options.dry_run)
    # Nothing runs between this check and the deletion, so a pod that was not ready
    # still is not; the real server ensures that with a resourceVersion precondition.
    _delete(registry, pod, options)


def _needs_no_budget(pod: Json) -> bool:
    terminating = "deletionTimestamp" in pod["metadata"]
    return needs_no_budget(pod.get("status", {}).get("phase", ""), terminating=terminating)


def _claim(pod: Json, budget: Json) -> Claim:
    status = budget.get("status", {})
    return claim(
        phase=pod.get("status", {}).get("phase", ""),
        terminating="deletionTimestamp" in pod["metadata"],
        ready=is_ready(pod),
        policy=budget["spec"].get("unhealthyPodEvictionPolicy"),
        current_healthy=status.get("currentHealthy", 0),
        desired_healthy=status.get("desiredHealthy", 0),
    )


def _budgets_of(registry: Registry, pod: Json) -> list[Entry]:
    labels = pod["metadata"].get("labels") or {}
    budgets = registry.storage.collection(PDBS).within(pod["metadata"]["namespace"])
    return [
        entry
        for entry in budgets.values()
        if selector_of(entry.obj["spec"].get("selector")).matches(labels)
    ]


def _take(registry: Registry, budget: Entry, pod_name: str, *, dry_run: bool) -> None:
    """Use one disruption of a PDB, or raise why there is none."""
    _check_budget(budget.obj)
    if dry_run:
        return
    status = budget.obj["status"]
    now = timestamp(registry.clock.now())
    left = status["disruptionsAllowed"] - 1
    noted = {**(status.get("disruptedPods") or {}), pod_name: now}
    taken = {**status, "disruptionsAllowed": left, "disruptedPods": noted}
    if left == 0:
        taken = with_allowed_condition(taken, now)
    registry.put(registry.kind(PDBS), budget.key, {**budget.obj, "status": taken})


def _check_budget(budget: Json) -> None:
    name, status = budget["metadata"]["name"], budget.get("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(why, retry_after_s=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise _broken(name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or ()) > MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise _broken(name, why)
    if allowed == 0:
        raise _too_many(_why_none(name, status))


def _why_none(name: str, status: Json) -> str:
    conditions = status.get("conditions") or ()
    found = next((c for c in conditions if c.get("type") == DISRUPTION_ALLOWED), None)
    said = found is not None and found.get("status") == "False" and found.get("message")
    if found and said and found.get("reason") == SYNC_FAILED:
        why = f"does not allow evicting pods currently because it failed sync: {said}"
        return f"The disruption budget {name} {why}"
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= desired:
        return (
            f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        )
    more = f" ({found.get('reason')}): {said}" if found and said else ""
    return f"The disruption budget {name} does not allow evicting pods currently{more}"


def _too_many(why: str, *, retry_after_s: int = 0) -> TooManyRequests:
    causes = [Cause(DISRUPTION_BUDGET, why).json()]
    return TooManyRequests(_TOO_MANY, details={"causes": causes}, retry_after_s=retry_after_s)


def _broken(name: str, why: str) -> Forbidden:
    details = {**about(PDBS, name), "kind": "poddisruptionbudget"}
    message = f'poddisruptionbudget.policy "{name}" is forbidden: {why}'
    return Forbidden(message, details=details)


def _delete(registry: Registry, pod: Entry, options: DeleteOptions) -> None:
    """Delete a pod, after its DisruptionTarget condition was set."""
    kind = registry.kind(PODS)
    if not options.dry_run:
        deletion.check_preconditions(kind, pod, options)
        now = timestamp(registry.clock.now())
        target = condition(
            "DisruptionTarget",
            "True",
            now,
            reason="EvictionByEvictionAPI",
            message="Eviction API: evicting",
        )
        told = with_condition(pod.obj, target)
        if told != pod.obj:
            pod = registry.put(kind, pod.key, told)
        if options.resource_version is not None:
            options = replace(options, resource_version=str(pod.version))
    metadata = pod.obj["metadata"]
    deletion.delete(registry, kind, metadata["name"], metadata["namespace"], options)
