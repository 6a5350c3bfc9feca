# SPDX-License-Identifier: Apache-2.0
"""Which workloads get a temporary budget, and when one has to go."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api.contract import EXPIRES, TEMPORARY_PDB_LABEL
from common.api.migrations import PodRef
from common.api.objects import (
    Deployment,
    Job,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)
from common.api.selectors import LabelSelector
from common.cache.snapshot import Snapshot
from common.cache.state import ClusterState
from common.cluster.records import OwnerUid
from common.cluster.selectors import NOTHING, Operator, Requirement, Selector, from_label_selector
from common.cluster.workloads import WorkloadRecord
from common.config import RebalancerConfiguration, TemporaryPdb
from common.kube.client import KubeClient
from common.kube.timestamps import micro_time
from common.metrics import Metrics
from rebalancer.migration.temporary_pdb.controller import TemporaryPdbs
from rebalancer.migration.temporary_pdb.rules import (
    budget_for,
    guarded_uid,
    is_ours,
    uids_in_use,
    why_to_be_removed,
    why_unguarded,
    workload_of,
)
from simulator import build
from simulator.build import Manifest
from tests.support.clock import FakeClock
from tests.support.worlds.migrations import controller, migration, spec_of
from tests.support.worlds.wire import owner_reference, stamped, uid_of, wire, wire_pod

NOW_S = datetime(2026, 11, 16, 9, tzinfo=UTC).timestamp()
ONE = TemporaryPdb()
KINDS: dict[str, tuple[str, type[Any]]] = {
    "Deployment": ("deployments", Deployment),
    "ReplicaSet": ("replica_sets", ReplicaSet),
    "StatefulSet": ("stateful_sets", StatefulSet),
    "Job": ("jobs", Job),
}
WEB = OwnerUid(uid_of("Deployment/default/web"))


class World:
    """A Deployment `web` with one pod of its ReplicaSet, and whatever a test adds."""

    def __init__(self, replicas: int = 3) -> None:
        self.state = ClusterState()
        self.deployment = build.deployment("web", replicas)
        self.add(self.deployment)
        self.replica_set = build.replica_set("web-1", replicas, labels={"app": "web"})
        self.add(self.replica_set, ownerReferences=[owner_reference(self.deployment)])
        self.pod("web-a", owner=self.replica_set)

    def add(self, manifest: Manifest, **metadata: Any) -> WorkloadRecord:
        table, kind = KINDS[manifest["kind"]]
        whole = stamped(manifest, generation=1, **metadata)
        getattr(self.state, table).upsert(wire(kind, whole))
        return self.snapshot.workloads[OwnerUid(whole["metadata"]["uid"])]

    def pod(self, name: str, *, owner: Manifest | None = None, **labels: str) -> None:
        made = build.pod(name, node="n1", labels={"app": "web", **labels})
        self.state.pods.upsert(wire_pod(made, owner=owner))

    def budget(self, name: str, match: dict[str, str], **metadata: Any) -> str:
        made = stamped(build.pdb(name, match=match, min_available=1), generation=1, **metadata)
        self.state.budgets.upsert(wire(PodDisruptionBudget, made))
        return f"default/{name}"

    def ours(self, name: str = "web-rescheduler-pdb", uid: str = WEB, ends_s: float = 60) -> str:
        return self.budget(
            name,
            {"app": "web"},
            labels={TEMPORARY_PDB_LABEL: uid},
            annotations={EXPIRES: micro_time(NOW_S + ends_s)},
        )

    def migrate(self, pod: str = "web-a", **said: Any) -> str:
        uid = uid_of(f"Pod/default/{pod}")
        said = {"pod": PodRef(namespace="default", name=pod, uid=uid), **said}
        self.state.migrations.upsert(migration(spec_of(**said)))
        return uid

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot()

    @property
    def web(self) -> WorkloadRecord:
        return self.snapshot.workloads[WEB]

    def unguarded(self, settings: TemporaryPdb | None = ONE) -> str | None:
        found = why_unguarded(self.web, self.snapshot, settings)
        return found.name if found is not None else None

    def removed(self, key: str, settings: TemporaryPdb | None = ONE) -> str | None:
        snapshot = self.snapshot
        found = why_to_be_removed(
            snapshot.budgets[key], snapshot, settings, used=uids_in_use(snapshot), now_s=NOW_S
        )
        return found.name if found is not None else None


def test_an_ordinary_workload_is_guarded() -> None:
    assert World().unguarded() is None


def test_nothing_is_guarded_when_it_is_off() -> None:
    assert World().unguarded(None) == "TemporaryPdbOff"


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_single_replica_is_not_guarded(replicas: int) -> None:
    assert World(replicas).unguarded() == "SingleReplica"


@pytest.mark.parametrize(
    ("replicas", "limits", "guarded"),
    [
        (2, {"minAvailable": 1}, True),
        (2, {"minAvailable": 2}, False),
        (3, {"minAvailable": 5}, False),
        (2, {"minAvailable": "50%"}, True),
        (2, {"minAvailable": "51%"}, False),
        (2, {"maxUnavailable": 1}, True),
        (3, {"maxUnavailable": "25%"}, True),
    ],
)
def test_a_budget_must_leave_room_for_one(
    replicas: int, limits: dict[str, Any], guarded: bool
) -> None:
    settings = TemporaryPdb.model_validate(limits)
    assert World(replicas).unguarded(settings) == (None if guarded else "WouldForbid")


def test_a_job_is_not_guarded() -> None:
    world = World()
    job = world.add({**build.replica_set("job", 3), "kind": "Job", "apiVersion": "batch/v1"})
    found = why_unguarded(job, world.snapshot, ONE)
    assert found is not None
    assert found.name == "NothingToGuard"


@pytest.mark.parametrize("selector", [NOTHING, Selector()])
def test_a_workload_that_selects_nothing_or_everything_is_not_guarded(selector: Selector) -> None:
    world = World()
    odd = msgspec.structs.replace(world.web, selector=selector)
    found = why_unguarded(odd, world.snapshot, ONE)
    assert found is not None
    assert found.name == "NothingToGuard"


@pytest.mark.parametrize(
    ("match", "covered"),
    [
        ({"app": "web"}, True),
        ({"version": "2"}, True),  # of one pod only
        ({"app": "other"}, False),
    ],
)
def test_a_budget_that_covers_any_of_the_pods_is_enough(
    match: dict[str, str], covered: bool
) -> None:
    world = World()
    world.pod("web-b", owner=world.replica_set, version="2")
    world.budget("own", match)
    assert world.unguarded() == ("CoveredByPdb" if covered else None)


def test_a_budget_of_another_namespace_covers_nothing() -> None:
    world = World()
    made = build.pdb("own", match={"app": "web"}, namespace="other", min_available=1)
    world.state.budgets.upsert(wire(PodDisruptionBudget, stamped(made)))
    assert world.unguarded() is None


def test_a_budget_of_a_stranger_s_pod_that_we_would_cover_too_counts() -> None:
    world = World()
    world.pod("stranger", role="guest")
    world.budget("guests", {"role": "guest"})
    assert world.unguarded() == "CoveredByPdb"


def test_a_budget_for_pods_that_are_still_to_come_counts() -> None:
    world = World()
    world.state.pods.forget("default/web-a")
    world.budget("own", {"app": "web"})
    assert world.unguarded() == "CoveredByPdb"


def test_our_own_budget_does_not_stand_in_its_own_way() -> None:
    world = World()
    world.ours()
    assert world.unguarded() is None


def test_a_budget_of_ours_for_another_workload_prevents_a_second_one() -> None:
    world = World()
    world.ours("zebra-rescheduler-pdb", uid="other")
    assert world.unguarded() == "CoveredByPdb"


def test_a_budget_that_only_has_our_label_is_not_ours() -> None:
    world = World()
    key = world.ours("mine")
    assert not is_ours(world.snapshot.budgets[key])
    assert world.unguarded() == "CoveredByPdb"


def test_of_two_of_ours_that_overlap_exactly_one_goes() -> None:
    world = World()
    other = world.add(build.deployment("api", 3, labels={"app": "web"}))
    world.pod("api-a", owner=build.deployment("api", 3, labels={"app": "web"}))
    keys = world.ours(), world.ours("api-rescheduler-pdb", uid=other.uid)
    world.migrate("web-a")
    world.migrate("api-a", controller=None, workload=None, replacement_name="x")
    assert [world.removed(key) for key in keys] == ["CoveredByPdb", None]


def test_a_budget_in_use_stays() -> None:
    world = World()
    key = world.ours()
    world.migrate()
    assert world.removed(key) is None


def test_an_unused_budget_goes() -> None:
    world = World()
    assert world.removed(world.ours()) == "Unused"


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"annotations": {EXPIRES: micro_time(NOW_S)}}, "Expired"),
        ({"annotations": {EXPIRES: "soon"}}, "Expired"),
        ({"annotations": {}}, "Expired"),
        ({"annotations": {EXPIRES: micro_time(NOW_S + 1)}}, None),
    ],
)
def test_a_budget_whose_time_is_over_goes_though_it_is_used(
    metadata: dict[str, Any], why: str | None
) -> None:
    world = World()
    world.migrate()
    key = world.budget(
        "web-rescheduler-pdb", {"app": "web"}, labels={TEMPORARY_PDB_LABEL: WEB}, **metadata
    )
    assert world.removed(key) == why


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.budget("own", {"app": "web"}), "CoveredByPdb"),
        (lambda world: world.add(build.deployment("web", 1)), "SingleReplica"),
        (lambda world: world.state.deployments.forget("default/web"), "WorkloadGone"),
    ],
)
def test_a_budget_goes_when_it_is_in_the_way(change: Any, why: str) -> None:
    world = World()
    world.migrate()
    key = world.ours()
    change(world)
    assert world.removed(key) == why


def test_a_budget_goes_when_it_was_switched_off() -> None:
    world = World()
    world.migrate()
    assert world.removed(world.ours(), None) == "TemporaryPdbOff"


def test_what_a_migration_claims_about_its_workload_counts_least() -> None:
    world = World()
    lying = world.migrate(workload=None)
    found = workload_of(world.snapshot.migrations[lying], world.snapshot)
    assert found is not None
    assert found.uid == WEB


def test_the_workload_is_known_after_the_pod_is_gone() -> None:
    world = World()
    uid = uid_of("ReplicaSet/default/web-1")
    name = world.migrate(controller=controller(uid=uid))
    world.state.pods.forget("default/web-a")
    assert guarded_uid(world.snapshot.migrations[name], world.snapshot) == WEB
    world.state.deployments.forget("default/web")
    world.state.replica_sets.forget("default/web-1")
    assert guarded_uid(world.snapshot.migrations[name], world.snapshot) == "d-1"


def test_closed_migrations_use_nothing() -> None:
    world = World()
    name = world.migrate()
    assert uids_in_use(world.snapshot) == {WEB}
    assert uids_in_use(world.snapshot, besides=name) == frozenset()
    found = world.snapshot.migrations[name]
    closed = {name: msgspec.structs.replace(found, phase="Failed")}
    assert uids_in_use(msgspec.structs.replace(world.snapshot, migrations=closed)) == frozenset()


def test_the_budget_is_the_workload_s() -> None:
    made = budget_for(World().web, ONE, NOW_S)
    (reference,) = made["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": WEB}
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["labels"][TEMPORARY_PDB_LABEL] == WEB
    assert made["spec"] == {
        "selector": {"matchLabels": {"app": "web"}},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "minAvailable": 1,
    }


def test_a_replication_controller_is_of_the_core_group() -> None:
    state = ClusterState()
    made = build.replica_set("rc", 3)
    made |= {"kind": "ReplicationController", "apiVersion": "v1"}
    made["spec"] = {**made["spec"], "selector": {"app": "rc"}}
    state.replication_controllers.upsert(wire(ReplicationController, stamped(made)))
    (record,) = state.snapshot().workloads.values()
    (reference,) = budget_for(record, ONE, NOW_S)["metadata"]["ownerReferences"]
    assert reference["apiVersion"] == "v1"


KEYS = st.sampled_from(["app", "tier", "zone"])
VALUES = st.frozensets(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2)
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from([Operator.IN, Operator.NOT_IN]), VALUES),
    st.builds(Requirement, KEYS, st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)


@given(st.lists(REQUIREMENTS, min_size=1, max_size=4))
def test_the_budget_selects_exactly_the_workload_s_pods(requirements: list[Requirement]) -> None:
    selector = Selector.of(requirements)
    workload = msgspec.structs.replace(World().web, selector=selector)
    wired = budget_for(workload, ONE, NOW_S)["spec"]["selector"]
    assert from_label_selector(msgspec.convert(wired, LabelSelector)) == selector


def test_our_label_on_a_budget_of_another_namespace_is_not_believed() -> None:
    world = World()
    world.migrate()
    made = build.pdb("web-rescheduler-pdb", match={"app": "web"}, min_available=1)
    made["metadata"]["namespace"] = "other"
    ends = {EXPIRES: micro_time(NOW_S + 60)}
    whole = stamped(made, generation=1, labels={TEMPORARY_PDB_LABEL: WEB}, annotations=ends)
    world.state.budgets.upsert(wire(PodDisruptionBudget, whole))
    assert world.removed("other/web-rescheduler-pdb") == "WorkloadGone"


def test_a_budget_with_our_name_and_label_in_another_namespace_is_not_waited_for() -> None:
    """It may have a finalizer, and then it would never be gone."""
    world = World()
    mine = world.ours()
    made = build.pdb("web-rescheduler-pdb", match={"app": "web"}, min_available=1)
    made["metadata"]["namespace"] = "other"
    whole = stamped(made, generation=1, labels={TEMPORARY_PDB_LABEL: WEB})
    world.state.budgets.upsert(wire(PodDisruptionBudget, whole))
    pdbs = TemporaryPdbs(
        cast(KubeClient, None),
        world.state,
        config=RebalancerConfiguration,
        clock=FakeClock(),
        metrics=Metrics("test"),
    )
    found = pdbs._standing(WEB, "default", world.snapshot)
    assert ["/".join(each) for each in found] == [mine]
