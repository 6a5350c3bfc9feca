# SPDX-License-Identifier: Apache-2.0
"""The shipped roles grant what the code uses: no more, no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.api.contract import PAUSE
from common.cache import reader
from common.config import RebalancerConfiguration
from common.kube.resources import NODE_METRICS, POD_METRICS
from tests.support.repository import DEPLOY
from tests.support.tables import read_documents, read_table

BASE = DEPLOY / "base"
READER = BASE / "reader.yaml"
SURGE = BASE / "rebalancer-surge.yaml"
BARE_PODS = DEPLOY / "components" / "bare-pods" / "role.yaml"

Json = dict[str, Any]


def granted() -> dict[tuple[str, str], set[str]]:
    role = read_table(READER)
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_reader_may_read_exactly_what_is_watched_and_measured() -> None:
    kinds = (*reader.CACHED_KINDS, reader.VPA_KIND, reader.POD_GROUP_KIND)
    watched = {(r.resource.group, r.resource.plural) for r in kinds}
    measured = {(kind.group, kind.plural) for kind in (NODE_METRICS, POD_METRICS)}
    assert granted().keys() == watched | measured


def test_the_reader_may_change_nothing() -> None:
    assert set().union(*granted().values()) <= {"list", "watch"}


def documents(path: Path, kind: str) -> list[Json]:
    found = read_documents(path)
    return [each for each in found if isinstance(each, dict) and each.get("kind") == kind]


def grants(role: Json) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def spelt(*rights: str) -> set[tuple[str, str, str]]:
    """Return rights that are written as `group resource verb,verb`."""
    split = [right.split() for right in rights]
    return {
        ("" if group == "core" else group, resource, verb)
        for group, resource, verbs in split
        for verb in verbs.split(",")
    }


def test_the_rebalancer_may_do_what_moving_takes_and_nothing_else() -> None:
    (role,) = documents(BASE / "rebalancer.yaml", "ClusterRole")
    assert grants(role) == spelt(
        "core pods/eviction create",
        "core pods get,patch",
        "core nodes get,patch",
        "core nodes/status patch",
        "policy poddisruptionbudgets get,create,patch,delete",
        "evenkeel.io migrations get,list,watch,create,patch,delete",
        "evenkeel.io migrations/status patch",
        "events.k8s.io events create,patch",
    )


def test_the_rebalancer_changes_no_lease_but_its_own() -> None:
    (role,) = documents(BASE / "rebalancer.yaml", "Role")
    name = RebalancerConfiguration().leader_election.name
    rights = {tuple(rule.get("resourceNames", ())): rule["verbs"] for rule in role["rules"]}
    assert role["metadata"]["namespace"] == "evenkeel"
    assert grants(role) == spelt(
        "coordination.k8s.io leases create,list,watch,get,update", "core configmaps list,watch"
    )
    assert rights == {
        (): ["list", "watch", "create"],
        (name,): ["get", "update"],
        (PAUSE,): ["list", "watch"],
    }


def test_viewers_may_read_what_the_command_reads_and_change_nothing() -> None:
    (role,) = documents(BASE / "viewer.yaml", "ClusterRole")
    found = grants(role)
    assert {verb for _, _, verb in found} == {"get", "list", "watch"}
    kinds = (*reader.CACHED_KINDS, reader.MIGRATION_KIND, reader.lease_kind("evenkeel"))
    needed = {(k.resource.group, k.resource.plural, "list") for k in kinds}
    measured = {(kind.group, kind.plural, "list") for kind in (NODE_METRICS, POD_METRICS)}
    assert needed | measured <= found
    assert documents(BASE / "viewer.yaml", "ClusterRoleBinding") == []


def test_pods_are_created_and_deleted_only_with_the_role_for_bare_pods() -> None:
    (role,) = documents(BARE_PODS, "ClusterRole")
    assert role["metadata"]["name"] == "evenkeel-rebalancer-bare-pods"
    assert grants(role) == spelt("core pods create,delete")
    (binding,) = documents(BARE_PODS, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    bound = [
        binding["roleRef"]["name"]
        for path in BASE.glob("*.yaml")
        for binding in documents(path, "ClusterRoleBinding")
    ]
    assert "evenkeel-rebalancer-bare-pods" not in bound


def test_counts_are_changed_only_with_the_role_for_surge() -> None:
    (role,) = documents(SURGE, "ClusterRole")
    assert grants(role) == spelt(
        "core resourcequotas list",
        "apps deployments get",
        "apps replicasets get",
        "apps deployments/scale update",
        "apps replicasets/scale update",
    )
    (binding,) = documents(SURGE, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "evenkeel-rebalancer-surge"


def test_the_rebalancer_reads_what_the_reader_may() -> None:
    bindings = documents(BASE / "rebalancer.yaml", "ClusterRoleBinding")
    assert {b["roleRef"]["name"] for b in bindings} == {"evenkeel-rebalancer", "evenkeel-reader"}


@pytest.mark.parametrize(
    "path", [BASE / "rebalancer.yaml", SURGE, BARE_PODS], ids=lambda path: path.stem
)
def test_every_binding_of_the_rebalancer_names_its_own_account_alone(path: Path) -> None:
    kinds = ("ClusterRoleBinding", "RoleBinding")
    subjects = [b["subjects"] for kind in kinds for b in documents(path, kind)]
    account = {"kind": "ServiceAccount", "name": "evenkeel-rebalancer", "namespace": "evenkeel"}
    assert subjects
    assert all(found == [account] for found in subjects)


def roles_of(path: Path) -> list[Json]:
    return [role for kind in ("ClusterRole", "Role") for role in documents(path, kind)]


MANIFESTS = [
    path for part in ("base", "components", "overlays") for path in (DEPLOY / part).rglob("*.yaml")
]
FILES_WITH_ROLES = [path for path in sorted(MANIFESTS) if roles_of(path)]


@pytest.mark.parametrize("path", FILES_WITH_ROLES, ids=lambda path: path.stem)
def test_no_role_holds_a_wildcard_or_flows_into_another(path: Path) -> None:
    for role in roles_of(path):
        assert not any("*" in part for right in grants(role) for part in right)
        assert "aggregationRule" not in role
        assert not any("aggregate-to" in label for label in role["metadata"].get("labels", {}))


def test_the_files_with_roles_are_found() -> None:
    names = {path.relative_to(DEPLOY).as_posix() for path in FILES_WITH_ROLES}
    assert {"base/reader.yaml", "base/rebalancer.yaml", "base/extender.yaml"} < names
