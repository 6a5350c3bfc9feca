# SPDX-License-Identifier: Apache-2.0
"""Create a scenario in a simulated cluster before it runs.

Controllers create their pods first; then pods with a given node are bound to it without the
scheduler, so that hot spots exist from the start. All other pods wait for the scheduler, and so
do those of an ordered StatefulSet that do not exist yet.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle

from common.cluster.records import NodeName
from common.config import ConfigError
from common.kube.resources import NAMESPACES, NODES, PODS
from simulator import build
from simulator.api import Json
from simulator.cluster import SimulatedCluster
from simulator.nodes.load import load_of
from simulator.scenarios.manifests import (
    names_of,
    namespaces_of,
    node_names,
    nodes_of,
    workload_manifests,
)
from simulator.scenarios.placing import Piece, Place, PlacingError, drawn_levels, place
from simulator.scenarios.schema import Pool, Scenario, Workload


def stage(scenario: Scenario, cluster: SimulatedCluster) -> None:
    """Create everything that a scenario describes."""
    for pool in scenario.pools:
        if pool.joins_after:
            later = partial(_join, cluster, pool)
            cluster.context.timers.after(pool.joins_after.seconds, later)
        else:
            _join(cluster, pool)
    for name in namespaces_of(scenario):
        if cluster.store.find(NAMESPACES, name) is None:
            cluster.create([build.namespace(name)])
    for workload in scenario.workloads:
        cluster.create(workload_manifests(workload))
    cluster.settle()
    for workload in scenario.workloads:
        _pin(cluster, workload)
    if scenario.load:
        _place(cluster, scenario)


def _join(cluster: SimulatedCluster, pool: Pool) -> None:
    cluster.create(nodes_of(pool))


def _pin(cluster: SimulatedCluster, workload: Workload) -> None:
    """Bind the pods of a workload to the nodes that it names, in turns."""
    turns = cycle(workload.nodes)
    for pod in _waiting(cluster, workload) if workload.nodes else ():
        node = next(turns)
        if cluster.store.find(NODES, node) is None:
            raise ConfigError(f"workload {workload.name}: node {node} not found")
        _bind(cluster, pod, node)


def _place(cluster: SimulatedCluster, scenario: Scenario) -> None:
    """Bind all other pods so that nodes have the usage of the scenario."""
    pods = [
        (pod, name)
        for workload in scenario.workloads
        for name in names_of(workload)
        for pod in _waiting(cluster, workload, name)
    ]
    try:
        found = place([_piece(cluster, *each) for each in pods], _places(cluster, scenario))
    except PlacingError as error:
        raise ConfigError(f"load: {error}") from None
    for pod, _ in pods:
        _bind(cluster, pod, found[_key(pod)])


def _places(cluster: SimulatedCluster, scenario: Scenario) -> list[Place]:
    present = [pool for pool in scenario.pools if not pool.joins_after]
    names = [name for pool in present for name in node_names(pool)]
    levels = drawn_levels(scenario, names, cluster.context.rng)
    return [_place_of(cluster, name, percent) for name, percent in sorted(levels.items())]


def _place_of(cluster: SimulatedCluster, name: str, percent: float) -> Place:
    view = cluster.cache.snapshot().nodes[NodeName(name)]
    whole, taken = view.node.allocatable, view.requested
    already = cluster.fleet.kubelets[name].overhead.cpu_milli
    for record in view.pods.values():
        pod = cluster.store.get(PODS, record.name, record.namespace)
        already += _usage_milli(cluster, pod)
    return Place(
        name,
        whole.cpu_milli * percent / 100 - already,
        whole.cpu_milli - taken.cpu_milli,
        whole.mem_bytes - taken.mem_bytes,
        view.node.max_pods - len(view.pods),
    )


def _piece(cluster: SimulatedCluster, pod: Json, workload: str) -> Piece:
    record = cluster.cache.pod(_key(pod))
    assert record is not None
    asked = record.requests
    return Piece(_key(pod), workload, _usage_milli(cluster, pod), asked.cpu_milli, asked.mem_bytes)


def _usage_milli(cluster: SimulatedCluster, pod: Json) -> int:
    annotations = pod["metadata"].get("annotations") or {}
    return load_of(_key(pod), annotations, cluster.context.rng).cpu_milli


def _waiting(cluster: SimulatedCluster, workload: Workload, name: str = "") -> list[Json]:
    """Return the pods of a workload, or of one by name, that have no node yet."""
    wanted = {name} if name else set(names_of(workload))
    found = [
        pod
        for pod in cluster.pods(workload.namespace)
        if (pod["metadata"].get("labels") or {}).get("app") in wanted
        and not pod["spec"].get("nodeName")
    ]
    return sorted(found, key=_key)


def _bind(cluster: SimulatedCluster, pod: Json, node: str) -> None:
    metadata = pod["metadata"]
    cluster.store.bind(metadata["name"], metadata["namespace"], node, uid=metadata["uid"])


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
