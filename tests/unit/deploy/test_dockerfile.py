# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile keeps what the manifests rely on.

Its steps are run as commands in `tests/e2e/test_deploy_image.py`.
"""

from __future__ import annotations

import re

from common import __version__
from tests.support.deploy.dockerfile import DOCKERFILE, stages

ROOT = DOCKERFILE.parent
BUILD, FINAL = stages()


def copied() -> list[tuple[str, str]]:
    words = [each.words() for each in BUILD.all("COPY")]
    return [(source, target) for source, target in words]


def test_the_image_is_built_on_a_slim_python_and_starts_from_nothing() -> None:
    assert re.fullmatch(r"python:3\.\d+-slim", BUILD.base)
    assert [line for line in DOCKERFILE.read_text().splitlines() if line.startswith("FROM ")] == [
        "FROM ${BASE} AS build",
        "FROM scratch",
    ]


def test_only_wheels_of_known_hashes_are_installed() -> None:
    [install] = [each.words() for each in BUILD.all("RUN") if " install " in each.text]
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(install)
    assert install[-1].endswith("requirements.txt")


def test_bytecode_does_not_depend_on_the_times_of_files() -> None:
    steps = [each.words() for each in BUILD.all("RUN") if " compileall " in each.text]
    assert [step[-1] for step in steps] == ["/opt/evenkeel/lib", "/app"]
    assert all("--invalidation-mode unchecked-hash" in " ".join(step) for step in steps)


def test_nothing_is_run_in_the_final_stage_and_only_three_folders_are_in_it() -> None:
    assert FINAL.all("RUN") == []
    copies = [each.words() for each in FINAL.all("COPY")]
    assert copies == [
        ["--from=build", "/rootfs", "/"],
        ["--from=build", "/opt/evenkeel", "/opt/evenkeel"],
        ["--from=build", "/app", "/app"],
    ]


def test_the_user_is_the_number_that_the_manifests_name_and_has_a_home() -> None:
    assert FINAL.last("USER") == "65532:65532"
    assert FINAL.environment["HOME"] == FINAL.last("WORKDIR")


def test_the_label_tells_the_version() -> None:
    assert BUILD.arguments == FINAL.arguments == {"VERSION": __version__}
    assert FINAL.labels["org.opencontainers.image.version"] == __version__


def test_the_programs_are_found_by_the_command_of_the_manifests() -> None:
    assert FINAL.environment["PATH"].split(":")[0] == "/opt/evenkeel/bin"
    assert FINAL.last("WORKDIR") == "/app"
    assert {("extender", "/app/extender"), ("rebalancer", "/app/rebalancer")} <= set(copied())


def test_only_what_runs_in_a_cluster_is_copied() -> None:
    code = {source for source, target in copied() if target.startswith("/app/")} - {"LICENSE"}
    assert code == {"common", "console", "evenkeel", "extender", "rebalancer"}


def test_everything_that_is_copied_exists_and_is_let_into_the_build() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in lines if line.startswith("!")}
    sources = {source for source, _ in copied()}
    assert "*" in lines
    # A folder is let in for the file of it that is copied.
    assert sources - let_in == {"deploy/image/root.py"}
    assert let_in - sources == {"deploy/image"}
    assert all((ROOT / source).exists() for source in sources)
