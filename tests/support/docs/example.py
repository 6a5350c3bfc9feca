# SPDX-License-Identifier: Apache-2.0
"""The worked example of a page, carried out on a copy of the code.

A block of Python whose first line names a file becomes that file. A block of diff changes the
file that it names: the lines with ` ` and `-` are searched, wherever they are, and replaced by
the lines with ` ` and `+`. A line `@@` separates several changes of one file.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.support.docs.pages import Block, Page
from tests.support.repository import ROOT

COPIED = ("common", "console", "rebalancer", "simulator", "tests/support", "docs/metrics.md")
_NAMED = re.compile(r"# (\S+\.py)\n")


class DoesNotApply(Exception):
    """A page whose steps do not fit the code any more."""


def copy_code(folder: Path) -> None:
    """Copy what the examples need, and the settings of pytest."""
    leave = shutil.ignore_patterns("__pycache__")
    for name in (*COPIED, "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=leave)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def carry_out(page: Page, folder: Path) -> list[str]:
    """Do what the page says, in its order; return the files it wrote or changed."""
    done = [_write(block, folder) or _change(block, folder) for block in page.blocks]
    return [name for name in done if name]


def _write(block: Block, folder: Path) -> str:
    found = _NAMED.match(block.text) if block.language == "python" else None
    if found is None:
        return ""
    path = folder / found[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text[found.end() :])
    return found[1]


def _change(block: Block, folder: Path) -> str:
    if block.language != "diff":
        return ""
    head, *lines = block.text.splitlines()
    name = head.removeprefix("--- a/")
    text = (folder / name).read_text()
    for hunk in _hunks(lines):
        text = _applied(hunk, text, name)
    (folder / name).write_text(text)
    return name


def _hunks(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("@@"):
            found.append([])
        else:
            found[-1].append(line)
    return found


def _applied(hunk: list[str], text: str, name: str) -> str:
    before = "".join(f"{line[1:]}\n" for line in hunk if line[:1] != "+")
    after = "".join(f"{line[1:]}\n" for line in hunk if line[:1] != "-")
    if text.count(before) != 1:
        raise DoesNotApply(f"{name} does not have these lines once:\n{before}")
    return text.replace(before, after)
