# SPDX-License-Identifier: Apache-2.0
"""The changes on the pages for newcomers are carried out on a copy of the code, and tested.

All pages share one copy and one run of pytest, because copying and starting are what takes time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.example import DoesNotApply, carry_out, copy_code
from tests.support.docs.pages import Page, sample
from tests.support.repository import DOCS

MOST_FILES = 3

STRATEGY = Page(DOCS / "writing-a-strategy.md", (DOCS / "writing-a-strategy.md").read_text())
CHANGES = Page(DOCS / "first-changes.md", (DOCS / "first-changes.md").read_text())
EXAMPLES = {
    "a strategy": STRATEGY,
    **{
        title: sample(f"# Add {title}\n{text}")
        for title, text in re.findall(
            r"^## Add (.+?)\n(.*?)(?=^## |\Z)", CHANGES.text, re.MULTILINE | re.DOTALL
        )
    },
}
REGISTRATIONS = {
    "a metric": "+        self._applied_at.set(self._clock.now())\n",
    "a gate": "+    opt_outs.no_warm_cache,\n",
    "a usage source": "+    elif kind is SourceKind.KUBELET:\n"
    "+        yield KubeletSource(client, nodes=nodes)\n",
    "a strategy": "+    RetiringNodes(),\n",
}


def run(folder: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *tests]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


def _test_files(done: list[str]) -> list[str]:
    return [name for name in done if name.startswith("tests/")]


def test_every_kind_of_change_is_shown() -> None:
    assert EXAMPLES.keys() == REGISTRATIONS.keys()


def test_the_examples_on_the_pages_work(tmp_path: Path) -> None:
    copy_code(tmp_path)
    done = {title: carry_out(page, tmp_path) for title, page in EXAMPLES.items()}
    for title, names in done.items():
        assert len(_test_files(names)) == 1, title
        assert len(set(names) - set(_test_files(names))) <= MOST_FILES, title
    ended = run(tmp_path, [name for names in done.values() for name in _test_files(names)])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^9 passed", ended.stdout, re.MULTILINE)


def test_the_examples_fail_without_their_registration(tmp_path: Path) -> None:
    """So the tests on the pages show that the new part is used, not only that it is there."""
    copy_code(tmp_path)
    tests: list[str] = []
    for title, page in EXAMPLES.items():
        forgotten = page.text.replace(REGISTRATIONS[title], "")
        assert forgotten != page.text, title
        tests += _test_files(carry_out(sample(forgotten), tmp_path))
    ended = run(tmp_path, tests)
    assert ended.returncode == 1
    failed = set(re.findall(r"^FAILED ([^:]+)::", ended.stdout, re.MULTILINE))
    assert failed == set(tests), ended.stdout


def test_a_step_that_does_not_fit_the_code_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    with pytest.raises(DoesNotApply, match="two"):
        carry_out(sample("```diff\n--- a/a.py\n two\n+three\n```"), tmp_path)
