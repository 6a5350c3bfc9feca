# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no linter checks: contracts, headers, constructors and words."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.house import MAX_PARAMETERS, WORDS
from tests.support.repository import DEPLOY, DOCS, ROOT

CODE = (
    "common",
    "console",
    "evenkeel",
    "extender",
    "rebalancer",
    "simulator",
    "controlplane",
    "bench",
)
SOURCES = sorted(
    path for name in (*CODE, "tests", "deploy") for path in (ROOT / name).rglob("*.py")
)
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *DEPLOY.rglob("*.md")])
HEADER = "SPDX-License-Identifier: Apache-2.0"
# The other patterns of the list only hint at a word that reads badly.
CERTAIN = (
    "nobody, somebody, whoever",
    "anew",
    "mend",
    "so long as",
    "is meant, unless told otherwise",
)
BANNED = re.compile("|".join(WORDS[name] for name in CERTAIN), re.IGNORECASE)
# It lists the words.
WORD_LIST = ROOT / "bench" / "house.py"

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


@pytest.mark.parametrize("name", ["Makefile", "Dockerfile", ".ci/run", ".ci/fresh"])
def test_scripts_name_their_license(name: str) -> None:
    assert HEADER in head(ROOT / name)


def test_every_source_file_names_its_license() -> None:
    others = [*(ROOT / "bench").rglob("*.go")]
    assert [shown(path) for path in [*SOURCES, *others] if HEADER not in head(path)] == []


def test_no_constructor_takes_more_parameters_than_a_reader_can_keep() -> None:
    modules = [path for path in SOURCES if shown(path).partition("/")[0] in CODE]
    found = [(path, *each) for path in modules for each in constructors(path)]
    assert len(found) > 100
    long = [f"{shown(path)}: {name} {count}" for path, name, count in found]
    assert [line for line in long if int(line.rpartition(" ")[2]) > MAX_PARAMETERS] == []


def test_banned_words_are_found() -> None:
    for text in ("Nobody knows", "written anew", "as is meant", "so long as it stays"):
        assert BANNED.search(text), text


@pytest.mark.parametrize("path", [ROOT / name for name in CODE] + PAGES, ids=lambda p: shown(p))
def test_no_text_uses_a_banned_word(path: Path) -> None:
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert [line for file in files if file != WORD_LIST for line in banned_in(file)] == []


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def head(path: Path) -> str:
    return path.read_text().partition("\n\n")[0]


def constructors(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the classes of a module and the number of their constructor's parameters."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                    given = each.args
                    listed = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                    rest = [extra for extra in (given.vararg, given.kwarg) if extra]
                    yield node.name, len(listed) + len(rest) - 1


def banned_in(path: Path) -> list[str]:
    """Return the places of banned words in a file."""
    text = path.read_text()
    found = [(text.count("\n", 0, m.start()) + 1, m[0]) for m in BANNED.finditer(text)]
    return [f"{shown(path)}:{line}: {' '.join(word.split())}" for line, word in found]
