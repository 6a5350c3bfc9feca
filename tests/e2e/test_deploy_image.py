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
from tests.support.deploy_build import Built, build_image
from tests.support.deploy_pod import run_once


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


def test_nothing_can_be_installed_in_the_image(built: Built) -> None:
    assert not list(built.root.glob("opt/evenkeel/lib/python*/site-packages/pip"))
    found = subprocess.run([str(built.python), "-m", "pip"], capture_output=True, text=True)
    assert "No module named pip" in found.stderr


def test_bytecode_is_in_the_image_since_nobody_can_write_it_later(built: Built) -> None:
    for package in ("common", "extender", "rebalancer"):
        [made] = (built.root / "app" / package / "__pycache__").glob("__init__.*.pyc")
        # PEP 552: with the hash of its source, and never compared with it.
        assert int.from_bytes(made.read_bytes()[4:8], "little") == 1
