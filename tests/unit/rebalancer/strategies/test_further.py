# SPDX-License-Identifier: Apache-2.0
"""Resources by query: a node above such a threshold is relieved, and no node above it is filled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from bench.observed import observed, ready_node, running_pod
from common.api.contract import MAINTENANCE_LABEL
from common.api.migrations import MigrationStatus, Phase
from common.api.objects import Object, ReplicaSet
from common.cache.state import ClusterState
from common.cluster.records import NodeName
from common.config import RebalancerConfiguration
from common.load import Belief, LoadTracker
from common.usage.source import FurtherSample, Sample, Usage
from rebalancer.decision import Decider
from rebalancer.planner import Plan
from simulator import build
from tests.support.worlds.migrations import migration, spec_of

NOW_S = 1_800_000_000.0
CORES = 10_000.0
PODS = 4
LINE = 1000.0
"""What a node can send; each pod of a node sends a quarter of what the node does."""


def config(**more: Any) -> RebalancerConfiguration:
    resource = {"name": "network", "nodeQuery": "a", "podQuery": "b", "capacity": LINE}
    return RebalancerConfiguration.model_validate(
        {
            "enabledStrategies": ["ResourceOptimization"],
            "usageSource": "prometheus",
            "prometheus": {"url": "http://prometheus:9090", "resources": [resource]},
            **more,
        }
    )


class Scene:
    """Nodes with four pods each; `network` says in percent what they send."""

    def __init__(self, network: Mapping[str, float | None], cpu: Mapping[str, float]) -> None:
        self.state = ClusterState()
        self._network, self._cpu = network, cpu
        self.offered = {NodeName(name): LINE for name in cpu}
        since = datetime.fromtimestamp(NOW_S - 3600.0, UTC)

        def aged(made: Any) -> Any:
            assert isinstance(made, Object)
            made.metadata.creation_timestamp = since
            return made

        for node in cpu:
            self.state.nodes.upsert(aged(ready_node(build.node(node, cpu="10", memory="16Gi"))))
            owner = build.replica_set(f"{node}-app", PODS, cpu="100m", memory="64Mi")
            status = {"replicas": PODS, "readyReplicas": PODS, "availableReplicas": PODS}
            self.state.replica_sets.upsert(aged(observed(ReplicaSet, {**owner, "status": status})))
            template = owner["spec"]["template"]
            for number in range(PODS):
                labels = template["metadata"]["labels"]
                name = f"{node}-app-{number}"
                made = build.pod(name, node=node, labels=labels, spec=template["spec"])
                self.state.pods.upsert(aged(running_pod(made, owner, since=since.isoformat())))

    def sample(self) -> Sample:
        mem = 2.0**30
        used = {NodeName(n): p * CORES / 100.0 for n, p in self._cpu.items()}
        sent = {n: p * LINE / 100.0 for n, p in self._network.items() if p is not None}
        keys = [(f"default/{n}-app-{i}", n) for n in self._cpu for i in range(PODS)]
        return Sample(
            nodes={n: Usage(u, PODS * mem, NOW_S, 30.0) for n, u in used.items()},
            pods={k: Usage(used[NodeName(n)] / PODS, mem, NOW_S, 30.0) for k, n in keys},
            further=(
                FurtherSample(
                    nodes={NodeName(n): value for n, value in sent.items()},
                    offered=self.offered,
                    pods={k: sent[n] / PODS for k, n in keys if n in sent},
                ),
            ),
        )

    def plan(self, settings: RebalancerConfiguration | None = None) -> Plan:
        settings = settings or config()
        tracker, snapshot = LoadTracker(settings), self.state.snapshot()
        tracker.observe(self.sample(), snapshot, NOW_S)
        belief = Belief(snapshot, tracker.view(snapshot, NOW_S))
        return Decider(settings).decide(belief, NOW_S, at_once=True).plan


def ends(plan: Plan) -> set[tuple[str, str]]:
    return {(move.source, move.target) for move in plan.moves}


CALM = {"n1": 20.0, "n2": 10.0, "n3": 40.0}


def test_a_node_above_its_threshold_is_relieved_with_the_fewest_moves() -> None:
    plan = Scene({"n1": 96.0, "n2": 70.0, "n3": 10.0}, CALM).plan()
    # n2 has less CPU in use, and no room for another 24 %.
    assert ends(plan) == {("n1", "n3")}
    [move] = plan.moves
    assert move.message == (
        "n1 uses 96 % network (allowed 80 %, prometheus.resources[0].threshold)"
    )
    assert plan.goals == ("n1 below 80 % network",)
    assert plan.lower_bound.evictions == 1
    node = next(node for node in plan.nodes if node.name == "n1")
    assert dict(node.before.further) == {"network": pytest.approx(96.0)}
    assert dict(node.after.further) == {"network": pytest.approx(72.0)}


def test_a_node_above_it_is_never_a_target() -> None:
    """n2 is the emptiest by CPU."""
    plan = Scene({"n1": 10.0, "n2": 90.0, "n3": 10.0}, {"n1": 95.0, "n2": 5.0, "n3": 40.0}).plan()
    assert {target for _, target in ends(plan)} <= {"n1", "n3"}
    assert ("n1", "n3") in ends(plan)


def test_the_spread_of_it_is_no_goal() -> None:
    settings = config(enabledStrategies=["LoadBalancing"], imbalanceThreshold=10.0)
    even = dict.fromkeys(CALM, 30.0)
    assert Scene({"n1": 75.0, "n2": 0.0, "n3": 0.0}, even).plan(settings).moves == ()


def test_the_spread_of_cpu_fills_no_node_with_it() -> None:
    settings = config(enabledStrategies=["LoadBalancing"], imbalanceThreshold=10.0)
    cpu = {"n1": 60.0, "n2": 20.0, "n3": 20.0}
    plan = Scene({"n1": 40.0, "n2": 75.0, "n3": 0.0}, cpu).plan(settings)
    assert plan.moves
    assert all(dict(node.after.further)["network"] <= 80.0 for node in plan.nodes)


def test_a_pool_has_a_threshold_of_its_own() -> None:
    pool: Any = {"name": "edge", "nodeSelector": "", "resourceThresholds": {"network": 97.0}}
    scene = Scene({"n1": 96.0, "n2": 70.0, "n3": 10.0}, CALM)
    assert scene.plan(config(pools=[pool])).moves == ()
    pool["resourceThresholds"] = {"network": 90.0}
    [move] = scene.plan(config(pools=[pool])).moves
    assert move.message == "n1 uses 96 % network (allowed 90 %, resourceThresholds of pool edge)"


def test_an_unknown_node_is_neither_source_nor_target_for_it_only() -> None:
    """Of n3 nothing is known: it would be the only one with room for what n1 sends."""
    plan = Scene({"n1": 96.0, "n2": 70.0, "n3": None}, CALM).plan()
    assert plan.moves == ()
    assert any("How much network is used on n3 is not known" in note for note in plan.notes), (
        plan.notes
    )
    # For CPU it takes part as before: the pods of n2 send nothing.
    plan = Scene({"n1": 70.0, "n2": 0.0, "n3": None}, {"n1": 70.0, "n2": 95.0, "n3": 5.0}).plan()
    assert ends(plan) == {("n2", "n3")}


def test_a_node_that_has_none_takes_no_pod_that_uses_it_and_is_not_noted() -> None:
    scene = Scene({"n1": 96.0, "n2": 70.0, "n3": 0.0}, CALM)
    scene.offered[NodeName("n3")] = 0.0
    plan = scene.plan()
    assert plan.moves == ()
    assert not any("not known" in note for note in plan.notes)


def test_what_is_not_read_hides_nothing_else() -> None:
    scene = Scene({}, {"n1": 95.0, "n2": 5.0, "n3": 40.0})
    assert ends(scene.plan()) == {("n1", "n2")}


@pytest.mark.parametrize(("ended_s", "moves"), [(10.0, 0), (181.0, 1)])
def test_after_a_move_a_window_has_to_pass(ended_s: float, moves: int) -> None:
    """Until then the figure is that of the pod that left."""
    scene = Scene({"n1": 96.0, "n2": 70.0, "n3": 10.0}, CALM)
    made, at = migration(spec_of(source="n1", target="n2")), NOW_S - ended_s
    moment = datetime.fromtimestamp(at, UTC)
    made.status = MigrationStatus(phase=Phase.COMPLETED, evicted_at=moment, finished_at=moment)
    scene.state.migrations.upsert(made)
    assert len(scene.plan().moves) == moves


def test_a_drain_needs_no_figures_of_it() -> None:
    """Before the first sample a node can still be emptied, by requests."""
    scene, settings = Scene({}, CALM), config(enabledStrategies=["NodeMaintenance"])
    made = build.node("n1", cpu="10", memory="16Gi", labels={MAINTENANCE_LABEL: "true"})
    scene.state.nodes.upsert(ready_node(made))
    snapshot = scene.state.snapshot()
    belief = Belief(snapshot, LoadTracker(settings).view(snapshot, NOW_S))
    plan = Decider(settings).decide(belief, NOW_S, at_once=True).plan
    assert len(plan.moves) == PODS
