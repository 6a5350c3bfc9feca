# SPDX-License-Identifier: Apache-2.0
"""The habits that CONTRIBUTING describes: hooks, license headers, a short page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.repository import DEPLOY, ROOT

HEADER = "SPDX-License-Identifier: Apache-2.0"
PACKAGES = (
    "bench",
    "common",
    "console",
    "controlplane",
    "deploy",
    "evenkeel",
    "extender",
    "rebalancer",
    "simulator",
)
MOST_LINES = 80


def sources() -> list[Path]:
    """Return the files that have a license header; generated ones repeat what they copy."""
    python = [path for name in (*PACKAGES, "tests") for path in (ROOT / name).rglob("*.py")]
    # Files in config/ become ConfigMaps as they are, and templates become manifests.
    manifests = [
        path
        for path in DEPLOY.rglob("*.yaml")
        if not {"config", "files", "templates"} & set(path.relative_to(DEPLOY).parts)
    ]
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    return [*python, *manifests, *scripts, ROOT / "Makefile", ROOT / "Dockerfile"]


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    found: list[dict[str, Any]] = config["repos"][0]["hooks"]
    return found


def test_every_source_file_has_a_license_header() -> None:
    found = sources()
    without = [path for path in found if HEADER not in "".join(_first_lines(path))]
    assert [str(path.relative_to(ROOT)) for path in without] == []
    assert len(found) > 500


def _first_lines(path: Path) -> list[str]:
    return path.read_text().splitlines()[:2]


def test_hooks_run_the_tools_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    check = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    tools = re.findall(r"\$\(BIN\)/([\w-]+(?: (?:format|check))?)", check)
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in hooks()]
    assert len(tools) == len(entries)
    for tool, entry in zip(tools, entries, strict=True):
        assert entry.startswith(tool)


@pytest.mark.parametrize("hook", hooks(), ids=lambda hook: str(hook["id"]))
def test_hooks_download_nothing(hook: dict[str, Any]) -> None:
    assert hook["language"] == "system"
    assert hook["entry"].startswith(".venv/bin/")


def test_the_page_for_contributors_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) < MOST_LINES
