# SPDX-License-Identifier: Apache-2.0
"""helm is built like the control plane's binaries, but only for those who ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.build import BINARIES, HELM, TOOLS, Toolbox, build, toolbox

GO = """#!/bin/sh
echo "$*" >> "$FAKE/calls"
[ "$1" = env ] && { echo go1.26.8; exit; }
for last; do :; done
name="${last%%@*}"
printf whole > "$GOBIN/${name##*/}"
"""


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    """A cache with the whole control plane, and a go command that only takes notes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO)
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("EVENKEEL_CACHE", str(tmp_path / "cache"))
    box = toolbox()
    for path in (box.kwok_config, *(box.binary(binary.name) for binary in BINARIES)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return box


def installed(folder: Path) -> list[str]:
    calls = folder / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    return [line.split()[-1] for line in lines if line.startswith("install ")]


def test_nothing_is_built_for_those_who_need_no_tool(box: Toolbox, tmp_path: Path) -> None:
    build(lambda line: None)
    assert installed(tmp_path) == []
    assert not box.tool("helm").exists()


def test_a_tool_is_built_once_for_those_who_do(box: Toolbox, tmp_path: Path) -> None:
    for _ in range(2):
        assert build(lambda line: None, extras=TOOLS).tool("helm").read_text() == "whole"
    assert installed(tmp_path) == [f"helm.sh/helm/v4/cmd/helm@{HELM}"]


def test_another_version_of_a_tool_is_another_file(box: Toolbox) -> None:
    assert HELM in box.tool("helm").parts
