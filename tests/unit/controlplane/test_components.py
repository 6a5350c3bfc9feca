# SPDX-License-Identifier: Apache-2.0
"""Command lines are pure, stay on loopback, and stay inside the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controlplane.build import Toolbox
from controlplane.components import COMPONENTS, NAMES, PORTS, Component, Site
from controlplane.folder import Folder

SITE = Site(
    Toolbox(Path("/cache/box")),
    Folder(Path("/srv/cp")),
    {name: 11000 + index for index, name in enumerate(PORTS)},
)
each_component = pytest.mark.parametrize("component", COMPONENTS, ids=NAMES)


def flags(name: str) -> dict[str, str]:
    component = next(c for c in COMPONENTS if c.name == name)
    pairs = (argument.removeprefix("--").partition("=") for argument in component.argv(SITE)[1:])
    return {flag: value for flag, _, value in pairs}


@each_component
def test_every_path_is_in_the_folder_or_in_the_toolbox(component: Component) -> None:
    values = [argument.rpartition("=")[2] for argument in component.argv(SITE)]
    paths = [value for value in values if value.startswith("/")]
    assert paths
    assert all(path.startswith(("/srv/cp/", "/cache/box/")) for path in paths)


@each_component
def test_every_address_is_on_loopback(component: Component) -> None:
    text = " ".join(component.argv(SITE))
    addresses = set(re.findall(r"\d+\.\d+\.\d+\.\d+(?!/)", text)) - {"10.96.0.0"}
    assert addresses <= {"127.0.0.1"}
    assert "127.0.0.1" in text or component.name == "kube-scheduler"


@each_component
def test_every_component_serves_on_its_own_port(component: Component) -> None:
    assert f"127.0.0.1:{SITE.ports[component.name]}/" in component.ready_url(SITE)
    assert str(SITE.ports[component.name]) in " ".join(component.argv(SITE))


def test_rights_are_checked_by_rbac_alone() -> None:
    assert flags("kube-apiserver")["authorization-mode"] == "RBAC"
    assert "token-auth-file" not in flags("kube-apiserver")


def test_the_scheduler_is_told_how_to_work_by_its_configuration_only() -> None:
    """Flags would hide what the file that users copy does not say."""
    own = {"bind-address", "secure-port", "tls-cert-file", "tls-private-key-file"}
    access = {"authentication-kubeconfig", "authorization-kubeconfig"}
    assert set(flags("kube-scheduler")) == own | access | {"config", "leader-elect"}


def test_the_components_of_kubernetes_are_no_administrators() -> None:
    users = {c.name: (c.user, c.groups) for c in COMPONENTS}
    assert users["kube-scheduler"] == ("system:kube-scheduler", ())
    assert users["kube-controller-manager"] == ("system:kube-controller-manager", ())
