# SPDX-License-Identifier: Apache-2.0
"""Builds Kubernetes API objects for scenarios, tests, benchmarks and demos.

Every function returns a plain dict, as a person would write it in YAML. The same manifest works
on the simulator and on the real control plane: the usage of a pod is set with annotations of
kwok, which both support.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Manifest = dict[str, Any]  # Any: nested API objects

USAGE_CPU = "kwok.x-k8s.io/usage-cpu"
USAGE_MEMORY = "kwok.x-k8s.io/usage-memory"
CPU_CURVE = "evenkeel.io/usage-cpu-curve"
MEMORY_CURVE = "evenkeel.io/usage-memory-curve"
OVERHEAD_CPU = "evenkeel.io/overhead-cpu"
OVERHEAD_MEMORY = "evenkeel.io/overhead-memory"
STOP_AFTER = "evenkeel.io/stop-after"
IMAGE = "registry.invalid/app:1"


def node(
    name: str,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: int = 110,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Manifest] = (),
    unschedulable: bool = False,
    extended: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a node that kwok manages and metrics-server can scrape."""
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
    zones = {"topology.kubernetes.io/zone": zone} if zone else {}
    spec: Manifest = {"taints": list(taints)} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **zones, **(labels or {})},
            "annotations": {
                "kwok.x-k8s.io/node": "fake",
                "metrics.k8s.io/resource-metrics-path": f"/metrics/nodes/{name}/metrics/resource",
                **(annotations or {}),
            },
        },
        "spec": spec,
        "status": {"capacity": dict(resources), "allocatable": dict(resources)},
    }


def namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Manifest:
    """Return a namespace."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def container(
    name: str = "app",
    *,
    cpu: str | None = None,
    memory: str | None = None,
    cpu_limit: str | None = None,
    memory_limit: str | None = None,
    host_ports: Iterable[int] = (),
    sidecar: bool = False,
) -> Manifest:
    """Return a container; a sidecar belongs among the init containers."""
    ports = [{"containerPort": p, "hostPort": p} for p in host_ports]
    return {
        "name": name,
        "image": IMAGE,
        "resources": {
            "requests": _present(cpu=cpu, memory=memory),
            "limits": _present(cpu=cpu_limit, memory=memory_limit),
        },
        **({"ports": ports} if ports else {}),
        **({"restartPolicy": "Always"} if sidecar else {}),
    }


def pod_template(
    *,
    labels: Mapping[str, str],
    cpu: str | None = "100m",
    memory: str | None = "128Mi",
    usage_cpu: str | None = None,
    usage_memory: str | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return a pod template; `spec` overrides or adds any field of its spec."""
    usage = {USAGE_CPU: usage_cpu, USAGE_MEMORY: usage_memory}
    return {
        "metadata": {
            "labels": dict(labels),
            "annotations": {
                **{key: value for key, value in usage.items() if value is not None},
                **(annotations or {}),
            },
        },
        "spec": {
            "containers": [container(cpu=cpu, memory=memory)],
            # Simulated processes need no time to shut down.
            "terminationGracePeriodSeconds": 1,
            **(spec or {}),
        },
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    node: str | None = None,
    labels: Mapping[str, str] | None = None,
    **template: Any,
) -> Manifest:
    """Return a pod without an owner; the rest as for `pod_template`."""
    made = pod_template(labels=labels or {"app": name}, **template)
    if node is not None:
        made["spec"]["nodeName"] = node
    metadata = {"name": name, "namespace": namespace, **made["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def deployment(
    name: str,
    replicas: int,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    **template: Any,
) -> Manifest:
    """Return a Deployment; the rest as for `pod_template`."""
    return _workload("Deployment", name, replicas, namespace, labels, template)


def replica_set(
    name: str,
    replicas: int,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    **template: Any,
) -> Manifest:
    """Return a ReplicaSet; the rest as for `pod_template`."""
    return _workload("ReplicaSet", name, replicas, namespace, labels, template)


def stateful_set(
    name: str,
    replicas: int,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    parallel: bool = False,
    **template: Any,
) -> Manifest:
    """Return a StatefulSet; the rest as for `pod_template`."""
    made = _workload("StatefulSet", name, replicas, namespace, labels, template)
    made["spec"]["serviceName"] = name
    made["spec"]["podManagementPolicy"] = "Parallel" if parallel else "OrderedReady"
    return made


def pdb(
    name: str,
    *,
    match: Mapping[str, str],
    namespace: str = "default",
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> Manifest:
    """Return a PodDisruptionBudget."""
    limits = {"minAvailable": min_available, "maxUnavailable": max_unavailable}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": dict(match)},
            **{key: value for key, value in limits.items() if value is not None},
        },
    }


def _workload(
    kind: str,
    name: str,
    replicas: int,
    namespace: str,
    labels: Mapping[str, str] | None,
    template: Mapping[str, Any],
) -> Manifest:
    chosen = dict(labels or {"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": chosen},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": chosen},
            "template": pod_template(labels=chosen, **template),
        },
    }


def _present(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
