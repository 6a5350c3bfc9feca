# SPDX-License-Identifier: Apache-2.0
"""Every step of the Dockerfile works, and both programs start from what comes out.

Needs the network, as building an image does, and no engine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import __version__
from tests.e2e.image_build import Built, build_image
from tests.e2e.image_on_simulator import EXTENDER_PORT, HEALTH, beside_a_simulated_cluster
from tests.support.deploy.pod import READY_S, run_once
from tests.support.repository import ROOT
from tests.support.stands.extender import eventually
from tests.support.stands.extender_service import args

REQUIREMENTS = ROOT / "requirements.txt"
LOADED = re.compile(r"\.py$|\.so\b")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("image")
    yield build_image(folder)
    # pytest would keep half a gigabyte of each of the last runs.
    shutil.rmtree(folder)


@pytest.mark.parametrize("program", ["extender", "rebalancer"])
async def test_the_image_starts_as_its_user_on_a_read_only_root(
    built: Built, tmp_path: Path, program: str
) -> None:
    command = ["python", "-m", program, "--version"]
    assert await run_once(tmp_path / "pod", built.image(), command) == f"{program} {__version__}\n"


async def test_both_programs_of_the_image_work_with_a_cluster_and_end_when_asked(
    built: Built, tmp_path: Path
) -> None:
    async with beside_a_simulated_cluster(tmp_path, built.image()) as running:
        await eventually(running.is_ready, "both are ready", patience_s=READY_S)
        for program in HEALTH:
            assert (await running.get(program, "/livez")).status_code == 200, program
        nodes = ["node-1", "node-2", "node-3"]
        answer = await running.post(EXTENDER_PORT, "/filter", args(*nodes))
        assert answer.status_code == 200
        assert answer.json()["NodeNames"] == nodes
        asked = (await running.metrics("extender")).total("extender_requests_total", code="200")
        assert asked == 1
        assert await running.stop() == 0, running.words()


def test_the_interpreter_is_the_only_program_in_the_image(built: Built) -> None:
    programs = {
        path.name
        for path in built.root.rglob("*")
        # Libraries and modules are loaded and not run, but many of them may be.
        if path.is_file() and path.stat().st_mode & 0o111 and not LOADED.search(path.name)
    }
    assert programs
    assert all(name.startswith("python") for name in programs), programs


@pytest.mark.parametrize("shell", ["sh", "bash", "/bin/sh", "/usr/bin/perl", "apt", "pip"])
async def test_nothing_else_can_be_started_in_it(built: Built, tmp_path: Path, shell: str) -> None:
    # What the interpreter itself says of it, with the PATH of the image.
    code = f"import subprocess; subprocess.run([{shell!r}, '--version'])"
    with pytest.raises(AssertionError, match="No such file or directory"):
        await run_once(tmp_path / "pod", built.image(), ["python", "-c", code])


@pytest.mark.parametrize("module", ["pip", "ensurepip", "venv"])
async def test_nothing_can_be_installed_in_the_image(
    built: Built, tmp_path: Path, module: str
) -> None:
    with pytest.raises(AssertionError, match=f"No module named {module}"):
        await run_once(tmp_path / "pod", built.image(), ["python", "-m", module])


async def test_names_hours_and_authorities_are_known_without_the_rest_of_the_base_image(
    built: Built, tmp_path: Path
) -> None:
    code = (
        "import socket, ssl, zoneinfo; "
        "print(zoneinfo.ZoneInfo('Europe/Berlin'), "
        "len(ssl.create_default_context().get_ca_certs()) > 50, "
        "socket.getaddrinfo('127.0.0.1', 80)[0][4][1])"
    )
    said = await run_once(tmp_path / "pod", built.image(), ["python", "-c", code])
    assert said == "Europe/Berlin True 80\n"


def test_generated_classes_of_the_kubernetes_client_are_not_in_the_image(built: Built) -> None:
    packages = next(built.root.glob("opt/evenkeel/lib/python*/site-packages"))
    kinds = ("v1_pod.*", "core_v1_api.*")
    assert [path for kind in kinds for path in packages.glob(f"kubernetes/**/{kind}")] == []
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    whole = sum(path.lstat().st_size for path in built.root.rglob("*") if path.is_file())
    print(f"requirements with bytecode: {size / 2**20:.0f} MiB, the image: {whole / 2**20:.0f} MiB")


def test_bytecode_is_in_the_image_since_nobody_can_write_it_later(built: Built) -> None:
    [asyncio] = built.root.glob("**/lib/python3.*/asyncio")
    ours = [built.root / "app" / package for package in ("common", "extender", "rebalancer")]
    for package in (asyncio, *ours):
        [made] = (package / "__pycache__").glob("__init__.*.pyc")
        # PEP 552: with the hash of its source, and never compared with it.
        assert int.from_bytes(made.read_bytes()[4:8], "little") == 1


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_every_requirement_has_a_wheel_for_each_platform(tmp_path: Path, machine: str) -> None:
    """The Dockerfile advises to build for both, and it compiles nothing."""
    uv = Path(sys.executable).with_name("uv")
    platform = (f"--python-platform={machine}-unknown-linux-gnu", "--python-version=3.11")
    wheels = ("--only-binary=:all:", "--require-hashes", f"--requirements={REQUIREMENTS}")
    target = f"--target={tmp_path}"
    command = [str(uv), "pip", "install", "--dry-run", *platform, *wheels, target]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
