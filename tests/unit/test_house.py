"""The directions of import are written down for every module that they are meant for."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PURE_CORE = (
    "common.load",
    "common.fit",
    "extender.scoring",
    "rebalancer.strategies",
    "rebalancer.planner",
    "rebalancer.evictability",
)


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    found: dict[str, Any] = next(c for c in contracts if c["id"] == name)
    return found


@pytest.mark.parametrize("module", PURE_CORE)
def test_every_part_of_the_core_that_exists_is_kept_pure(module: str) -> None:
    exists = importlib.util.find_spec(module) is not None
    assert (module in contract("pure-core")["source_modules"]) is exists


def test_every_dependency_says_why_it_is_there() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    listed = [line for line in lines if line.startswith('  "') and ">=" in line]
    assert len(listed) > 20
    assert [line for line in listed if " # " not in line] == []


def test_no_file_names_a_registry_or_this_machine() -> None:
    for name in ("requirements.txt", "requirements-dev.txt", "requirements-bootstrap.txt"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        assert "--hash=sha256:" in text
