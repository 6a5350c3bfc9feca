"""The strategy on the page about writing one is written, registered and run as the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs import ROOT, Page, sample
from tests.support.docs_example import DoesNotApply, carry_out, copy_code

PATH = ROOT / "docs" / "writing-a-strategy.md"
PAGE = Page(PATH, PATH.read_text())


def run(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *tests]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def test_the_example_on_the_page_works(tmp_path: Path) -> None:
    copy_code(tmp_path)
    done = carry_out(PAGE, tmp_path)
    assert done == [
        "common/config/choices.py",
        "rebalancer/strategies/retiring_nodes.py",
        "rebalancer/strategies/assessment.py",
        "tests/unit/strategies/test_retiring_nodes.py",
    ]
    ended = run(tmp_path, done[-1])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^3 passed", ended.stdout, re.MULTILINE)


def test_the_example_fails_without_its_registration(tmp_path: Path) -> None:
    """So the tests on the page show that the strategy is used, not only that it is there."""
    copy_code(tmp_path)
    forgotten = re.sub(r"```diff\n--- a/rebalancer/.*?```", "", PAGE.text, flags=re.DOTALL)
    done = carry_out(sample(forgotten), tmp_path)
    assert run(tmp_path, done[-1]).returncode == 1


def test_a_step_that_does_not_fit_the_code_is_complained_about(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    with pytest.raises(DoesNotApply, match="two"):
        carry_out(sample("```diff\n--- a/a.py\n two\n+three\n```"), tmp_path)
