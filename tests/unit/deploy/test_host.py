# SPDX-License-Identifier: Apache-2.0
"""An administrator can type the commands of docs/scheduler.md, on files that are root's."""

from __future__ import annotations

import pytest

from tests.support.deploy.host import commands_of, forbidden


@pytest.mark.parametrize("title", ["The control plane scheduler", "Reverting the change"])
def test_what_is_done_to_files_of_root_is_done_as_root(title: str) -> None:
    lines = commands_of(title)
    assert any("/etc/kubernetes" in line for line in lines)
    assert [line for line in lines if forbidden(line)] == []


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("sudo cp /etc/kubernetes/a /etc/kubernetes/b", []),
        ("sudo cat /etc/kubernetes/a | kubectl patch -f - > a", []),
        ("diff /etc/kubernetes/a a", ["/etc/kubernetes/a"]),
        ("sudo true && cat /etc/kubernetes/a", ["/etc/kubernetes/a"]),
        ("sudo cat a | tee /etc/kubernetes/a", ["/etc/kubernetes/a"]),
        ("sudo cat a > /etc/kubernetes/a", ["/etc/kubernetes/a"]),
    ],
)
def test_sudo_is_for_one_command(line: str, paths: list[str]) -> None:
    assert forbidden(line) == paths
