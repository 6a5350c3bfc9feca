# SPDX-License-Identifier: Apache-2.0
"""The extender's role grants what the extender does: no more, no less."""

from __future__ import annotations

from typing import Any

import yaml

from common.cache.reader import MIGRATION_KIND
from common.kube.resources import LEASES, NODE_METRICS, NODES, POD_METRICS, PODS
from tests.support.repository import DEPLOY

FILE = DEPLOY / "base" / "extender.yaml"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))


def granted(kind: str) -> dict[tuple[str, str], set[str]]:
    (role,) = [document for document in DOCUMENTS if document["kind"] == kind]
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_cluster_is_read_and_never_changed() -> None:
    read, measured = {"list", "watch"}, {"list"}
    assert granted("ClusterRole") == {
        **{(r.group, r.plural): read for r in (NODES, PODS, MIGRATION_KIND.resource)},
        **{(r.group, r.plural): measured for r in (NODE_METRICS, POD_METRICS)},
    }


def test_leases_are_kept_in_its_own_namespace_only() -> None:
    assert granted("Role") == {(LEASES.group, LEASES.plural): {"create", "list", "patch", "delete"}}


def test_the_roles_are_bound_to_its_account_only() -> None:
    (account,) = [d["metadata"] for d in DOCUMENTS if d["kind"] == "ServiceAccount"]
    subject = {
        "kind": "ServiceAccount",
        "name": account["name"],
        "namespace": account["namespace"],
    }
    bindings = [d for d in DOCUMENTS if d["kind"].endswith("Binding")]
    assert [d["roleRef"]["kind"] for d in bindings] == ["ClusterRole", "Role"]
    assert [d["subjects"] for d in bindings] == [[subject], [subject]]
    named = {d["metadata"]["name"] for d in DOCUMENTS if d["kind"] in ("ClusterRole", "Role")}
    assert {d["roleRef"]["name"] for d in bindings} == named
