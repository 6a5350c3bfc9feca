# SPDX-License-Identifier: Apache-2.0
"""Building: once only, patient with networks, and never half a binary.

A shell script plays the go command; everything else is real.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from controlplane import build as building
from controlplane.__main__ import main
from controlplane.build import (
    BINARIES,
    IDLE_USE,
    KWOK,
    KWOK_STAGES,
    NODE_PARTS,
    TOOLS,
    build,
    cache_folder,
    toolbox,
)
from controlplane.errors import BuildError
from controlplane.openapi import descriptions
from controlplane.releases import CHOICE, DEFAULT, find_release

GO = """#!/bin/sh
echo "$*" >> "$FAKE/calls"
for last; do :; done
case "$1 $2" in
    "env GOVERSION") cat "$FAKE/version"; exit ;;
    "mod download") echo "{\\"Dir\\": \\"$FAKE/module\\"}"; exit ;;
esac
if [ "$1" = install ]; then
    name="${last%%@*}"
    output="$GOBIN/${name##*/}"
else
    while [ "$1" != -o ]; do shift; done
    output="$2"
    cp go.mod "$FAKE/go.mod"
fi
printf half > "$output"
broken="$(cat "$FAKE/broken" 2>/dev/null || echo none)"
if [ "${last%"$broken"}" != "$last" ] && [ "$(cat "$FAKE/failures")" -gt 0 ]; then
    echo "$(($(cat "$FAKE/failures") - 1))" > "$FAKE/failures"
    echo "stream error: INTERNAL_ERROR" >&2
    exit 1
