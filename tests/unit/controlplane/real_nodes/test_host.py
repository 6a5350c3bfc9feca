# SPDX-License-Identifier: Apache-2.0
"""A host that cannot run real nodes hears the true reason, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.__main__ import main
from controlplane.cluster import ClusterOptions, up
from controlplane.errors import ConfigError
from controlplane.real_nodes import cgroups, enter, fleet, host

V2 = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
JOINT = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)


def _mounted(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(enter, "MOUNTS", _File(text))


class _File:
    def __init__(self, text: str) -> None:
        self._text = text

    def read_text(self) -> str:
        return self._text


@pytest.mark.usefixtures("as_user")
def test_without_root_it_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--real-nodes", "3", "--dir", str(tmp_path / "cp")]) == 1
    assert capsys.readouterr().err == "error: real nodes need root, and this is user 1000\n"
    assert not (tmp_path / "cp").exists()


def test_a_host_with_cgroup_v2_only_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    _mounted(monkeypatch, V2)
    reason = host.has_cgroup_v1()
    assert reason is not None
    assert "cgroup v1" in reason
    assert "memory" in reason


def test_controllers_that_share_a_hierarchy_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _mounted(monkeypatch, V2 + JOINT)
    assert not {"cpu", "cpuacct"} & set(cgroups.missing_controllers())
    [base] = cgroups.bases("evenkeel-x")
    assert base.name == "evenkeel-x"
    assert base.is_relative_to("/sys/fs/cgroup/cpu,cpuacct")
    assert cgroups.find([base], "cpuacct") == base


@pytest.mark.parametrize("place", ["/var/tmp/cp", "/run/cp"])
def test_a_folder_that_nodes_would_not_see_is_refused(place: str) -> None:
    assert "outside of /var and /run" in str(host.hidden(Path(place)))


def test_another_folder_is_not() -> None:
    assert host.hidden(Path("/srv/cp")) is None


def test_fake_and_real_nodes_do_not_mix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        up(ClusterOptions(tmp_path / "cp", nodes=1, real_nodes=1))


def test_names_of_processes_tell_the_node() -> None:
    assert fleet.names(2) == ["node-1", "node-2"]
    assert fleet.address(fleet.kubelet_of("node-2")) == "10.99.0.12:10250"
    assert fleet.address(fleet.containerd_of("node-2")) == "-"
