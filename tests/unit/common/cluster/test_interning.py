# SPDX-License-Identifier: Apache-2.0
"""Many objects, one copy of what they share."""

from __future__ import annotations

from common.cluster.interning import EMPTY, Interner
from common.cluster.records import Owner, OwnerUid, pod_record
from simulator import build
from tests.support.worlds.wire import wire_pod


def owner(number: int) -> Owner:
    return Owner("apps/v1", "ReplicaSet", f"rs-{number}", OwnerUid(str(number)))


def test_equal_values_become_one_object() -> None:
    shared = Interner()
    assert shared.value(owner(1)) is shared.value(owner(1))
    assert shared.labels({"a": "1", "b": "2"}) is shared.labels({"b": "2", "a": "1"})
    assert shared.labels({}) is shared.labels(None) is EMPTY


def test_what_nobody_uses_any_more_is_dropped() -> None:
    shared = Interner()
    kept = [shared.value(owner(n)) for n in range(100)]
    labels = shared.labels({"app": "kept"})
    for number in range(100_000):
        shared.value(owner(number))
        shared.labels({"app": str(number)})
    assert len(shared) < 20_000
    assert all(shared.value(owner(n)) is kept[n] for n in range(100))
    assert shared.labels({"app": "kept"}) is labels


def test_replicas_of_one_template_share_their_shape() -> None:
    shared = Interner()
    spec = {"volumes": [{"name": "kube-api-access-x1", "projected": {"sources": []}}]}
    first = pod_record(wire_pod(build.pod("a", node="n1", spec=spec)), shared)
    spec["volumes"][0]["name"] = "kube-api-access-y2"
    second = pod_record(wire_pod(build.pod("b", node="n2", spec=spec)), shared)
    assert first.shape is second.shape
    assert (first.node, second.node) == ("n1", "n2")


def test_a_resized_replica_has_a_shape_of_its_own() -> None:
    shared = Interner()
    plain = pod_record(wire_pod(build.pod("a", node="n1", cpu="1")), shared)
    now = {"name": "app", "resources": {"requests": {"cpu": "2", "memory": "128Mi"}}}
    grown = wire_pod(build.pod("b", node="n1", cpu="1"), status={"containerStatuses": [now]})
    resized = pod_record(grown, shared)
    assert (plain.requests.cpu_milli, resized.requests.cpu_milli) == (1000, 2000)


def test_ephemeral_volumes_keep_their_names() -> None:
    shared = Interner()
    spec = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    record = pod_record(wire_pod(build.pod("a", spec=spec)), shared)
    assert record.shape.ephemeral_claims == ("scratch",)
