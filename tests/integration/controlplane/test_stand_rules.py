# SPDX-License-Identifier: Apache-2.0
"""What holds for tests on the real control plane: no skips, one seed unless asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

CONFTEST = (ROOT / "tests" / "e2e" / "conftest.py").read_text()
TESTS = """
import pytest

def test_skips(): pytest.skip("later")

@pytest.mark.skip
def test_is_skipped(): pass

@pytest.mark.xfail
def test_expects_to_fail(): assert False

def test_passes(): pass

def test_seed(seed): pass
"""
SKIPPED_MODULE = "import pytest\npytest.skip('all of it', allow_module_level=True)\n"


def outcomes(folder: Path, *options: str) -> dict[str, str]:
    """Run pytest below two conftests like ours; return how each test ended."""
    for name in ("e2e", "conformance"):
        (folder / name).mkdir()
        (folder / name / "conftest.py").write_text(CONFTEST)
    (folder / "e2e" / "test_many.py").write_text(TESTS)
    (folder / "conformance" / "test_none.py").write_text(SKIPPED_MODULE)
    paths = [str(folder / "e2e"), str(folder / "conformance")]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:xdist"]
    config = [f"--rootdir={folder}", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, *config, "--continue-on-collection-errors", *options, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^([A-Z]+) \S*/(test_\S+)", done.stdout, flags=re.MULTILINE)
    return {name.rpartition("::")[2]: outcome for outcome, name in found}


def test_a_skip_fails_and_a_test_gets_one_seed(tmp_path: Path) -> None:
    assert outcomes(tmp_path) == {
        "test_skips": "FAILED",
        "test_is_skipped": "ERROR",
        "test_none.py": "ERROR",
        "test_expects_to_fail": "XFAIL",
        "test_passes": "PASSED",
        "test_seed[1]": "PASSED",
    }


def test_any_seeds_can_be_given(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "--seeds", "7,11")
    assert {name for name in found if "seed" in name} == {"test_seed[7]", "test_seed[11]"}


def test_all_seeds_are_run_when_asked_for(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "--all-seeds")
    assert [found.get(f"test_seed[{seed}]") for seed in range(1, 6)] == ["PASSED"] * 5
