# SPDX-License-Identifier: Apache-2.0
"""Which pods are taken for the replacement of which moved pod."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.api.contract import COMPLETION_INDEX
from common.api.migrations import ControllerRef, MigrationStatus, PodRef
from common.api.objects import ObjectMeta, OwnerReference, Pod, PodSpec
from common.cache.replacements import (
    has_replaced,
    key_of_migration,
    key_of_pod,
    may_replace,
    nearness,
)
from common.cluster.interning import Interner
from common.cluster.migrations import MigrationRecord, migration_record
from common.cluster.records import PodRecord, pod_record
from tests.support.worlds.migrations import START, controller, migration, spec_of

SHARED = Interner()


def plan(kind: str = "ReplicaSet", **spec: object) -> MigrationRecord:
    owner = controller(kind, "c-1") if kind else None
    pod = PodRef(namespace="shop", name="web-1", uid="moved")
    said = {"controller": owner, "workload": None, "pod": pod, **spec}
    return migration_record(migration(spec_of(**said)), SHARED)


def pod(
    kind: str = "ReplicaSet",
    *,
    name: str = "web-9",
    namespace: str = "shop",
    owner: str = "c-1",
    uid: str = "new",
    node: str = "",
    later_s: int = 1,
    index: str | None = None,
    controls: bool = True,
) -> PodRecord:
    reference = OwnerReference(kind=kind, name="web", uid=owner, controller=controls)
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid,
        creation_timestamp=START + timedelta(seconds=30 + later_s),
        owner_references=[reference] if kind else None,
        annotations=None if index is None else {COMPLETION_INDEX: index},
    )
    return pod_record(Pod(metadata=meta, spec=PodSpec(node_name=node)), SHARED)


@pytest.mark.parametrize(
    ("migration", "other", "same"),
    [
        (plan(), pod(), True),
        (plan(), pod(owner="c-2"), False),
        (plan(), pod(namespace="thief"), False),
        (plan(), pod("ReplicationController"), False),
        (plan(), pod(controls=False), False),
        (plan("ReplicationController"), pod("ReplicationController"), True),
        (plan("StatefulSet"), pod("StatefulSet", name="web-1"), True),
        (plan("StatefulSet"), pod("StatefulSet", name="web-2"), False),
        (plan("StatefulSet"), pod("StatefulSet", name="web-1", owner="c-2"), False),
        (plan("Job", completion_index=0), pod("Job", index="0"), True),
        (plan("Job", completion_index=0), pod("Job", index="1"), False),
        (plan("Job", completion_index=0), pod("Job"), False),
        (plan("", replacement_name="web-9"), pod(""), True),
        (plan("", replacement_name="web-8"), pod(""), False),
        (plan("", replacement_name="web-9"), pod("", namespace="other"), False),
        (plan("", replacement_name="web-9"), pod("ReplicaSet"), False),
    ],
)
def test_a_pod_is_known_by_what_it_shares_with_the_moved_one(
    migration: MigrationRecord, other: PodRecord, same: bool
) -> None:
    assert (key_of_migration(migration) == key_of_pod(other)) is same


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", "CloneSet", ""])
def test_what_cannot_be_recognised_has_no_key(kind: str) -> None:
    assert key_of_migration(plan(kind)) is None


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", "CloneSet"])
def test_pods_that_cannot_be_recognised_have_no_key(kind: str) -> None:
    assert key_of_pod(pod(kind)) is None


def test_a_kind_of_the_same_name_by_someone_else_is_another_kind() -> None:
    kruise = ControllerRef(
        api_version="apps.kruise.io/v1beta1", kind="StatefulSet", name="web", uid="c-1"
    )
    found = plan("StatefulSet", controller=kruise)
    assert found.controller_kind == "StatefulSet.apps.kruise.io"
    assert key_of_migration(found) is None


AT_30 = {"created": START.replace(second=30)}


@pytest.mark.parametrize(
    ("other", "may", "has"),
    [
        (pod(later_s=1), True, False),
        (pod(later_s=0), True, False),
        (pod(later_s=-1), False, False),
        (pod(later_s=-1, node="node-2"), False, False),
        (pod(later_s=1, uid="moved", node="node-2"), False, False),
        (pod(later_s=1, node="elsewhere"), True, True),
        (pod(later_s=1, node="node-1"), True, True),
        # Of the same second: only where it runs tells whether it came after.
        (pod(later_s=0, node="elsewhere"), True, False),
        (pod(later_s=0, node="node-2"), True, True),
        (pod(later_s=0, node="node-3"), True, True),
    ],
)
def test_a_replacement_is_not_older_than_the_plan(other: PodRecord, may: bool, has: bool) -> None:
    spec = spec_of(pod=PodRef(namespace="shop", name="web-1", uid="moved"))
    record = migration_record(migration(spec, created=AT_30["created"]), SHARED)
    assert may_replace(record, other) is may
    assert has_replaced(record, other) is has


@pytest.mark.parametrize(
    ("other", "may"),
    [
        (pod(later_s=-50, node="elsewhere"), True),
        (pod(later_s=-61, node="node-2"), False),
        (pod(later_s=0, node="elsewhere"), True),
        (pod(later_s=5, uid="there", node="node-2"), False),
        (pod(later_s=-5, uid="there", node="node-2"), False),
        (pod(later_s=5, uid="moved", node="node-2"), False),
    ],
)
def test_who_was_there_before_tells_more_than_the_times_of_api_servers(
    other: PodRecord, may: bool
) -> None:
    spec = spec_of(pod=PodRef(namespace="shop", name="web-1", uid="moved"))
    status = MigrationStatus(present=("there",))
    made = migration(spec, created=AT_30["created"], status=status)
    record = migration_record(made, SHARED)
    assert may_replace(record, other) is may
    assert has_replaced(record, other) is may


def test_the_target_is_nearest_and_alternatives_come_next() -> None:
    found = plan()
    assert [nearness(found, node) for node in ("node-2", "node-3", "node-1", "x")] == [0, 1, 2, 2]
