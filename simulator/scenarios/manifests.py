# SPDX-License-Identifier: Apache-2.0
"""The API objects of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulator import build
from simulator.build import Manifest
from simulator.scenarios.schema import Pool, Scenario, Workload


def node_names(pool: Pool) -> list[str]:
    """Return the names of a pool's nodes."""
    return [f"{pool.name}-{number}" for number in range(1, pool.count + 1)]


def nodes_of(pool: Pool) -> Iterator[Manifest]:
    """Return the nodes of a pool."""
    overhead = {
        build.OVERHEAD_CPU: pool.overhead.cpu,
        build.OVERHEAD_MEMORY: pool.overhead.memory,
    }
    taints = [taint.model_dump(exclude_defaults=False) for taint in pool.taints]
    for index, name in enumerate(node_names(pool)):
        yield build.node(
            name,
            cpu=pool.cpu,
            memory=pool.memory,
            pods=pool.pods,
            zone=pool.zones[index % len(pool.zones)] if pool.zones else None,
            labels=pool.labels,
            annotations={key: value for key, value in overhead.items() if value is not None},
            taints=[{k: v for k, v in taint.items() if v} for taint in taints],
        )


def names_of(workload: Workload) -> list[str]:
    """Return the names of a group of workloads."""
    if workload.count == 1:
        return [workload.name]
    return [f"{workload.name}-{number}" for number in range(1, workload.count + 1)]


def namespaces_of(scenario: Scenario) -> list[str]:
    """Return the namespaces that a scenario needs, beyond `default`."""
    found = dict.fromkeys(workload.namespace for workload in scenario.workloads)
    return [name for name in found if name != "default"]


def workload_manifests(workload: Workload) -> Iterator[Manifest]:
    """Return the objects of a group of workloads, PDBs first."""
    for name in names_of(workload):
        labels = {"app": name, **workload.labels}
        if workload.pdb is not None:
            yield build.pdb(
                name,
                match={"app": name},
                namespace=workload.namespace,
                min_available=workload.pdb.min_available,
                max_unavailable=workload.pdb.max_unavailable,
            )
        yield from _pods(workload, name, labels)


def _pods(workload: Workload, name: str, labels: Mapping[str, str]) -> Iterator[Manifest]:
    common = {"namespace": workload.namespace, "labels": labels, **_template(workload, name)}
    match workload.kind:
        case "Deployment":
            yield build.deployment(name, workload.replicas, **common)
        case "ReplicaSet":
            yield build.replica_set(name, workload.replicas, **common)
        case "StatefulSet":
            yield build.stateful_set(name, workload.replicas, parallel=workload.parallel, **common)
        case "Pod":
            for number in range(1, workload.replicas + 1):
                yield build.pod(name if workload.replicas == 1 else f"{name}-{number}", **common)


def _template(workload: Workload, name: str) -> dict[str, Any]:  # Any: keywords of the builder
    usage = workload.usage
    curves = {build.CPU_CURVE: usage.cpu_curve, build.MEMORY_CURVE: usage.memory_curve}
    spec: Manifest = {"terminationGracePeriodSeconds": int(workload.grace.seconds)}
    if workload.node_selector:
        spec["nodeSelector"] = dict(workload.node_selector)
    if workload.spread:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": name}},
            }
            for key in workload.spread
        ]
    return {
        "cpu": workload.requests.cpu,
        "memory": workload.requests.memory,
        "usage_cpu": usage.cpu,
        "usage_memory": usage.memory,
        "annotations": {
            **workload.annotations,
            **{key: text for key, text in curves.items() if text is not None},
        },
        "spec": spec,
    }
