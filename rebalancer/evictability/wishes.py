"""Gates about what people asked for: in the configuration, and on the pods themselves."""

from __future__ import annotations

from typing import Final

from common.cluster.records import PodRecord
from common.contract import (
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from rebalancer.evictability.context import Context
from rebalancer.reasons import Refusal

OPT_OUTS: Final = frozenset(
    {
        "ExcludedPod",
        "ReschedulingDisabled",
        "NotSafeToEvict",
        "DoNotDisrupt",
        "PreferNoEviction",
        "OwnPod",
    }
)
"""Reasons that users ask for: the pod could be moved, and is not to be.

Every tenant can label its pods as our own, which has the same effect.
"""

_SYSTEM_PRIORITY: Final = 2_000_000_000
_EXCLUDED: Final = Refusal("ExcludedPod", "it matches excludedPodSelector")
_NOT_SELECTED: Final = Refusal("PodNotSelected", "it does not match podSelector")
_DISABLED: Final = Refusal("ReschedulingDisabled", f"its label {RESCHEDULING_LABEL} is disabled")
_NOT_SAFE: Final = Refusal("NotSafeToEvict", f"its annotation {SAFE_TO_EVICT} is false")
_NO_DISRUPTION: Final = Refusal("DoNotDisrupt", f"its annotation {DO_NOT_DISRUPT} is true")
_NO_EVICTION: Final = Refusal("PreferNoEviction", f"it has the annotation {PREFER_NO_EVICTION}")


def below_system_priority(pod: PodRecord, _: Context) -> Refusal | None:
    if pod.shape.priority < _SYSTEM_PRIORITY:
        return None
    return Refusal("SystemPriority", f"its priority {pod.shape.priority} is that of system pods")


def below_the_priority_threshold(pod: PodRecord, context: Context) -> Refusal | None:
    threshold, bound = context.config.priority_threshold, context.rules.min_priority
    if threshold is None:
        return None
    if bound is None:
        words = f"priorityThreshold names PriorityClass {threshold.name}, which is not there"
        return Refusal("PriorityThresholdUnknown", words, for_good=False)
    if pod.shape.priority < bound:
        return None
    words = f"its priority {pod.shape.priority} is not below priorityThreshold ({bound})"
    return Refusal("PriorityThreshold", words)


def not_in_an_excluded_namespace(pod: PodRecord, context: Context) -> Refusal | None:
    if pod.namespace not in context.rules.excluded_namespaces:
        return None
    return Refusal("ExcludedNamespace", f"its namespace {pod.namespace} is excluded")


def in_a_selected_namespace(pod: PodRecord, context: Context) -> Refusal | None:
    selector = context.rules.wanted_namespaces
    if not selector.requirements:
        return None
    namespace = context.snapshot.namespaces.get(pod.namespace)
    if namespace is not None and selector.matches(namespace.labels):
        return None
    words = f"its namespace {pod.namespace} does not match namespaceSelector"
    return Refusal("NamespaceNotSelected", words)


def not_an_excluded_pod(pod: PodRecord, context: Context) -> Refusal | None:
    return _EXCLUDED if context.rules.excluded_pods.matches(pod.labels) else None


def a_selected_pod(pod: PodRecord, context: Context) -> Refusal | None:
    return None if context.rules.wanted_pods.matches(pod.labels) else _NOT_SELECTED


def rescheduling_enabled(pod: PodRecord, _: Context) -> Refusal | None:
    return _DISABLED if pod.labels.get(RESCHEDULING_LABEL) == "disabled" else None


def safe_to_evict(pod: PodRecord, _: Context) -> Refusal | None:
    return _NOT_SAFE if pod.annotations.get(SAFE_TO_EVICT) == "false" else None


def may_be_disrupted(pod: PodRecord, _: Context) -> Refusal | None:
    return _NO_DISRUPTION if pod.annotations.get(DO_NOT_DISRUPT) == "true" else None


def eviction_not_unwanted(pod: PodRecord, _: Context) -> Refusal | None:
    """Its value says nothing: the descheduler looks only whether it is there."""
    return _NO_EVICTION if PREFER_NO_EVICTION in pod.annotations else None


def guided_by_our_extender(pod: PodRecord, context: Context) -> Refusal | None:
    """Bind load moves only: a node that is emptied needs its pods anywhere else."""
    name = pod.shape.scheduler_name
    if not context.for_load or name in context.rules.schedulers:
        return None
    return Refusal("OtherScheduler", f"scheduler {name} would place its replacement by chance")
