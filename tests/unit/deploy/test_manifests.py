# SPDX-License-Identifier: Apache-2.0
"""The manifests say what the programs do, the same in every place.

The files are read as they stand; what kubectl makes of them is looked at in `tests/e2e`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from common import __version__
from common.api.contract import (
    COPY_OF,
    CORDONED_BY,
    DELETION_COST,
    EXPIRES,
    EXTENDER_LEASE_PREFIX,
    MAINTENANCE_PROGRESS,
    TEMPORARY_PDB_LABEL,
)
from common.cli import Program, parser
from common.config import (
    ExtenderConfiguration,
    RebalancerConfiguration,
    effective,
    load_config,
    load_settings_hash,
)
from controlplane.build import KUBERNETES
from controlplane.scheduler_config import SHIPPED
from extender.__main__ import PROGRAM as EXTENDER
from rebalancer.__main__ import PROGRAM as REBALANCER
from rebalancer.migration.names import replacement_name, temporary_pdb_name
from tests.support.deploy.containers import lasting
from tests.support.repository import DEPLOY
from tests.support.tables import read_documents, read_table
from tests.support.worlds.migrations import MARK_ANNOTATIONS, MARK_LABELS

GUARDS = DEPLOY / "base" / "guards"
SECOND = DEPLOY / "overlays" / "second-scheduler"
CONTROL_PLANE = DEPLOY / "overlays" / "control-plane"
CONFIGURATIONS = (SECOND / "config" / "extender.yaml", CONTROL_PLANE / "config" / "extender.yaml")
SHIPPED_REBALANCER = DEPLOY / "base" / "config" / "rebalancer.yaml"
PROGRAMS: dict[str, Program[Any, Any]] = {"extender": EXTENDER, "rebalancer": REBALANCER}

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


def documents(path: Path) -> list[Json]:
    return [each for each in read_documents(path) if isinstance(each, dict)]


def manifests() -> list[Path]:
    parts = ("base", "components", "crds", "overlays")
    return sorted(path for part in parts for path in (DEPLOY / part).rglob("*.yaml"))


def kustomizations() -> list[Json]:
    return [d for path in manifests() if path.name == "kustomization.yaml" for d in documents(path)]


def of_kind(*kinds: str) -> list[Json]:
    return [d for path in manifests() for d in documents(path) if d.get("kind") in kinds]


def workloads() -> list[Json]:
    return of_kind("Deployment", "DaemonSet")


def containers() -> list[Json]:
    return [c for each in workloads() for c in lasting(each["spec"]["template"]["spec"])]


def own_containers() -> list[Json]:
    return [each for each in containers() if each["image"] == "evenkeel"]


def test_the_second_scheduler_has_the_shipped_configuration_but_for_what_it_needs() -> None:
    expected = read_table(SHIPPED)
    del expected["clientConnection"]
    lease = {"resourceName": "evenkeel-scheduler", "resourceNamespace": "evenkeel"}
    expected["leaderElection"] |= lease
    [profile] = expected["profiles"]
    profile["schedulerName"] = "evenkeel-scheduler"
    found = read_table(SECOND / "config" / "scheduler-config.yaml")
    assert found == expected


def test_the_shipped_rebalancer_observes_and_has_the_defaults_otherwise() -> None:
    """The label of a node has an effect as soon as it acts, as in the original example."""
    config = load_config(str(SHIPPED_REBALANCER), RebalancerConfiguration)
    defaults = effective(RebalancerConfiguration())
    strategies = [*defaults["enabledStrategies"], "NodeMaintenance"]
    expected = {**defaults, "mode": "observe", "enabledStrategies": strategies}
    assert effective(config) == expected


def test_what_overlays_and_components_replace_is_quoted_in_their_order() -> None:
    parts = SHIPPED_REBALANCER.read_text().split('"')
    assert parts[1::2] == ["observe", "default-scheduler", "skip", "SingleReplica", "extender"]
    assert [part.splitlines()[-1] for part in parts[0:7:2]] == [
        "mode: ",
        "schedulerNames: [",
        "barePods: ",
        "surge: ",
    ]


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.parts[-3])
def test_the_shipped_extender_has_the_defaults_but_for_where_its_lease_is(path: Path) -> None:
    config = load_config(str(path), ExtenderConfiguration)
    namespace = "evenkeel" if path.is_relative_to(CONTROL_PLANE) else ""
    expected = {**effective(ExtenderConfiguration()), "leaseNamespace": namespace}
    assert effective(config) == expected


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.parts[-3])
def test_both_programs_are_shipped_with_the_same_idea_of_load(path: Path) -> None:
    rebalancer = load_config(str(SHIPPED_REBALANCER), RebalancerConfiguration)
    extender = load_config(str(path), ExtenderConfiguration)
    assert load_settings_hash(extender) == load_settings_hash(rebalancer)


def test_every_image_of_ours_has_the_version_of_the_programs() -> None:
    tags = [
        image["newTag"]
        for each in kustomizations()
        for image in each.get("images", ())
        if image["name"] == "evenkeel"
    ]
    assert tags == [__version__] * 3


def test_the_second_scheduler_is_the_one_that_is_tested() -> None:
    [kustomization] = documents(SECOND / "kustomization.yaml")
    [image] = [each for each in kustomization["images"] if each["name"] != "evenkeel"]
    assert image["newName"] == "registry.k8s.io/kube-scheduler"
    assert image["newTag"] == KUBERNETES


def test_an_older_kubectl_understands_the_kustomizations() -> None:
    # `sourceValue` came with kubectl 1.34, and clusters from 1.32 on are supported.
    made = [each for found in kustomizations() for each in found.get("replacements", ())]
    assert len(made) == 5
    assert all(each.keys() == {"source", "targets"} for each in made)


def test_every_object_is_labelled_as_ours() -> None:
    objects = [d for path in manifests() for d in documents(path) if "metadata" in d]
    assert len(objects) > 30
    for each in objects:
        labels = each["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/name") == "evenkeel", each["metadata"]["name"]


def test_flags_are_flags_of_the_programs() -> None:
    assert len(own_containers()) == 3
    for each in own_containers():
        program = PROGRAMS[each["name"]]
        assert each["command"] == ["python", "-m", program.name]
        flags = parser(program).parse_args(each["args"])
        assert flags.config == f"/etc/evenkeel/{program.name}.yaml"
        ports = {port["name"]: port["containerPort"] for port in each["ports"]}
        assert ports["health"] == flags.health_port == program.health.number


def test_the_extender_is_asked_on_loopback_only() -> None:
    for each in own_containers():
        flags = parser(PROGRAMS[each["name"]]).parse_args(each["args"])
        if each["name"] == "extender":
            assert flags.bind_address == "127.0.0.1"


def test_every_pod_is_as_restricted_as_can_be() -> None:
    for each in workloads():
        context = each["spec"]["template"]["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert (context["runAsUser"], context["runAsGroup"]) == (65532, 65532)
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in containers():
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_container_is_probed_and_says_what_it_needs() -> None:
    for each in containers():
        assert each["livenessProbe"]["httpGet"]["path"] == "/livez"
        assert each["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert each["resources"]["requests"].keys() == {"cpu", "memory"}


def test_every_deployment_survives_the_loss_of_a_host() -> None:
    budgets = {each["metadata"]["name"]: each["spec"] for each in of_kind("PodDisruptionBudget")}
    for each in of_kind("Deployment"):
        assert each["spec"]["replicas"] == 2
        selector, pod = each["spec"]["selector"], each["spec"]["template"]["spec"]
        spread = {each["topologyKey"]: each for each in pod["topologySpreadConstraints"]}
        assert spread.keys() == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        assert all(constraint["labelSelector"] == selector for constraint in spread.values())
        budget = budgets[each["metadata"]["name"]]
        assert (budget["maxUnavailable"], budget["selector"]) == (1, selector)


def test_every_pod_has_an_account_and_a_class_and_others_reach_its_health_port_only() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    for each in workloads():
        name, pod = each["metadata"]["name"], each["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == name
        own = "evenkeel-scheduler"
        assert pod["priorityClassName"] == (own if name == own else "evenkeel")
        # Policies do not bind pods in the host's network.
        if not pod.get("hostNetwork"):
            assert policies[name]["podSelector"] == each["spec"]["selector"]
            [rule] = policies[name]["ingress"]
            probed = {c["readinessProbe"]["httpGet"]["port"] for c in lasting(pod)}
            assert {port["port"] for port in rule["ports"]} == probed
            [peer] = rule["from"]
            assert peer == {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
            }


def test_only_the_second_scheduler_may_preempt() -> None:
    policies = {c["metadata"]["name"]: c["preemptionPolicy"] for c in of_kind("PriorityClass")}
    assert policies == {"evenkeel": "Never", "evenkeel-scheduler": "PreemptLowerPriority"}


def test_the_extender_starts_before_its_scheduler_and_ends_after_it() -> None:
    [pod] = [
        each["spec"]["template"]["spec"]
        for each in workloads()
        if each["metadata"]["name"] == "evenkeel-scheduler"
    ]
    [sidecar] = pod["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("extender", "Always")
    # With one, an extender that does not become ready would keep kube-scheduler from starting.
    assert "startupProbe" not in sidecar


def test_configuration_is_mounted_as_a_folder_so_that_changes_are_seen() -> None:
    for each in containers():
        assert not any("subPath" in mount for mount in each["volumeMounts"])


def test_only_the_host_network_takes_a_namespace_without_restrictions() -> None:
    by_namespace = {each["metadata"]["namespace"]: each for each in workloads()}
    spec = by_namespace["evenkeel-control-plane"]["spec"]["template"]["spec"]
    assert spec["hostNetwork"] is True
    hosts = [e for e in workloads() if "hostNetwork" in e["spec"]["template"]["spec"]]
    assert [each["metadata"]["namespace"] for each in hosts] == ["evenkeel-control-plane"]


def test_the_policy_names_the_marks_that_the_rebalancer_sets() -> None:
    policy, _ = documents(GUARDS / "pod-guard.yaml")
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert tuple(yaml.safe_load(variables["labelMarks"])) == MARK_LABELS
    assert tuple(yaml.safe_load(variables["annotationMarks"])) == MARK_ANNOTATIONS


@pytest.mark.parametrize("guard", sorted(GUARDS.glob("*-guard.yaml")), ids=lambda path: path.stem)
def test_every_guard_is_installed_and_refuses_when_in_doubt(guard: Path) -> None:
    policy, binding = documents(guard)
    assert guard.name in read_table(GUARDS / "kustomization.yaml")["resources"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == f"evenkeel-{guard.stem}"
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        plain = [name for name in rule["resources"] if "/" not in name]
        assert rule["operations"] == ["*"]
        assert {f"{name}/*" for name in plain} <= set(rule["resources"])


def test_every_kind_that_the_rebalancer_writes_is_guarded_or_its_own() -> None:
    guarded = {
        (group, resource)
        for guard in GUARDS.glob("*-guard.yaml")
        for rule in documents(guard)[0]["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    own = {("evenkeel.io", "migrations"), ("evenkeel.io", "migrations/status")}
    own |= {("events.k8s.io", "events"), ("", "pods/eviction")}
    if ("", "nodes/*") in guarded:
        guarded.add(("", "nodes/status"))
    roles = [d for d in documents(DEPLOY / "base" / "rebalancer.yaml") if "rules" in d]
    written = {
        (group, resource)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert written - own <= guarded


def test_the_guards_and_the_program_mean_the_same_objects() -> None:
    text = "".join(path.read_text() for path in GUARDS.glob("*-guard.yaml"))
    for name in (TEMPORARY_PDB_LABEL, EXPIRES, COPY_OF, EXTENDER_LEASE_PREFIX, DELETION_COST):
        assert f"'{name}'" in text
    assert f"endsWith('{temporary_pdb_name('')}')" in text
    assert replacement_name("", 0.0).startswith("rescheduled-")
    assert all(key.startswith("evenkeel.io/") for key in (CORDONED_BY, MAINTENANCE_PROGRESS))
