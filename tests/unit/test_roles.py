"""The shipped roles grant what the code uses: no more, no less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from common.cluster import reader
from common.config import RebalancerConfiguration
from common.kube.resources import NODE_METRICS, POD_METRICS

BASE = Path(__file__).parents[2] / "deploy" / "base"
READER = BASE / "reader.yaml"

Json = dict[str, Any]


def granted() -> dict[tuple[str, str], set[str]]:
    role = yaml.safe_load(READER.read_text())
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_reader_may_read_exactly_what_is_watched_and_measured() -> None:
    watched = {(r.resource.group, r.resource.plural) for r in reader.READINGS}
    measured = {(kind.group, kind.plural) for kind in (NODE_METRICS, POD_METRICS)}
    assert granted().keys() == watched | measured


def test_the_reader_may_change_nothing() -> None:
    assert set().union(*granted().values()) <= {"get", "list", "watch"}


def documents(name: str, kind: str) -> list[Json]:
    found = yaml.safe_load_all((BASE / name).read_text())
    return [document for document in found if document["kind"] == kind]


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
    (role,) = documents("rebalancer.yaml", "ClusterRole")
    assert grants(role) == spelt(
        "core pods/eviction create",
        "core pods patch",
        "core nodes patch",
        "policy poddisruptionbudgets create,patch,delete",
        "evenkeel.io migrations get,list,watch,create,delete",
        "evenkeel.io migrations/status patch",
        "events.k8s.io events create,patch",
    )


def test_the_rebalancer_changes_no_lease_but_its_own() -> None:
    (role,) = documents("rebalancer.yaml", "Role")
    name = RebalancerConfiguration().leader_election.name
    rights = {tuple(rule.get("resourceNames", ())): rule["verbs"] for rule in role["rules"]}
    assert role["metadata"]["namespace"] == "evenkeel"
    assert grants(role) == spelt("coordination.k8s.io leases create,get,update")
    assert rights == {(): ["create"], (name,): ["get", "update"]}


def test_pods_are_created_and_deleted_only_with_the_role_for_bare_pods() -> None:
    (role,) = documents("bare-pods.yaml", "ClusterRole")
    assert role["metadata"]["name"] == "evenkeel-rebalancer-bare-pods"
    assert grants(role) == spelt("core pods create,delete")
    (binding,) = documents("bare-pods.yaml", "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    others = [path.name for path in BASE.glob("*.yaml") if path.name != "bare-pods.yaml"]
    bound = [b["roleRef"]["name"] for name in others for b in documents(name, "ClusterRoleBinding")]
    assert "evenkeel-rebalancer-bare-pods" not in bound


def test_the_rebalancer_reads_what_the_reader_may() -> None:
    bindings = documents("rebalancer.yaml", "ClusterRoleBinding")
    assert {b["roleRef"]["name"] for b in bindings} == {"evenkeel-rebalancer", "evenkeel-reader"}


@pytest.mark.parametrize("name", ["rebalancer.yaml", "bare-pods.yaml"])
def test_every_binding_of_the_rebalancer_names_its_own_account_alone(name: str) -> None:
    kinds = ("ClusterRoleBinding", "RoleBinding")
    subjects = [b["subjects"] for kind in kinds for b in documents(name, kind)]
    account = {"kind": "ServiceAccount", "name": "evenkeel-rebalancer", "namespace": "evenkeel"}
    assert subjects
    assert all(found == [account] for found in subjects)


@pytest.mark.parametrize("path", sorted(BASE.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_role_holds_a_wildcard_or_flows_into_another(path: Path) -> None:
    roles = [d for kind in ("ClusterRole", "Role") for d in documents(path.name, kind)]
    assert roles
    for role in roles:
        assert not any("*" in part for right in grants(role) for part in right)
        assert "aggregationRule" not in role
        assert not any("aggregate-to" in label for label in role["metadata"].get("labels", {}))
