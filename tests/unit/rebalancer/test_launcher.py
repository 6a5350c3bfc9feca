# SPDX-License-Identifier: Apache-2.0
"""From a move to its Migration: whom it names, until when, and what it is called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from common.api.contract import COMPLETION_INDEX, PREDICTED_USE
from common.api.migrations import read_prediction
from common.cluster.records import PodUid
from common.config import RebalancerConfiguration
from common.load import Belief
from rebalancer.launcher import predicted_use, spec_of
from rebalancer.planner import Level, Move
from tests.support.worlds.loop import move_of
from tests.support.worlds.planner import NOW_S, PlannerWorld


def cluster(**pod: Any) -> Belief:
    world = PlannerWorld()
    world.node("n1")
    world.pod("p", "n1", 30.0, asks=20.0, **pod)
    cluster = world.cluster()
    return Belief(cluster.snapshot, cluster.load)


def the_move(belief: Belief, **other: Any) -> Move:
    [uid] = belief.snapshot.pods
    return move_of("p", uid=uid, **other)


def spec(belief: Belief, config: dict[str, Any] | None = None, **move: Any) -> Any:
    settings = RebalancerConfiguration.model_validate(config or {})
    found = spec_of(the_move(belief, **move), "plan-7", belief, settings, NOW_S)
    assert found is not None
    return found


def test_the_controller_and_the_workload_above_it_are_named() -> None:
    found = spec(cluster(owner="web"))
    assert (found.controller.kind, found.controller.name) == ("ReplicaSet", "web")
    assert (found.workload.kind, found.workload.name) == ("Deployment", "web")
    assert (found.controller.api_version, found.workload.api_version) == ("apps/v1", "apps/v1")
    belief = cluster(owner="web")
    [pod] = belief.snapshot.pods.values()
    top = belief.snapshot.top_workload(pod)
    assert top is not None
    assert spec(belief).workload.uid == top.uid


def test_a_set_is_its_own_workload() -> None:
    found = spec(cluster(owner="db", kind="StatefulSet"))
    assert found.controller == found.workload
    assert (found.controller.kind, found.replacement_name) == ("StatefulSet", "")


def test_a_bare_pod_has_a_named_copy_and_no_controller() -> None:
    found = spec(cluster(kind="none"))
    assert (found.controller, found.workload) == (None, None)
    assert found.replacement_name == f"rescheduled-p-{NOW_S:.0f}"


def test_load_requests_and_message_are_those_of_the_pod() -> None:
    found = spec(cluster(), message="x" * 2000, needs=(PodUid("other"),))
    assert (found.load.cpu_milli, found.requests.cpu_milli) == (3000.0, 2000.0)
    assert (len(found.message), found.needs, found.plan_id) == (1024, ("other",), "plan-7")


def test_alternatives_name_neither_source_nor_target_nor_a_node_twice() -> None:
    names = ("n1", "n2", "n3", "n3", *(f"m{number}" for number in range(9)))
    found = spec(cluster(), source="n1", target="n2", alternatives=names)
    assert found.alternatives == ("n3", *(f"m{number}" for number in range(7)))


@pytest.mark.parametrize(
    ("config", "grace", "seconds"),
    [
        ({}, 30, 330),
        ({}, 600, 900),
        ({"migrationDeadline": "1m"}, 10, 70),
        ({"evictionGracePeriod": "2m"}, 10, 420),
        ({"evictionGracePeriod": "2m"}, 600, 900),
    ],
)
def test_the_deadline_leaves_time_for_the_grace_of_the_pod(
    config: dict[str, Any], grace: int, seconds: float
) -> None:
    found = spec(cluster(spec={"terminationGracePeriodSeconds": grace}), config)
    assert found.deadline.timestamp() == NOW_S + seconds


def test_only_pods_of_a_job_have_a_completion_index() -> None:
    belief = cluster(annotations={COMPLETION_INDEX: "3"})
    assert spec(belief).completion_index is None
    [pod] = belief.snapshot.pods.values()
    assert pod.owner is not None
    owner = msgspec.structs.replace(pod.owner, kind="Job")
    of_a_job = msgspec.structs.replace(pod, owner=owner)
    snapshot = msgspec.structs.replace(belief.snapshot, pods={pod.uid: of_a_job})
    assert spec(Belief(snapshot, belief.load)).completion_index == 3


def test_a_pod_that_is_gone_has_no_migration() -> None:
    belief = cluster()
    move = move_of("p", uid="another")
    assert spec_of(move, "plan", belief, RebalancerConfiguration(), NOW_S) is None


def test_what_is_predicted_survives_the_annotation() -> None:
    after = {the.source: Level(cpu=50.126, memory=40.0) for the in [move_of("p")]}
    uses = predicted_use(move_of("p"), after)
    text = msgspec.json.encode(uses).decode()
    assert read_prediction({PREDICTED_USE: text}) == uses
    assert uses.source is not None
    assert (uses.source.cpu_percent, uses.target) == (50.13, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"source": 3}'])
def test_a_prediction_that_makes_no_sense_is_none(text: str) -> None:
    assert read_prediction({PREDICTED_USE: text} if text else {}) is None
