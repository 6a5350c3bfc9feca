# SPDX-License-Identifier: Apache-2.0
"""`why` agrees with the planner: a pod is movable if and only if the planner may move it.

The clusters are those of the fuzz test, with extreme objects. Three judges: the planner's own list
of candidates, every move that a plan really makes, and the gate oracle, which shares no code.
"""

from __future__ import annotations

from typing import Any

import pytest

from common.api.migrations import Purpose
from common.cluster.records import PodUid
from console.data import WhyDocument, WhyKind
from rebalancer.decision import Decider
from rebalancer.inspection import Inspection, why, why_pod
from rebalancer.planner.problem import Problem
from tests.support.worlds.fuzz_objects import fuzz_cluster
from tests.unit.rebalancer.fuzz_run import CONFIG, FuzzRun
from tests.unit.rebalancer.gate_oracle import GateOracle

CLUSTERS = 100
TOGETHER = 20
NOW_AFTER_S = 5.0


def inspected(seed: int) -> Inspection:
    belief = FuzzRun(fuzz_cluster(seed)).believe({})
    return Inspection(belief, CONFIG, _now(belief.load))


def _now(load: Any) -> float:
    samples = [node.sample_end_s for node in load.nodes.values() if node.sample_end_s is not None]
    return max(samples, default=1_800_000_000.0) + NOW_AFTER_S


def candidates(asked: Inspection) -> set[PodUid]:
    """Return the pods that a new planner would consider, by its own list."""
    problem = Problem(Decider(CONFIG).demand(asked.belief, asked.now_s))
    return {m.pod.uid for row in range(len(problem.nodes)) for m in problem.judged(row)}


def answer(asked: Inspection, name: str) -> WhyDocument:
    found = why_pod(asked, name)
    assert found is not None
    return found


@pytest.mark.parametrize("first", range(0, CLUSTERS, TOGETHER))
def test_a_pod_is_movable_if_and_only_if_the_planner_may_move_it(first: int) -> None:
    judged = movable = 0
    for seed in range(first, first + TOGETHER):
        asked = inspected(seed)
        wanted = candidates(asked)
        for pod in asked.snapshot.pods.values():
            found = answer(asked, pod.key)
            assert found.good is (pod.uid in wanted), (seed, pod.key, found)
            assert found.good is all(gate.passed for gate in found.gates), (seed, pod.key)
            judged, movable = judged + 1, movable + found.good
        assert all(answer(asked, move.pod).good for move in asked.plan.moves), seed
    # Both answers were put to the test, and a thousand pods over all clusters.
    assert judged >= 1000 * TOGETHER // CLUSTERS
    assert 0 < movable < judged


def test_what_is_movable_is_not_forbidden_by_an_oracle_of_its_own() -> None:
    for seed in range(TOGETHER):
        cluster = fuzz_cluster(seed)
        asked = inspected(seed)
        oracle = GateOracle(cluster)
        for pod in asked.snapshot.pods.values():
            if answer(asked, pod.key).good:
                load = asked.purpose_of(pod) is Purpose.LOAD
                assert list(oracle._pod(oracle.pods[pod.uid], load=load)) == [], (seed, pod.key)


@pytest.mark.parametrize("seed", range(3))
def test_every_object_has_an_answer_and_no_other_has(seed: int) -> None:
    asked = inspected(seed)
    for name in asked.snapshot.nodes:
        assert why(asked, WhyKind.NODE, name) is not None
    for workload in asked.snapshot.workloads.values():
        assert why(asked, WhyKind.WORKLOAD, workload.key) is not None
    for kind in WhyKind:
        assert why(asked, kind, "no/such") is None
