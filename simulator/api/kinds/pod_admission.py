# SPDX-License-Identifier: Apache-2.0
"""What admission adds to pods: priority, tolerations of lost nodes, label keys, topology.

Follows the plugins `priority`, `defaulttolerationseconds` and `podtopologylabels`
(plugin/pkg/admission) and mutatePodAffinity (pkg/registry/core/pod/strategy.go) of v1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.kube.resources import NODES, PODS, PRIORITYCLASSES
from simulator.api.errors import forbidden
from simulator.api.kinds.templates import pod_affinity_terms
from simulator.api.storage import Json

if TYPE_CHECKING:
    from simulator.api.registry import Registry

_EVICTING_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_S: Final = 300
_PREEMPTING: Final = "PreemptLowerPriority"
_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def assign_priority(pod: Json, registry: Registry) -> None:
    """Set the priority from the priority class; a priority alone is rejected."""
    spec, name = pod["spec"], pod["metadata"].get("name", "")
    wanted = spec.get("priorityClassName")
    found = registry.find(PRIORITYCLASSES, wanted) if wanted else _default_class(registry)
    if wanted and found is None:
        raise forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
    value = found["value"] if found else 0
    given = spec.get("priority")
    if given is not None and given != value:
        why = f"the integer value of priority ({given}) must not be provided in pod spec; priority "
        why += f"admission controller computed {value} from the given PriorityClass name"
        raise forbidden(PODS, name, why)
    if found:
        spec["priorityClassName"] = found["metadata"]["name"]
    spec["priority"] = value
    _assign_preemption(spec, name, (found or {}).get("preemptionPolicy") or _PREEMPTING)


def _assign_preemption(spec: Json, name: str, policy: str) -> None:
    given = spec.get("preemptionPolicy")
    if given is not None and given != policy:
        why = f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; "
        why += f"priority admission controller computed {policy} from the given PriorityClass name"
        raise forbidden(PODS, name, why)
    spec["preemptionPolicy"] = policy


def _default_class(registry: Registry) -> Json | None:
    defaults = [each for each in registry.list(PRIORITYCLASSES) if each.get("globalDefault")]
    return min(defaults, key=lambda each: int(each["value"]), default=None)


def tolerate_lost_nodes(spec: Json) -> None:
    """Add tolerations of five minutes for nodes that are not ready or unreachable."""
    tolerations = list(spec.get("tolerations") or ())
    for taint in _EVICTING_TAINTS:
        if not any(_covers(toleration, taint) for toleration in tolerations):
            more = {"key": taint, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**more, "tolerationSeconds": _TOLERATED_S})
    spec["tolerations"] = tolerations


def _covers(toleration: Json, taint: str) -> bool:
    named = toleration.get("key") in (taint, "", None)
    return named and toleration.get("effect") in ("NoExecute", "", None)


def merge_label_keys(spec: Json, labels: Json) -> None:
    """Merge `matchLabelKeys` into the selectors, where kube-scheduler reads them."""
    for term in pod_affinity_terms(spec):
        _extend(term, labels, "matchLabelKeys", "In")
        _extend(term, labels, "mismatchLabelKeys", "NotIn")
    for constraint in spec.get("topologySpreadConstraints") or ():
        _extend(constraint, labels, "matchLabelKeys", "In")


def _extend(term: Json, labels: Json, keys: str, operator: str) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for key in term.get(keys) or ():
        if key in labels:
            more = {"key": key, "operator": operator, "values": [labels[key]]}
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), more]


def topology_labels(registry: Registry, node_name: str | None) -> Json:
    """Return the topology labels that a pod gets from its node."""
    node = registry.find(NODES, node_name) if node_name else None
    labels = (node["metadata"].get("labels") or {}) if node else {}
    return {key: labels[key] for key in _TOPOLOGY_LABELS if key in labels}