fi
printf whole > "$output"
"""
NAMES = [*(binary.name for binary in BINARIES), "kwok-stages.yaml"]


class Go:
    """The fake go command: what it was asked, and when it fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "version").write_text("go1.26.8\n")

    def is_version(self, version: str) -> None:
        (self._folder / "version").write_text(f"{version}\n")

    def breaks(self, package: str, times: int) -> None:
        (self._folder / "broken").write_text(package)
        (self._folder / "failures").write_text(str(times))

    def compiled(self) -> list[str]:
        calls = self._folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for line in lines if line.startswith(("build ", "install "))]


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO)
    (tmp_path / "bin" / "go").chmod(0o755)
    _write_modules(tmp_path / "module")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("EVENKEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "PAUSE_S", 0)
    return Go(tmp_path)


def _write_modules(folder: Path) -> None:
    for stage in KWOK_STAGES:
        path = folder / "kustomize" / stage
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            values = "".join(f"value: {measured}\n" for measured, _ in IDLE_USE)
            path.write_text(f"file: {stage}\n{values}")
        else:
            path.mkdir(parents=True)
            (path / "stage.yaml").write_text(f"stage: {stage}\n")
            (path / "kustomization.yaml").write_text("never: this\n")
    (folder / "go.mod").write_text("replace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n)\n")


def contents() -> set[str]:
    return {path.read_text() for path in (toolbox().root / "bin").iterdir()}


def test_every_part_is_built_with_a_line_of_progress(go: Go) -> None:
    lines: list[str] = []
    box = build(lines.append)
    assert box.missing() == []
    assert contents() == {"whole"}
    assert len(go.compiled()) == len(BINARIES)
    for number, name in enumerate(NAMES, 1):
        assert f"[{number}/{len(NAMES)}] {name} …" in lines


def test_kwok_gets_all_its_stages_and_no_kustomization(go: Go) -> None:
    text = build(lambda line: None).kwok_config.read_text()
    documents = text.split("\n---\n")
    assert len(documents) == len(KWOK_STAGES)
    assert "never: this" not in text


def test_a_node_without_pods_uses_something(go: Go) -> None:
    text = build(lambda line: None).kwok_config.read_text()
    for measured, told in IDLE_USE:
        assert f"value: {told}\n" in text
        assert f"value: {measured}\n" not in text


def test_stages_with_other_node_metrics_are_rejected(go: Go, tmp_path: Path) -> None:
    for file in (tmp_path / "module" / "kustomize" / "metrics").rglob("*.yaml"):
        file.write_text("value: 0\n")
    with pytest.raises(BuildError, match=f"the metrics of kwok {KWOK} do not contain"):
        build(lambda line: None)


def test_a_second_build_does_nothing(go: Go) -> None:
    build(lambda line: None)
    before = len(go.compiled())
    lines: list[str] = []
    build(lines.append)
    assert lines == []
    assert len(go.compiled()) == before


def test_a_broken_download_is_tried_again(go: Go) -> None:
    go.breaks("cmd/kube-apiserver", times=2)
    lines: list[str] = []
    box = build(lines.append)
    assert box.missing() == []
    assert contents() == {"whole"}
    assert [line for line in lines if "trying again" in line] == [
        f"  attempt {attempt} of 4 failed (stream error: INTERNAL_ERROR), trying again"
        for attempt in (1, 2)
    ]


def test_half_a_binary_never_stays_and_the_next_build_goes_on_from_there(go: Go) -> None:
    go.breaks("cmd/kube-scheduler", times=4)
    with pytest.raises(BuildError, match="`go build` failed 4 times: stream error"):
        build(lambda line: None)
    assert contents() == {"whole"}
    assert toolbox().missing()[0] == "kube-scheduler"
    assert not list(toolbox().root.glob("build-*"))
    before = len(go.compiled())
    assert build(lambda line: None).missing() == []
    assert len(go.compiled()) - before == len(BINARIES) - 3


def test_two_builders_at_once_compile_everything_once(go: Go) -> None:
    builders = [threading.Thread(target=build, args=(lambda line: None,)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert len(go.compiled()) == len(BINARIES)
    assert toolbox().missing() == []


def test_another_release_is_built_in_a_folder_of_its_own_with_its_own_settings(
    go: Go, tmp_path: Path
) -> None:
    shipped = build(lambda line: None)
    assert "godebug default=go1.26\n" in (tmp_path / "go.mod").read_text()
    before = len(go.compiled())
    older = build(lambda line: None, release=find_release("1.34"))
    assert older.root != shipped.root
    assert older.missing() == []
    written = (tmp_path / "go.mod").read_text()
    assert "godebug default=go1.24\n" in written
    assert "k8s.io/kubernetes v1.34.10\n" in written
    assert "go.etcd.io/etcd/server/v3 v3.6.4\n" in written
    assert "k8s.io/api => k8s.io/api v0.34.10\n" in written
    # kwok and metrics-server fit every release: they are linked.
    again = go.compiled()[before:]
    assert [line.rsplit("/", 1)[-1] for line in again] == [
        "v3", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl",
    ]  # fmt: skip
    assert older.binary("kwok").samefile(shipped.binary("kwok"))


def test_real_nodes_of_another_release_compile_its_kubelet_only(go: Go) -> None:
    shipped = build(lambda line: None, extras=NODE_PARTS)
    older = build(lambda line: None, release=find_release("1.34"))
    before = len(go.compiled())
    build(lambda line: None, extras=NODE_PARTS, release=older.release)
    assert [line.rsplit("/", 1)[-1] for line in go.compiled()[before:]] == ["kubelet"]
    assert older.tool("kubelet").parent.name == "v1.34.10"
    assert shipped.tool("kubelet").parent.name == DEFAULT.kubernetes
    assert older.missing_extras(NODE_PARTS) == []


def test_a_description_that_another_process_has_kept_meanwhile_is_taken(
    go: Go, tmp_path: Path
) -> None:
    source = tmp_path / "module" / "api" / "openapi-spec" / "v3"
    source.mkdir(parents=True)
    kept = cache_folder() / "openapi" / DEFAULT.kubernetes

    def meanwhile(line: str) -> None:
        kept.mkdir(parents=True)
        (kept / "api.json").write_text("theirs")

    assert descriptions(DEFAULT, meanwhile) == kept
    assert (kept / "api.json").read_text() == "theirs"


def test_what_is_missing_is_told_without_compiling_it(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    build(lambda line: None)
    before = go.compiled()
    assert main(["build", "--check"]) == 1
    assert capsys.readouterr().out == "not built: helm\n"
    assert go.compiled() == before
    build(lambda line: None, extras=TOOLS)
    assert main(["build", "--check"]) == 0


def test_the_environment_chooses_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOICE, raising=False)
    assert toolbox().release is DEFAULT
    monkeypatch.setenv(CHOICE, "1.35")
    assert toolbox().release is find_release("v1.35.8")


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9", "devel"])
def test_an_old_go_is_refused_with_what_to_install(go: Go, version: str) -> None:
    go.is_version(version)
    with pytest.raises(BuildError, match=r"is too old: install Go 1\.26 or newer"):
        build(lambda line: None)


def test_a_missing_go_is_named(go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(BuildError, match=r"Go is missing: install Go 1\.26 or newer"):
        build(lambda line: None)
