# SPDX-License-Identifier: Apache-2.0
"""Every documented way to configure kubeadm's kube-scheduler leads to the same static pod."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.docs.pages import Page
from tests.support.repository import DEPLOY, DOCS

PATCH = DEPLOY / "overlays" / "control-plane" / "static-pod-patch.yaml"

Json = dict[str, Any]  # Any: a JSON object


def yaml_blocks(name: str, word: str) -> list[Json]:
    path = DOCS / name
    blocks = Page(path, path.read_text()).blocks
    return [yaml.safe_load(b.text) for b in blocks if b.language == "yaml" and word in b.text]


def kind_patch() -> Json:
    [cluster] = yaml_blocks("kind.md", "kind.x-k8s.io")
    [patch] = cluster["nodes"][0]["kubeadmConfigPatches"]
    found: Json = yaml.safe_load(patch)
    return found


def kubeadm_configuration() -> Json:
    [found] = yaml_blocks("scheduler.md", "kubeadm.k8s.io")
    return found


def arguments(scheduler: Json) -> dict[str, str]:
    """Return extra arguments in the form of v1beta3 and of v1beta4, which is a list."""
    given = scheduler["extraArgs"]
    return given if isinstance(given, dict) else {each["name"]: each["value"] for each in given}


@pytest.mark.parametrize(
    "configuration", [kind_patch(), kubeadm_configuration()], ids=["kind", "own"]
)
def test_kubeadm_writes_what_the_patch_writes(configuration: Json) -> None:
    assert configuration["kind"] == "ClusterConfiguration"
    scheduler = configuration["scheduler"]
    [flag, mount, volume] = [operation["value"] for operation in yaml.safe_load(PATCH.read_text())]
    assert [f"--{name}={value}" for name, value in arguments(scheduler).items()] == [flag]
    [extra] = scheduler["extraVolumes"]
    assert extra == {
        "name": volume["name"],
        "hostPath": volume["hostPath"]["path"],
        "pathType": volume["hostPath"]["type"],
        "mountPath": mount["mountPath"],
        "readOnly": mount["readOnly"],
    }


def test_kind_mounts_the_shipped_file_where_the_scheduler_reads_it() -> None:
    [cluster] = yaml_blocks("kind.md", "kind.x-k8s.io")
    [mount] = cluster["nodes"][0]["extraMounts"]
    assert mount["hostPath"] == "scheduler-config.yaml"
    assert mount["containerPath"] == arguments(kind_patch()["scheduler"])["config"]
