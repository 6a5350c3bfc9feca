# SPDX-License-Identifier: Apache-2.0
"""Small clusters to plan for: measured pods of real workloads, and plans from the real parts.

Loads and requests are percents of a standard node (10 cores, 10,000 MiB), so that tables
stay readable. What a pod uses is measured; what it asks for may differ. Goals come from the
real strategies on the samples at hand, pods are judged by the real gates, unless a test
states either itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.api.contract import MAINTENANCE_LABEL
from common.api.migrations import PodRef, Purpose
from common.api.objects import Deployment, PodDisruptionBudget, PodGroup, ReplicaSet, StatefulSet
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodRecord
from common.config import RebalancerConfiguration
from common.fit import FitIndex, World
from common.load import LoadTracker, LoadView
from common.usage.source import Sample, Usage
from rebalancer.evictability import Budgets, Context, judge
from rebalancer.goals import Goal
from rebalancer.planner import Demand, Plan, make_plan
from rebalancer.refusals import Refusal
from rebalancer.strategies import Assessment, Assessor, ClusterView
from simulator import build
from simulator.build import Manifest
from tests.support.worlds.migrations import migration, spec_of
from tests.support.worlds.wire import stamped, wire, wire_node, wire_pod

MIB = 1024.0 * 1024.0
NOW_S = 1_800_000_000.0
LONG_AGO = "2027-01-15T06:00:00+00:00"
CPU_MILLI = 10_000
MEM_MIB = 10_000

Judge = Callable[[PodRecord, Purpose], tuple[Refusal, ...]]
Pair = float | tuple[float, float]
"""CPU and memory in percent of a standard node; one number stands for both."""


def everything_moves(_pod: PodRecord, _purpose: Purpose) -> tuple[Refusal, ...]:
    """Stand for gates that refuse nothing."""
    return ()


def view_of(
    snapshot: Snapshot, load: LoadView, config: RebalancerConfiguration | None = None
) -> ClusterView:
    """Return a look at a cluster."""
    world = World(snapshot, FitIndex())
    return ClusterView(snapshot, load, config or RebalancerConfiguration(), NOW_S, world)


def gates(cluster: ClusterView) -> Judge:
    """Return the real gates for a look."""
    for_load = Context.of(cluster.snapshot, cluster.config, now_s=cluster.now_s)
    contexts = {purpose: for_load.for_purpose(purpose) for purpose in Purpose}
    return lambda pod, purpose: judge(pod, contexts[purpose])


def assess(cluster: ClusterView, judged: Judge) -> Assessment:
    """Return what the real strategies want of the samples at hand."""
    assessor = Assessor(cluster.config)
    return assessor.assess(
        cluster,
        lambda pod: not judged(pod, Purpose.LOAD),
        at_once=True,
        refusals=lambda pod: judged(pod, Purpose.LOAD),
    )


def demand_of(
    cluster: ClusterView,
    *,
    judged: Judge | None = None,
    goals: Sequence[Goal] | None = None,
) -> Demand:
    """Return a demand; goals and judgements that are not given are the real ones."""
    asked = judged or gates(cluster)
    assessment = assess(cluster, asked)
    if goals is not None:
        assessment = _with_goals(assessment, goals)
    return Demand(
        cluster=cluster,
        assessment=assessment,
        judge=asked,
        budgets=Budgets(cluster.snapshot.budgets.values()),
    )


def _with_goals(assessment: Assessment, goals: Sequence[Goal]) -> Assessment:
    return Assessment(
        goals=tuple(goals),
        waiting=(),
        participation=assessment.participation,
        notes=assessment.notes,
    )


@dataclass
class PlannerWorld:
    """A cluster that is put together by hand."""

    config: Mapping[str, Any] = field(default_factory=dict)
    state: ClusterState = field(default_factory=ClusterState)
    usage: dict[str, Usage] = field(default_factory=dict)
    overhead: dict[str, tuple[float, float]] = field(default_factory=dict)
    unmeasured: set[str] = field(default_factory=set)
    made_nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    made_pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    made_budgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    made_groups: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    _nodes: list[str] = field(default_factory=list)
    _on: dict[str, str] = field(default_factory=dict)
    _owners: dict[tuple[str, str], Manifest] = field(default_factory=dict)

    def node(
        self,
        name: str,
        *,
        size: float = 1.0,
        maintenance: bool = False,
        overhead: Pair = 0.0,
        measured: bool = True,
        labels: Mapping[str, str] | None = None,
        **given: Any,
    ) -> None:
        """Add a node, `size` times the standard one; the rest as for the builder."""
        self.made_nodes[name] = {
            "size": size,
            "maintenance": maintenance,
            "overhead": overhead,
            "measured": measured,
            "labels": labels,
            **given,
        }
        marks = {MAINTENANCE_LABEL: "true"} if maintenance else {}
        made = build.node(
            name,
            cpu=f"{round(size * CPU_MILLI)}m",
            memory=f"{round(size * MEM_MIB)}Mi",
            labels={**marks, **(labels or {})},
            **given,
        )
        self.state.nodes.upsert(wire_node(made))
        self._nodes.append(name)
        self.overhead[name] = _pair(overhead)
        if not measured:
            self.unmeasured.add(name)

    def pod(
        self,
        name: str,
        node: str,
        load: Pair,
        *,
        owner: str = "",
        kind: str = "ReplicaSet",
        replicas: int = 3,
        asks: Pair | None = None,
        labels: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        namespace: str = "default",
        created: str = LONG_AGO,
        status: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a pod that uses so much, of a workload of its own unless an owner is named."""
        self.made_pods[name] = {
            "node": node,
            "load": load,
            "owner": owner,
            "kind": kind,
            "replicas": replicas,
            "asks": asks,
            "labels": labels,
            "spec": spec,
            "annotations": annotations,
            "namespace": namespace,
            "created": created,
            "status": status,
        }
        cpu, memory = _pair(0.1 if asks is None else asks)
        template: dict[str, Any] = {
            "labels": {"app": owner or name, **(labels or {})},
            "cpu": f"{round(cpu * CPU_MILLI / 100)}m",
            "memory": f"{round(memory * MEM_MIB / 100)}Mi",
            "spec": spec,
            "annotations": annotations,
            "namespace": namespace,
        }
        made = build.pod(name, node=node, **template)
        self.state.pods.upsert(
            wire_pod(
                made,
                owner=self._owner(owner or name, kind, replicas, template),
                scheduled=LONG_AGO,
                status=None if status is None else dict(status),
                creationTimestamp=created,
            )
        )
        used = _pair(load)
        key = f"{namespace}/{name}"
        self.usage[key] = _usage(used)
        self._on[key] = node

    def after(self, plan: Plan) -> PlannerWorld:
        """Return the cluster once every move of a plan has been made."""
        world = PlannerWorld(config=self.config)
        goes = {move.pod: move.target for move in plan.moves}
        for name, given in self.made_nodes.items():
            world.node(name, **given)
        for name, given in self.made_pods.items():
            node = goes.get(f"{given['namespace']}/{name}", given["node"])
            world.pod(name, **{**given, "node": node})
        for name, given in self.made_budgets.items():
            world.pdb(name, **given)
        for name, (minimum, more) in self.made_groups.items():
            world.gang(name, minimum, **more)
        return world

    def moving(self, name: str, target: str, **given: Any) -> None:
        """Let a pod be on its way to another node, not evicted yet."""
        pod = next(p for p in self.state.snapshot().pods.values() if p.name == name)
        reference = PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        spec = spec_of(pod=reference, source=pod.node, target=target, **given)
        self.state.migrations.upsert(migration(spec))

    def gang(self, name: str, minimum: int, **more: Any) -> None:
        """Add a PodGroup that needs so many of its pods; the rest is part of its spec."""
        self.made_groups[name] = minimum, more
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **more}
        meta = {"name": name, "namespace": "default"}
        made = stamped({"kind": "PodGroup", "metadata": meta, "spec": spec})
        self.state.pod_groups.upsert(wire(PodGroup, made))

    def pdb(self, name: str, match: Mapping[str, str], *, allowed: int, healthy: int = 3) -> None:
        """Add a budget whose status allows so many disruptions."""
        self.made_budgets[name] = {"match": match, "allowed": allowed, "healthy": healthy}
        made = stamped(build.pdb(name, match=match, max_unavailable=max(allowed, 1)))
        made["metadata"]["generation"] = 1
        made["status"] = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": healthy - allowed,
            "expectedPods": healthy,
        }
        self.state.budgets.upsert(wire(PodDisruptionBudget, made))

    def cluster(self) -> ClusterView:
        """Measure everything and look at it."""
        snapshot = self.state.snapshot()
        tracker = LoadTracker()
        tracker.observe(self._sample(), snapshot, NOW_S)
        config = RebalancerConfiguration.model_validate(dict(self.config))
        return view_of(snapshot, tracker.view(snapshot, NOW_S), config)

    def demand(self, **given: Any) -> Demand:
        return demand_of(self.cluster(), **given)

    def plan(self, **given: Any) -> Plan:
        return make_plan(self.demand(**given))

    def _sample(self) -> Sample:
        sums = {
            name: list(self.overhead[name]) for name in self._nodes if name not in self.unmeasured
        }
        nodes = {
            name: [cpu * CPU_MILLI / 100, mem * MEM_MIB * MIB / 100]
            for name, (cpu, mem) in sums.items()
        }
        for key, used in self.usage.items():
            if self._on[key] in nodes:
                nodes[self._on[key]][0] += used.cpu_milli
                nodes[self._on[key]][1] += used.mem_bytes
        return Sample(
            nodes={NodeName(n): Usage(cpu, mem, NOW_S, 60.0) for n, (cpu, mem) in nodes.items()},
            pods={k: u for k, u in self.usage.items() if self._on[k] not in self.unmeasured},
        )

    def _owner(self, name: str, kind: str, replicas: int, template: Manifest) -> Manifest | None:
        if kind == "none":
            return None
        if (kind, name) not in self._owners:
            self._owners[kind, name] = self._made(name, kind, replicas, template)
        return self._owners[kind, name]

    def _made(self, name: str, kind: str, replicas: int, template: Manifest) -> Manifest:
        counts = dict.fromkeys(
            ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas"), replicas
        )
        if kind == "StatefulSet":
            made = stamped(build.stateful_set(name, replicas, **template))
            made["status"] = dict(counts)
            self.state.stateful_sets.upsert(wire(StatefulSet, made))
            return made
        above = stamped(build.deployment(name, replicas, **template))
        above["status"] = dict(counts)
        self.state.deployments.upsert(wire(Deployment, above))
        made = stamped(build.replica_set(name, replicas, **template))
        made["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": name,
                "uid": above["metadata"]["uid"],
                "controller": True,
            }
        ]
        made["status"] = dict(counts)
        self.state.replica_sets.upsert(wire(ReplicaSet, made))
        return made


def _pair(value: Pair) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, value)


def _usage(used: tuple[float, float]) -> Usage:
    cpu, memory = used
    return Usage(cpu * CPU_MILLI / 100, memory * MEM_MIB * MIB / 100, NOW_S, 60.0)


def world_of(row: Mapping[str, Any]) -> PlannerWorld:
    """Return the cluster that a row of a table describes."""
    world = PlannerWorld(config=row.get("config", {}))
    for name, given in row["nodes"].items():
        world.node(name, **(given or {}))
    for name, given in row["pods"].items():
        world.pod(name, **{key: _plain(value) for key, value in given.items()})
    for name, given in row.get("budgets", {}).items():
        world.pdb(name, **given)
    for name, minimum in row.get("gangs", {}).items():
        world.gang(name, minimum)
    return world


def _plain(value: Any) -> Any:
    """Return a pair where YAML wrote a list of two numbers."""
    pair = isinstance(value, list) and len(value) == 2
    return (float(value[0]), float(value[1])) if pair else value
