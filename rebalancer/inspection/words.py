# SPDX-License-Identifier: Apache-2.0
"""Words for people: what a gate that is passed says, what would have to change, and figures.

A gate that is not passed has the message of its refusal. For the other ones, and for what a
person can do about a refusal, the words are here. A gate or a reason without an entry gets
words made from its name, so that a new one is never missing from an answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

from common.config import LoadSettings, Thresholds
from rebalancer.refusals import Reason, Refusal

_PASSED: Final[Mapping[str, str]] = {
    "not_a_mirror_pod": "it is not run by a kubelet from a file",
    "not_a_daemon_set_pod": "it is not a DaemonSet pod",
    "not_our_own": "it is not one of Evenkeel's own pods",
    "below_system_priority": "its priority is below that of system pods",
    "not_in_an_excluded_namespace": "its namespace is not excluded",
    "in_a_selected_namespace": "its namespace matches namespaceSelector",
    "not_an_excluded_pod": "it does not match excludedPodSelector",
    "selected_pod": "it matches podSelector",
    "rescheduling_enabled": "it has not opted out of rescheduling",
    "safe_to_evict": "no annotation says that it is not safe to evict",
    "may_be_disrupted": "no annotation forbids to disrupt it",
    "eviction_not_discouraged": "no annotation asks not to evict it",
    "below_the_priority_threshold": "its priority is below priorityThreshold",
    "namespace_acts": "its namespace does not only observe while others act",
    "window_is_open": "the schedule of its namespace is open",
    "scheduler_calls_our_extender": "its scheduler is one of schedulerNames",
    "replaceable_if_bare": "it has a controller, or can be copied",
    "job_tolerates_disruption": "it is not a Job's pod, or its Job tolerates disruption",
    "owner_replaces_its_pods": "its controller replaces its pods",
    "replacement_can_be_steered": "its replacement can be told from other pods",
    "owner_chain_ends": "its chain of owners has an end",
    "owner_exists": "its controller exists",
    "not_surplus": "its controller would replace it",
    "replacement_not_gated": "its replacement would not wait for scheduling gates",
    "not_too_many_affinity_terms": "it has few enough affinity terms",
    "not_in_a_foreign_group": "it is not part of a group of another program",
    "group_allows_it_to_leave": "its PodGroup has enough running pods without it",
    "no_local_storage": "it keeps no data on its node",
    "no_resource_claims": "it has no resource claims",
    "surge_is_possible": "it moves by eviction, or one more replica can be started first",
    "not_the_only_replica": "it is not the only replica",
    "enough_replicas": "its workload has at least minReplicas",
    "no_rollout_under_way": "its workload is not being rolled out",
    "workload_is_healthy": "its workload has all its pods available",
    "stateful_set_is_complete": "it is of no StatefulSet, or all of its pods are Ready",
    "workload_cooldown_is_over": "its workload was not moved within workloadCooldown",
    "covered_by_a_pdb": "a PDB covers it, or podsWithoutPdb allows moves",
    "not_terminating": "it is not being deleted",
    "not_finished": "it has not ended",
    "bound_to_a_node": "it is on a node",
    "no_local_volume": "none of its volumes is on its node",
    "no_protected_storage_class": "none of its storage classes is protected",
    "no_volume_shared_on_the_node": "no other pod on its node uses its volumes",
    "pdb_allows_eviction": "no PDB forbids its eviction now",
    "old_enough": "it has been running for minPodAge",
    "load_is_measured": "what it uses is measured",
    "lineage_cooldown_is_over": "neither it nor a predecessor was moved within lineageCooldown",
    "is_ready": "it is Ready",
    "is_schedulable": "it is not cordoned",
    "is_known": "its load is known",
    "says_what_it_has": "it can take pods from nodes that are drained, by requests if need be",
    "is_known_first": "drains prefer it: its load is known, or that of hardly any node is",
    "is_no_control_plane": "it is not a control-plane node",
    "is_not_under_maintenance": "it is not under maintenance",
    "is_not_being_removed": "no autoscaler is removing it",
    "is_not_kept_empty": "Consolidation does not empty it",
    "is_old_enough": "it is older than minNodeAge",
    "pool_gives_pods": "its pool has a strategy that moves single pods, or names none",
    "pool_gives_for_load": "its pool has a strategy for load, or names none",
    "is_not_nominated": "the scheduler keeps no room there for a pending pod",
    "is_not_claimed": "no pending pod is waiting for it",
    "has_no_pressure": "its tasks do not wait too long for a resource",
    "starts_pods": "pods start there",
}
NOT_MOVED_YET: Final = "no move of it is under way or ended just now"
NODE_GIVES: Final = "its node takes part"

_REMEDIES: Final[Mapping[str, str]] = {
    Reason.EXCLUDED_NAMESPACE: "take its namespace out of excludedNamespaces",
    Reason.NAMESPACE_NOT_SELECTED: "label its namespace so that it matches namespaceSelector",
    Reason.EXCLUDED_POD: "change its labels, or excludedPodSelector",
    Reason.POD_NOT_SELECTED: "change its labels, or podSelector",
    Reason.RESCHEDULING_DISABLED: "remove the label from the pod template",
    Reason.NOT_SAFE_TO_EVICT: "remove the annotation from the pod template",
    Reason.DO_NOT_DISRUPT: "remove the annotation from the pod template",
    Reason.PREFER_NO_EVICTION: "remove the annotation from the pod template",
    Reason.PRIORITY_THRESHOLD: "raise priorityThreshold",
    Reason.PRIORITY_THRESHOLD_UNKNOWN: "create that PriorityClass, or change priorityThreshold",
    Reason.RULE_OBSERVES: "set modes of the rule for its namespace to act",
    Reason.WINDOW_CLOSED: "wait until the schedule opens, or change it",
    Reason.NO_STRATEGY_FOR_LOAD: "add a strategy to enabledStrategies of its pool",
    Reason.OTHER_SCHEDULER: (
        "give it a schedulerName whose scheduler calls the extender, or add its scheduler to "
        "schedulerNames once it does"
    ),
    Reason.BARE_POD: "let a controller own it, or set barePods: replace",
    Reason.JOB_POD: "set jobs, if its Job may start its work over",
    Reason.JOB_COUNTS_DISRUPTIONS: "add a podFailurePolicy that ignores DisruptionTarget",
    Reason.CUSTOM_OWNER: "list the kind of its owner in replacingOwners, if it replaces its pods",
    Reason.LOCAL_STORAGE: "keep its data in a volume that other nodes reach",
    Reason.SINGLE_REPLICA: "run a second replica, or set singleReplica",
    Reason.TOO_FEW_REPLICAS: "run more replicas, or lower minReplicas",
    Reason.ROLLOUT_IN_PROGRESS: "wait until the rollout is complete",
    Reason.WORKLOAD_UNHEALTHY: "wait until all pods of the workload are available",
    Reason.STATEFUL_SET_INCOMPLETE: "wait until all pods of the StatefulSet are Ready",
    Reason.WORKLOAD_COOLDOWN: "wait until workloadCooldown is over",
    Reason.LINEAGE_COOLDOWN: "wait until lineageCooldown is over",
    Reason.NO_PDB: "create a PDB for it, or set podsWithoutPdb",
    Reason.PROTECTED_STORAGE_CLASS: "take the class out of protectedStorageClasses",
    Reason.SEVERAL_PDBS: "let only one PDB cover it",
    Reason.PDB_EXHAUSTED: "let the PDB allow a disruption: more healthy pods, or a lower minimum",
    Reason.TOO_YOUNG: "wait until it is old enough",
    Reason.NOT_MEASURED: "wait for a sample of it",
    Reason.NOT_READY: "the node has to become Ready",
    Reason.CORDONED: "uncordon the node",
    Reason.UNKNOWN_LOAD: "the node has to be measured: check metrics-server or Prometheus",
    Reason.UNDER_MAINTENANCE: "remove the maintenance label",
    Reason.NOT_NEEDED: "nothing: the goals are met without it",
    Reason.MIGRATING: "wait until the move is over",
    Reason.BREAKER_OPEN: "find out why moves failed: evenkeel history",
    Reason.WORKLOAD_QUARANTINED: "find out why its last move failed: evenkeel history",
}
_SPELLING: Final = (
    (re.compile(r"\bpdb\b"), "PDB"),
    (re.compile(r"\bdaemon set\b"), "DaemonSet"),
    (re.compile(r"\bstateful set\b"), "StatefulSet"),
)
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


def passed(gate: str) -> str:
    """Return what it means that a gate is passed."""
    found = _PASSED.get(gate)
    if found is not None:
        return found
    text = gate.replace("_", " ")
    for pattern, instead in _SPELLING:
        text = pattern.sub(instead, text)
    return text


def remedy(refusal: Refusal) -> str:
    """Return what would have to change for a refusal to go away."""
    found = _REMEDIES.get(refusal.name)
    if found is not None:
        return found
    return "nothing changes that" if refusal.permanent else "wait: this can pass by itself"


def remedies(refusals: Iterable[Refusal]) -> tuple[str, ...]:
    """Return the same for several, each with the name of the reason."""
    return tuple(dict.fromkeys(f"{each.name}: {remedy(each)}" for each in refusals))


def percent(value: float) -> float | None:
    """Return a percentage with one decimal; None if it is not known."""
    return round(value, 1) if isfinite(value) else None


def shown_percent(value: float | None) -> str:
    """Return a percentage for people; what is unknown is never zero."""
    return "unknown" if value is None or not isfinite(value) else f"{value:.0f} %"


def limits(config: LoadSettings, thresholds: Thresholds) -> tuple[str, ...]:
    """Return what a node may use at most, for each resource."""
    pairs = zip(config.further_resources, thresholds.further, strict=True)
    further = (f"{most:g} % {resource.name}" for resource, most in pairs)
    return (f"{thresholds.cpu:g} % CPU", f"{thresholds.memory:g} % memory", *further)


def amounts(cpu_milli: float, mem_bytes: float) -> str:
    """Return CPU and memory for people: `210m CPU, 512 MiB`."""
    return f"{cpu_milli:.0f}m CPU, {memory(mem_bytes)}"


def memory(amount: float) -> str:
    """Return an amount of memory for people."""
    if amount >= 10 * _GIB:
        return f"{amount / _GIB:.0f} GiB"
    return f"{amount / _GIB:.1f} GiB" if amount >= _GIB else f"{amount / _MIB:.0f} MiB"


def duration(seconds: float) -> str:
    """Return a length of time for people: `45s`, `7m`, `3h12m`, `4d`."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86_400}d"


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 pod`, `3 pods`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
