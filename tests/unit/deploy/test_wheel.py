# SPDX-License-Identifier: Apache-2.0
"""The wheel has what users run, under a name of its own, and nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from common import __version__
from tests.support.repository import DEPLOY, ROOT, SCHEDULER_CONFIG

PACKAGES = {"common", "console", "evenkeel", "extender", "rebalancer", "simulator"}
INFO = f"evenkeel_kubernetes-{__version__}.dist-info"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as a release does, and unpack it as an installer does."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def metadata(unpacked: Path) -> Message:
    return email.message_from_string((unpacked / INFO / "METADATA").read_text())


def test_it_has_the_programs_and_the_simulator_only(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {*PACKAGES, INFO}


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_module_of_a_package_is_in_it(package: str, unpacked: Path) -> None:
    def modules(root: Path) -> set[str]:
        return {str(path.relative_to(root)) for path in (root / package).rglob("*.py")}

    assert modules(unpacked) == modules(ROOT)


def test_the_demo_finds_the_shipped_files_in_it(unpacked: Path) -> None:
    code = "from simulator.demo import settings; print(settings.DEFINITIONS, settings.SCHEDULER)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=unpacked, check=True, capture_output=True, text=True
    )
    definitions, scheduler = map(Path, done.stdout.split())
    assert definitions.is_relative_to(unpacked)
    assert definitions.read_text() == (DEPLOY / "crds" / "migrations.yaml").read_text()
    assert scheduler.read_text() == SCHEDULER_CONFIG.read_text()


def test_its_name_is_not_that_of_another_project(metadata: Message) -> None:
    assert metadata["Name"] == "evenkeel-kubernetes"
    assert metadata["Version"] == __version__


def test_it_names_no_addresses_that_do_not_exist(metadata: Message) -> None:
    assert metadata["Project-URL"] is None
    assert metadata["Home-page"] is None
