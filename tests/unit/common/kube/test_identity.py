# SPDX-License-Identifier: Apache-2.0
"""A program knows the namespace it runs in, and is never taken for its predecessor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from common.api.contract import EXTENDER_LEASE_PREFIX
from common.kube.identity import lease_namespace, own_identity, pod_namespace


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    file = tmp_path / "namespace"
    file.write_text("from-account\n")
    return file


def test_the_manifest_decides_first(mounted: Path) -> None:
    assert pod_namespace({"POD_NAMESPACE": "told"}, file=mounted) == "told"


def test_then_the_service_account(mounted: Path) -> None:
    assert pod_namespace({"POD_NAMESPACE": " "}, file=mounted) == "from-account"


def test_outside_a_cluster_there_is_none(tmp_path: Path) -> None:
    assert pod_namespace({}, file=tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("flag", "configured", "pod", "found"),
    [
        ("flag", "configured", "pod", ("flag", True)),
        ("", "configured", "pod", ("configured", True)),
        ("", "", "pod", ("pod", True)),
        ("", "", "", ("evenkeel", False)),
    ],
)
def test_leases_are_where_the_installed_ones_are(
    flag: str,
    configured: str,
    pod: str,
    found: tuple[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", pod)
    assert lease_namespace(flag, configured) == found


@pytest.mark.parametrize("name", ["web-1", "Host.Example.ORG", "x" * 80, "...", "", "-a-" * 20])
def test_an_identity_can_be_part_of_the_name_of_an_object(name: str) -> None:
    identity = own_identity({"POD_NAME": name})
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", identity)
    assert len(f"{EXTENDER_LEASE_PREFIX}{identity}") <= 253


@pytest.mark.parametrize("name", ["evenkeel-rebalancer-6c9d8f7b54-x2x7k", "r" * 57 + "-x2x7k"])
def test_an_identity_names_the_pod(name: str) -> None:
    assert own_identity({"POD_NAME": name}).startswith(f"{name}-")


def test_a_restarted_program_is_another() -> None:
    assert own_identity({"POD_NAME": "web-1"}) != own_identity({"POD_NAME": "web-1"})
