# SPDX-License-Identifier: Apache-2.0
"""The files of a node: what pods may use of it, and where it writes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from controlplane.errors import ConfigError
from controlplane.nodes import bytes_of, milli
from controlplane.real_nodes import settings
from controlplane.real_nodes.image import IMAGE
from controlplane.real_nodes.settings import Machine, RealNodeSpec

MACHINE = Machine(cpu_milli=4_000, memory_bytes=8 << 30)


def test_the_rest_of_the_machine_is_reserved() -> None:
    made = settings.kubelet(RealNodeSpec(500, 1 << 30), MACHINE, 1, ca=Path("/ca.crt"))
    assert made["systemReserved"] == {"cpu": "3500m", "memory": str(7 << 30)}


def test_timings_of_kubelets_are_the_defaults_of_kubernetes() -> None:
    made = settings.kubelet(RealNodeSpec(), MACHINE, 1, ca=Path("/ca.crt"))
    assert not [key for key in made if "requency" in key or "eriod" in key or "uration" in key]


def test_nodes_differ_in_their_addresses() -> None:
    numbers = (1, 2, settings.MOST)
    assert len({settings.address(number) for number in numbers}) == len(numbers)
    subnets = {str(settings.network(number)["plugins"]) for number in numbers}
    assert len(subnets) == len(numbers)


def test_containerd_needs_no_network_for_its_sandboxes() -> None:
    text = settings.containerd(plugins=Path("/p"), network=Path("/n"), runc=Path("/runc"))
    plugins = tomllib.loads(text)["plugins"]
    assert plugins["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"] == IMAGE
    runtime = plugins["io.containerd.cri.v1.runtime"]
    assert runtime["cni"] == {"bin_dirs": ["/p"], "conf_dir": "/n"}
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/runc"


@pytest.mark.parametrize(("text", "found"), [("500m", 500), ("2", 2000), ("0.5", 500)])
def test_cpu_is_read(text: str, found: int) -> None:
    assert milli(text) == found


@pytest.mark.parametrize(("text", "found"), [("512Mi", 512 << 20), ("2Gi", 2 << 30)])
def test_memory_is_read(text: str, found: int) -> None:
    assert bytes_of(text) == found


@pytest.mark.parametrize("text", ["", "m", "half", "2Gi"])
def test_what_is_no_cpu_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a quantity of CPU"):
        milli(text)


@pytest.mark.parametrize("text", ["", "Gi", "2", "2G", "-1Gi"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a quantity of memory"):
        bytes_of(text)
