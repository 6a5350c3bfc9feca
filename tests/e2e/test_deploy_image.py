# SPDX-License-Identifier: Apache-2.0
"""Every step of the Dockerfile works, and both programs start from what comes out.

Needs the network, as building an image does, and no engine.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import __version__
from tests.e2e.image_build import Built, build_image
from tests.e2e.image_on_simulator import EXTENDER_PORT, HEALTH, beside_a_simulated_cluster
from tests.support.deploy.pod import READY_S, run_once
from tests.support.stands.extender import eventually
from tests.support.stands.extender_service import args


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


def test_nothing_can_be_installed_in_the_image(built: Built) -> None:
    assert not list(built.root.glob("opt/evenkeel/lib/python*/site-packages/pip"))
    found = subprocess.run([str(built.python), "-m", "pip"], capture_output=True, text=True)
    assert "No module named pip" in found.stderr


def test_generated_classes_of_the_kubernetes_client_are_not_in_the_image(built: Built) -> None:
    packages = next(built.root.glob("opt/evenkeel/lib/python*/site-packages"))
    kinds = ("v1_pod.*", "core_v1_api.*")
    assert [path for kind in kinds for path in packages.glob(f"kubernetes/**/{kind}")] == []
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
    print(f"requirements with bytecode: {size / 2**20:.0f} MiB")


def test_bytecode_is_in_the_image_since_nobody_can_write_it_later(built: Built) -> None:
    for package in ("common", "extender", "rebalancer"):
        [made] = (built.root / "app" / package / "__pycache__").glob("__init__.*.pyc")
        # PEP 552: with the hash of its source, and never compared with it.
        assert int.from_bytes(made.read_bytes()[4:8], "little") == 1
