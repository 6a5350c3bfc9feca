# SPDX-License-Identifier: Apache-2.0
"""The page on the architecture has the tree that there is, and short paths through it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.docs.pages import Page, code_words
from tests.support.repository import DOCS, ROOT

PAGE = Page(DOCS / "architecture.md", (DOCS / "architecture.md").read_text())
PACKAGES = ("common", "extender", "rebalancer")
MOST_FILES = 25
"""How many files a reader has to open to follow a watch event to an eviction."""
PATHS = ("From a watch event to an eviction", "From a scheduling request to an answer")


def section(page: Page, title: str) -> Page:
    """Return what is below a heading, up to the next heading."""
    found = re.search(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page.text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"no section {title}"
    return Page(page.path, found[1])


def files_in(page: Page) -> list[str]:
    """Return the files that the tables name, in their order."""
    cells = [cell for row in page.rows() for cell in row.cells.values()]
    return [word for cell in cells for word in code_words(cell) if word.endswith(".py")]


def folders() -> list[str]:
    """Return the packages of the programs, as the page names them."""
    found = [ROOT / name for name in PACKAGES]
    found += [each.parent for name in PACKAGES for each in (ROOT / name).rglob("__init__.py")]
    return sorted({f"{path.relative_to(ROOT)}/" for path in found})


def problems(page: Page) -> list[str]:
    """Return files that do not exist, and files that are named twice."""
    names = files_in(page)
    missing = [f"no file {name}" for name in names if not Path(ROOT, name).is_file()]
    return missing + [f"{name} is named {n} times" for name, n in Counter(names).items() if n > 1]


@pytest.mark.parametrize("title", PATHS)
def test_every_file_on_a_path_exists_and_is_named_once(title: str) -> None:
    path = section(PAGE, title)
    assert problems(path) == []
    assert len(files_in(path)) >= 8


def test_the_path_to_an_eviction_is_short() -> None:
    assert len(files_in(section(PAGE, PATHS[0]))) <= MOST_FILES


def test_every_package_is_described() -> None:
    described = {word for row in PAGE.rows() for word in code_words(row.cells.get("package", ""))}
    assert described >= set(folders())


def test_every_described_package_exists() -> None:
    described = {word for row in PAGE.rows() for word in code_words(row.cells.get("package", ""))}
    assert [name for name in described if not Path(ROOT, name).is_dir()] == []


def test_wrong_files_are_found() -> None:
    rows = "| step | file |\n|---|---|\n| a | `common/clock.py` |\n| b | `common/clock.py` |\n"
    page = Page(PAGE.path, f"{rows}| c | `common/clok.py` |\n")
    assert problems(page) == ["no file common/clok.py", "common/clock.py is named 2 times"]
