# SPDX-License-Identifier: Apache-2.0
"""What `kubectl get` shows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from common.kube.resources import DEPLOYMENTS, EVENTS, NODES, PDBS, PODS, Resource
from simulator import build
from simulator.api import Json, Store
from simulator.api.kubectl.tables import age, columns_of
from tests.support.clock import FakeClock

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"),
        (9 * 3600 + 300, "9h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds: int, expected: str) -> None:
    clock = FakeClock(now=NOW)
    store = Store(clock=clock, rng=random.Random(1))
    made = store.create(NODES, build.node("n"))["metadata"]["creationTimestamp"]
    assert age(made, NOW + seconds) == expected


def test_an_unknown_age_says_so() -> None:
    assert age(None, NOW) == "<unknown>"


def _row(resource: Resource, obj: Json, **changes: Any) -> dict[str, Any]:
    store = Store(clock=FakeClock(now=NOW), rng=random.Random(1))
    made = {**store.create(resource, obj), **changes}
    columns = columns_of(store.kind(resource))
    names = [name for name, _, _ in columns.headers]
    return dict(zip(names, columns.cells(made, NOW), strict=True))


def test_a_node_shows_whether_it_takes_pods() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"node-role.kubernetes.io/worker": ""}
    row = _row(NODES, build.node("n", unschedulable=True, labels=labels), status=ready)
    assert (row["Status"], row["Roles"]) == ("Ready,SchedulingDisabled", "worker")
    lost = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert _row(NODES, build.node("n"), status=lost)["Status"] == "NotReady"


def test_a_pod_shows_what_it_does() -> None:
    row = _row(PODS, build.pod("web", node="n"))
    assert (row["Ready"], row["Status"], row["Node"]) == ("0/1", "Pending", "n")
    gated = build.pod("web", spec={"schedulingGates": [{"name": "g"}]})
    assert _row(PODS, gated)["Status"] == "SchedulingGated"
    statuses = [{"ready": True, "restartCount": 3}]
    row = _row(PODS, build.pod("web"), status={"phase": "Running", "containerStatuses": statuses})
    assert (row["Ready"], row["Restarts"]) == ("1/1", 3)


def test_workloads_and_budgets_show_their_numbers() -> None:
    row = _row(DEPLOYMENTS, build.deployment("web", 3), status={"readyReplicas": 2})
    assert (row["Ready"], row["Available"]) == ("2/3", 0)
    row = _row(PDBS, build.pdb("b", match={"a": "b"}, min_available="50%"))
    assert (row["Min Available"], row["Max Unavailable"]) == ("50%", "N/A")


def test_an_event_shows_what_it_is_about() -> None:
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "eventTime": "2027-01-15T07:59:00.000000Z",
        "reportingController": "x",
        "reportingInstance": "y",
        "action": "Act",
        "reason": "Because",
        "type": "Normal",
        "note": "hello",
    }
    row = _row(EVENTS, event)
    assert row == {
        "Last Seen": "60s",
        "Type": "Normal",
        "Reason": "Because",
        "Object": "pod/web",
        "Message": "hello",
    }
