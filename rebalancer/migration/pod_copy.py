# SPDX-License-Identifier: Apache-2.0
"""The copy of a bare pod: what its author wrote, without what the cluster has added since.

The API server completes a pod when it is created; it refuses some of these additions in a
second pod, and others refer to the first pod. They are removed; harmless ones (tolerations
for lost nodes, defaults) stay. The sources are those of v1.36:
pkg/registry/core/pod/strategy.go, pkg/apis/core/validation/validation.go and
plugin/pkg/admission/{serviceaccount,priority,podtopologylabels}. Pure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from common.api.contract import (
    COPY_OF,
    MIGRATED_FROM_LABEL,
    MIGRATION_ID_LABEL,
    MIGRATION_REASON_LABEL,
    MIGRATION_STATUS_LABEL,
    MIGRATION_TIME,
    MIRROR_POD,
    ORIGINAL_POD,
    ORIGINAL_POD_NAME,
)

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects

TOKEN_VOLUME: Final = "kube-api-access-"
"""Prefix of the volume that admission adds for the service account's token."""

MOUNTED_ANYWHERE: Final = frozenset(
    {
        "azureFile", "cephfs", "configMap", "csi", "downwardAPI", "emptyDir", "glusterfs",
        "hostPath", "image", "nfs", "projected", "secret",
    }
)  # fmt: skip
"""Volumes that two pods may mount at the same time; of other kinds that is not known."""

_MOVE_KEYS: Final = frozenset(
    {
        MIGRATED_FROM_LABEL, MIGRATION_ID_LABEL, MIGRATION_REASON_LABEL, MIGRATION_STATUS_LABEL,
        MIGRATION_TIME, ORIGINAL_POD, ORIGINAL_POD_NAME, COPY_OF,
    }
)  # fmt: skip
# The admission plugin podtopologylabels copies them from the node when a pod is bound.
_NODE_LABELS: Final = frozenset({"topology.kubernetes.io/region", "topology.kubernetes.io/zone"})
_MANIFEST: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_NOT_COPIED: Final = frozenset(
    # Admission computes priority and preemptionPolicy from the class again and refuses other
    # values (plugin/pkg/admission/priority). Ephemeral containers cannot be set on create
    # (validation.go, ValidatePodCreate), and a gate would keep the copy waiting.
    {"nodeName", "priority", "preemptionPolicy", "ephemeralContainers", "schedulingGates"}
)


def copy_of(pod: Json, name: str) -> Json:
    """Return the pod to create in place of this one."""
    metadata, spec = pod["metadata"], _spec(pod)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": _without(metadata.get("labels"), _MOVE_KEYS | _NODE_LABELS),
            "annotations": {
                **_without(metadata.get("annotations"), _MOVE_KEYS | _MANIFEST),
                COPY_OF: metadata["uid"],
                ORIGINAL_POD: metadata["uid"],
                ORIGINAL_POD_NAME: metadata["name"],
            },
        },
        "spec": spec,
    }


def obstacles(pod: Json) -> Iterator[str]:
    """Yield why no copy can run beside this pod; the gates have checked most of it before."""
    metadata, spec = pod["metadata"], pod["spec"]
    if metadata.get("ownerReferences") or MIRROR_POD in (metadata.get("annotations") or {}):
        yield "it has an owner"
    if spec.get("restartPolicy", "Always") != "Always":
        yield f"its restartPolicy is {spec['restartPolicy']}"
    if spec.get("hostname"):
        yield "its hostname is fixed"
    if spec.get("resourceClaims"):
        yield "it has resource claims"
    yield from _host_access(spec)
    if any(port.get("hostPort") for port in _ports(spec)):
        yield "it has a host port"
    for volume in spec.get("volumes") or ():
        for kind in volume.keys() - {"name"} - MOUNTED_ANYWHERE:
            yield f"its volume {volume['name']} ({kind}) may not be mounted twice"


def _host_access(spec: Json) -> Iterator[str]:
    """Yield what our permissions do not let us give a copy (pod-guard in deploy/base/guards)."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(key):
            yield f"it has {key}"
    if any("hostPath" in volume for volume in spec.get("volumes") or ()):
        yield "it mounts files of its host"
    contexts = [
        container.get("securityContext") or {}
        for container in (*spec["containers"], *(spec.get("initContainers") or ()))
    ]
    if any(each.get("privileged") for each in contexts):
        yield "it is privileged"
    if any((each.get("capabilities") or {}).get("add") for each in contexts):
        yield "it adds capabilities"


def is_copy_of(pod: Json, uid: str) -> bool:
    """Tell whether a pod is annotated as the copy of the one with this uid."""
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(COPY_OF) == uid


def _spec(pod: Json) -> Json:
    spec = copy.deepcopy({k: v for k, v in pod["spec"].items() if k not in _NOT_COPIED})
    _remove_token(spec)
    labels = pod["metadata"].get("labels") or {}
    for term in _terms_with_label_keys(spec):
        _unmerge(term, labels)
    return spec


def _remove_token(spec: Json) -> None:
    """Remove the token of the first pod; admission gives the copy its own."""
    volumes = spec.get("volumes") or []
    tokens = {v["name"] for v in volumes if v["name"].startswith(TOKEN_VOLUME)}
    if not tokens:
        return
    spec["volumes"] = [volume for volume in volumes if volume["name"] not in tokens]
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        mounts = container.get("volumeMounts") or []
        container["volumeMounts"] = [mount for mount in mounts if mount["name"] not in tokens]


def _unmerge(term: Json, labels: Mapping[str, str]) -> None:
    """Remove from a selector what `matchLabelKeys` added: twice it would be refused.

    See applyMatchLabelKeysAndMismatchLabelKeys in pkg/registry/core/pod/strategy.go.
    """
    selector = term.get("labelSelector")
    if selector is None or not selector.get("matchExpressions"):
        return
    kept = list(selector["matchExpressions"])
    for keys, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(keys) or ():
            merged = {"key": key, "operator": operator, "values": [labels.get(key)]}
            if merged in kept:
                kept.remove(merged)
    selector["matchExpressions"] = kept


def _terms_with_label_keys(spec: Json) -> Iterator[Json]:
    """Yield every term and constraint that may have label keys."""
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        block = affinity.get(kind) or {}
        yield from block.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for weighted in block.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted["podAffinityTerm"]
    yield from spec.get("topologySpreadConstraints") or ()


def _ports(spec: Json) -> Iterator[Json]:
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        yield from container.get("ports") or ()


def _without(found: Mapping[str, str] | None, keys: frozenset[str]) -> dict[str, str]:
    return {key: value for key, value in (found or {}).items() if key not in keys}
