# SPDX-License-Identifier: Apache-2.0
"""What kubectl makes of `deploy/` hangs together, for every way to combine its parts."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from common import __version__
from common.cli import parser
from common.config import Guide, Mode, RebalancerConfiguration, Surge, load_config
from extender.__main__ import PROGRAM as EXTENDER
from tests.support.deploy.containers import lasting
from tests.support.deploy.render import CONTROL_PLANE, SECOND, kustomization, named, patched, render
from tests.support.deploy.static_pod import CONFIG, kubeadm_scheduler
from tests.support.repository import DEPLOY, DOCS

PAGE = DOCS / "clusters.md"

VARIANTS = {
    "base": ("base", ()),
    "base-guided": ("base", ("act", "admission-guide")),
    "second": (SECOND, ()),
    "second-all": (SECOND, ("act", "bare-pods", "namespace-opt-in", "pod-guard")),
    "control-plane": (CONTROL_PLANE, ()),
    "control-plane-all": (
        CONTROL_PLANE,
        ("act", "bare-pods", "expose-extender-metrics", "pod-guard"),
    ),
}

Json = dict[str, Any]  # Any: the nesting of Kubernetes' objects


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def objects(variant: str, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    folder = tmp_path_factory.mktemp("render") / "k"
    return render(kustomization(folder, *VARIANTS[variant]))


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    return [each for each in objects if each["kind"] in kinds]


def templates(objects: list[Json]) -> list[tuple[str, Json]]:
    """Return the pod templates with their namespaces."""
    made = of_kind(objects, "Deployment", "DaemonSet")
    return [(each["metadata"]["namespace"], each["spec"]["template"]) for each in made]


def test_the_rebalancer_is_told_what_was_chosen(
    variant: str, objects: list[Json], tmp_path: Path
) -> None:
    base, components = VARIANTS[variant]
    text = named(objects, "ConfigMap", "evenkeel-rebalancer")["data"]["rebalancer.yaml"]
    (tmp_path / "rebalancer.yaml").write_text(text)
    config = load_config(str(tmp_path / "rebalancer.yaml"), RebalancerConfiguration)
    scheduler = "evenkeel-scheduler" if base == SECOND else "default-scheduler"
    assert config.mode is (Mode.ACT if "act" in components else Mode.OBSERVE)
    assert config.scheduler_names == (scheduler,)
    assert (config.bare_pods == "replace") == ("bare-pods" in components)
    assert (config.guide is Guide.ADMISSION) == ("admission-guide" in components)
    assert config.surge is Surge.SINGLE_REPLICA


def test_every_object_is_ours_and_in_a_namespace_of_ours(objects: list[Json]) -> None:
    ours = {each["metadata"]["name"] for each in of_kind(objects, "Namespace")}
    for each in objects:
        metadata = each["metadata"]
        assert metadata["labels"]["app.kubernetes.io/name"] == "evenkeel"
        # The one thing that has to be elsewhere: reading whom the API server trusts.
        elsewhere = {"kube-system"} if each["kind"] == "RoleBinding" else set()
        assert metadata.get("namespace", "evenkeel") in ours | elsewhere


def test_every_account_that_is_named_exists_and_is_used(objects: list[Json]) -> None:
    made = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in of_kind(objects, "ServiceAccount")
    }
    bound = {
        (subject["namespace"], subject["name"])
        for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
    }
    used = {(namespace, pod["spec"]["serviceAccountName"]) for namespace, pod in templates(objects)}
    assert bound == made
    # Alone there is no extender yet, but its rights are known.
    assert made - used <= {("evenkeel", "evenkeel-extender")}
    assert used <= made


def test_every_mounted_configuration_exists(objects: list[Json]) -> None:
    made = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in of_kind(objects, "ConfigMap")
    }
    mounted = {
        (namespace, volume["configMap"]["name"])
        for namespace, pod in templates(objects)
        for volume in pod["spec"]["volumes"]
    }
    assert mounted == made


def test_every_selector_finds_pods_and_every_port_is_theirs(objects: list[Json]) -> None:
    for each in of_kind(objects, "Service", "NetworkPolicy", "PodDisruptionBudget"):
        spec = each["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        labels = selector.get("matchLabels", selector)
        [pod] = [pod for _, pod in templates(objects) if labels == pod["metadata"]["labels"]]
        ports = {port["name"] for c in lasting(pod["spec"]) for port in c["ports"]}
        wanted = [port["targetPort"] for port in spec.get("ports", ())]
        wanted += [port["port"] for rule in spec.get("ingress", ()) for port in rule["ports"]]
        assert set(wanted) <= ports


def test_metrics_leave_a_host_of_the_control_plane_only_on_request(tmp_path: Path) -> None:
    for components in ((), ("expose-extender-metrics",)):
        found = render(kustomization(tmp_path / f"k{len(components)}", CONTROL_PLANE, components))
        pod = named(found, "DaemonSet", "evenkeel-extender")["spec"]["template"]["spec"]
        flags = parser(EXTENDER).parse_args(pod["containers"][0]["args"])
        assert flags.bind_address == "127.0.0.1"
        assert flags.health_bind_address == ("0.0.0.0" if components else "")
        services = [each["metadata"]["namespace"] for each in of_kind(found, "Service")]
        assert services.count("evenkeel-control-plane") == len(components)


def test_images_are_ours_or_the_stock_scheduler(objects: list[Json]) -> None:
    images = {c["image"] for _, pod in templates(objects) for c in lasting(pod["spec"])}
    assert images <= {f"evenkeel:{__version__}", "registry.k8s.io/kube-scheduler:v1.36.4"}


def test_users_name_their_registry_in_one_place(tmp_path: Path) -> None:
    named_here = {"images": [{"name": "evenkeel", "newName": "registry.example/evenkeel"}]}
    found = second_with(tmp_path, named_here)
    images = [c["image"] for _, pod in templates(found) for c in lasting(pod["spec"])]
    assert images.count(f"registry.example/evenkeel:{__version__}") == 2


def test_the_patch_on_the_page_leaves_kube_system_alone(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [patches] = [found for block in blocks if "patches" in (found := yaml.safe_load(block))]
    whole, less = second_with(tmp_path, {}), second_with(tmp_path, patches)
    gone = [each for each in whole if each not in less]
    assert [each["metadata"]["namespace"] for each in gone] == ["kube-system"]
    assert len(less) == len(whole) - 1


def second_with(tmp_path: Path, additions: Json) -> list[Json]:
    """Render the overlay of the second scheduler with additions of a user."""
    folder = kustomization(Path(tempfile.mkdtemp(dir=tmp_path)) / "k", SECOND)
    content = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**content, **additions}))
    return render(folder)


def test_the_patch_gives_a_static_scheduler_its_configuration_and_nothing_else() -> None:
    before = kubeadm_scheduler()
    after = patched(before, DEPLOY / CONTROL_PLANE / "static-pod-patch.yaml")
    [container] = after["spec"]["containers"]
    assert container["command"].pop() == f"--config={CONFIG}"
    assert container["volumeMounts"].pop()["mountPath"] == CONFIG
    assert after["spec"]["volumes"].pop()["hostPath"]["path"] == CONFIG
    assert after == before
