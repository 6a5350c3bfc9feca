# SPDX-License-Identifier: Apache-2.0
"""Gates about what people ask for: in the configuration, and on the pods themselves."""

from __future__ import annotations

from typing import Final

from common.api.contract import (
    DO_NOT_DISRUPT,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.cluster.records import PodRecord
from rebalancer.evictability.context import Context
from rebalancer.refusals import Reason, Refusal

OPT_OUTS: Final = frozenset(
    {
        Reason.EXCLUDED_POD,
        Reason.RESCHEDULING_DISABLED,
        Reason.NOT_SAFE_TO_EVICT,
        Reason.DO_NOT_DISRUPT,
        Reason.PREFER_NO_EVICTION,
        Reason.OWN_POD,
    }
)
"""Reasons that users ask for: the pod could be moved, and they do not want it to be.

Every tenant can label its pods as our own, which has the same effect.
"""

# SystemCriticalPriority in pkg/apis/scheduling/types.go.
_SYSTEM_PRIORITY: Final = 2_000_000_000
_EXCLUDED: Final = Reason.EXCLUDED_POD.refusal()
_NOT_SELECTED: Final = Reason.POD_NOT_SELECTED.refusal()
_DISABLED: Final = Reason.RESCHEDULING_DISABLED.refusal(label=RESCHEDULING_LABEL)
_NOT_SAFE: Final = Reason.NOT_SAFE_TO_EVICT.refusal(annotation=SAFE_TO_EVICT)
_NO_DISRUPTION: Final = Reason.DO_NOT_DISRUPT.refusal(annotation=DO_NOT_DISRUPT)
_NO_EVICTION: Final = Reason.PREFER_NO_EVICTION.refusal(annotation=PREFER_NO_EVICTION)


def below_system_priority(pod: PodRecord, _: Context) -> Refusal | None:
    if pod.shape.priority < _SYSTEM_PRIORITY:
        return None
    return Reason.SYSTEM_PRIORITY.refusal(priority=pod.shape.priority)


def below_the_priority_threshold(pod: PodRecord, context: Context) -> Refusal | None:
    threshold, bound = context.config.priority_threshold, context.rules.min_priority
    if threshold is None:
        return None
    if bound is None:
        return Reason.PRIORITY_THRESHOLD_UNKNOWN.refusal(name=threshold.name)
    if pod.shape.priority < bound:
        return None
    return Reason.PRIORITY_THRESHOLD.refusal(priority=pod.shape.priority, threshold=bound)


def not_in_an_excluded_namespace(pod: PodRecord, context: Context) -> Refusal | None:
    if pod.namespace not in context.rules.excluded_namespaces:
        return None
    return Reason.EXCLUDED_NAMESPACE.refusal(namespace=pod.namespace)


def in_a_selected_namespace(pod: PodRecord, context: Context) -> Refusal | None:
    selector = context.rules.wanted_namespaces
    if not selector.requirements:
        return None
    namespace = context.snapshot.namespaces.get(pod.namespace)
    if namespace is not None and selector.matches(namespace.labels):
        return None
    return Reason.NAMESPACE_NOT_SELECTED.refusal(namespace=pod.namespace)


def not_an_excluded_pod(pod: PodRecord, context: Context) -> Refusal | None:
    return _EXCLUDED if context.rules.excluded_pods.matches(pod.labels) else None


def selected_pod(pod: PodRecord, context: Context) -> Refusal | None:
    return None if context.rules.wanted_pods.matches(pod.labels) else _NOT_SELECTED


def rescheduling_enabled(pod: PodRecord, _: Context) -> Refusal | None:
    return _DISABLED if pod.labels.get(RESCHEDULING_LABEL) == "disabled" else None


def safe_to_evict(pod: PodRecord, _: Context) -> Refusal | None:
    return _NOT_SAFE if pod.annotations.get(SAFE_TO_EVICT) == "false" else None


def may_be_disrupted(pod: PodRecord, _: Context) -> Refusal | None:
    return _NO_DISRUPTION if pod.annotations.get(DO_NOT_DISRUPT) == "true" else None


def eviction_not_discouraged(pod: PodRecord, _: Context) -> Refusal | None:
    """Any value counts: the descheduler checks only whether the annotation is set."""
    return _NO_EVICTION if PREFER_NO_EVICTION in pod.annotations else None


def namespace_acts(pod: PodRecord, context: Context) -> Refusal | None:
    """Other pods of its node go instead, where their namespaces let them."""
    rule = context.scope.observing_namespace(pod) if context.for_load else ""
    return Reason.RULE_OBSERVES.refusal(rule=rule) if rule else None


def scheduler_calls_our_extender(pod: PodRecord, context: Context) -> Refusal | None:
    """Binds load moves only: pods of a node that is emptied may go anywhere else."""
    name = pod.shape.scheduler_name
    if not context.for_load or name in context.rules.schedulers:
        return None
    return Reason.OTHER_SCHEDULER.refusal(scheduler=name)
