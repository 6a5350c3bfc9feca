# SPDX-License-Identifier: Apache-2.0
"""What keeps a pod on a node under maintenance before and after the deadline."""

from __future__ import annotations

from typing import Any

import pytest

from common.api.contract import (
    DO_NOT_DISRUPT,
    MAINTENANCE_FORCED_FROM,
    MAINTENANCE_LABEL,
    MAINTENANCE_SINCE,
    PREFER_NO_EVICTION,
    RESCHEDULING_LABEL,
    SAFE_TO_EVICT,
)
from common.api.migrations import Purpose
from common.api.objects import PodDisruptionBudget, ReplicaSet
from common.cache.state import ClusterState
from common.cluster.records import PodUid
from common.config import RebalancerConfiguration
from common.kube.timestamps import parse_time
from rebalancer.evictability import Context, judge
from simulator import build
from tests.support.worlds.wire import stamped, uid_of, wire, wire_node, wire_pod

SINCE, FORCED = "2026-11-16T09:00:00Z", "2026-11-16T13:00:00Z"
AFTER_S = parse_time(FORCED) + 1.0
DEADLINE = {"maintenance": {"deadline": "4h"}, "excludedPodSelector": "tier=kept"}


def reasons(
    replicas: int = 2,
    *,
    now_s: float = AFTER_S,
    said: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    purpose: Purpose = Purpose.MAINTENANCE,
    budget: bool = False,
    owned: bool = True,
    namespace: str = "default",
    **pod: Any,
) -> list[str]:
    """Return the reasons against moving a pod of a node whose deadline was announced."""
    state = ClusterState()
    annotations = {MAINTENANCE_SINCE: SINCE, MAINTENANCE_FORCED_FROM: FORCED} | (said or {})
    node = build.node("n1", labels={MAINTENANCE_LABEL: "true"}, annotations=annotations)
    state.nodes.upsert(wire_node(node))
    owner = stamped(build.replica_set("web", replicas, namespace=namespace))
    owner["status"] = {"replicas": replicas, "readyReplicas": replicas}
    state.replica_sets.upsert(wire(ReplicaSet, owner))
    labels = {"app": "web", **pod.pop("labels", {})}
    made = build.pod("web-a", namespace=namespace, node="n1", labels=labels, **pod)
    state.pods.upsert(wire_pod(made, owner=owner if owned else None))
    if budget:
        pdb = stamped(build.pdb("web", match={"app": "web"}, min_available=replicas))
        state.budgets.upsert(wire(PodDisruptionBudget, pdb))
    snapshot = state.snapshot()
    context = Context.of(
        snapshot,
        RebalancerConfiguration.model_validate(DEADLINE if config is None else config),
        now_s=now_s,
        purpose=purpose,
    )
    found = snapshot.pods[PodUid(uid_of(f"Pod/{namespace}/web-a"))]
    return [refusal.name for refusal in judge(found, context)]


EMPTY_DIR = {"volumes": [{"name": "data", "emptyDir": {}}]}
HOST_PATH = {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}
WISHES: dict[str, dict[str, Any]] = {
    "ReschedulingDisabled": {"labels": {RESCHEDULING_LABEL: "disabled"}},
    "ExcludedPod": {"labels": {"tier": "kept"}},
    "NotSafeToEvict": {"annotations": {SAFE_TO_EVICT: "false"}},
    "DoNotDisrupt": {"annotations": {DO_NOT_DISRUPT: "true"}},
    "PreferNoEviction": {"annotations": {PREFER_NO_EVICTION: ""}},
    "LocalStorage": {"spec": EMPTY_DIR},
}


@pytest.mark.parametrize(("reason", "pod"), WISHES.items(), ids=WISHES)
def test_a_wish_holds_until_the_deadline(reason: str, pod: dict[str, Any]) -> None:
    early = parse_time(FORCED) - 1.0
    assert reason in reasons(now_s=early, **pod)
    assert reason not in reasons(**pod)
    assert reason in reasons(purpose=Purpose.LOAD, **pod), "for load wishes always hold"


@pytest.mark.parametrize(
    ("reason", "pod"),
    [
        ("LocalStorage", {"spec": HOST_PATH}),
        ("BarePod", {"owned": False}),
        ("ExcludedNamespace", {"namespace": "kube-system"}),
        ("PdbExhausted", {"budget": True}),
    ],
    ids=["files of the node", "bare", "namespace", "budget"],
)
def test_what_protects_data_and_others_holds_forever(reason: str, pod: dict[str, Any]) -> None:
    assert any(found.startswith(reason[:3]) for found in reasons(**pod)), reasons(**pod)


@pytest.mark.parametrize(
    ("said", "config"),
    [
        ({MAINTENANCE_FORCED_FROM: "soon"}, None),
        ({MAINTENANCE_SINCE: "9999-99-99T00:00:00Z"}, None),
        ({MAINTENANCE_SINCE: "2026-11-16T12:00:00Z"}, None),
        ({}, {}),
    ],
    ids=["not announced", "no beginning", "began later", "no deadline"],
)
def test_without_a_deadline_that_was_announced_wishes_hold(
    said: dict[str, str], config: dict[str, Any] | None
) -> None:
    assert "DoNotDisrupt" in reasons(said=said, config=config, **WISHES["DoNotDisrupt"])
