# SPDX-License-Identifier: Apache-2.0
"""The kinds of objects we talk about, and where the API server serves them.

A path is built here and nowhere else, so that a name can never reach beyond its own
segment of the URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object and its address; the core group is the empty string."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """Return what `apiVersion` says in objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """Return the path of one object, or of all of them in a namespace or everywhere."""
        self._refuse_nonsense(namespace, name, subresource)
        scope = ("namespaces", namespace) if namespace and self.namespaced else ()
        segments = (*scope, self.plural, name, subresource)
        root = "/apis/" if self.group else "/api/"
        return root + self.api_version + "".join("/" + _segment(s) for s in segments if s)

    def _refuse_nonsense(
        self, namespace: str | None, name: str | None, subresource: str | None
    ) -> None:
        if name == "":
            raise ValueError(f"a {self.kind} without a name has no path")
        if namespace and not self.namespaced:
            raise ValueError(f"a {self.kind} lives in no namespace")
        if name and self.namespaced and not namespace:
            raise ValueError(f"the {self.kind} {name!r} needs its namespace")
        if subresource and not name:
            raise ValueError(f"the subresource {subresource!r} needs a name")


def _segment(text: str) -> str:
    # The names that apimachinery refuses (pkg/api/validate/content/path.go) are the ones
    # that would lead out of their segment.
    if text in (".", "..") or "/" in text or "%" in text:
        raise ValueError(f"{text!r} cannot be part of a path")
    return quote(text, safe=":")


NODES: Final = Resource("", "v1", "nodes", "Node", False)
PODS: Final = Resource("", "v1", "pods", "Pod", True)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False)
REPLICATIONCONTROLLERS: Final = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", True
)
CONFIGMAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", True)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True)
PVS: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
PVCS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event", True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True)
PDBS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)
REPLICASETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", True)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", True)
STATEFULSETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", True)
DAEMONSETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet", True)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", True)
AUTOSCALERS: Final = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", True
)
STORAGECLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CSINODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False)
PRIORITYCLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False
)
POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", True)
VPAS: Final = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", True
)
NODE_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False)
POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", True)
MIGRATIONS: Final = Resource("evenkeel.io", "v1alpha1", "migrations", "Migration", False)
