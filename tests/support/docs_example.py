"""The worked example of a page, carried out on a copy of the code.

A block of Python whose first line names a file becomes that file; a block of diff changes
the file that it names: what stands with ` ` and `-` is looked for, wherever it is, and
becomes what stands with ` ` and `+`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.support.docs import ROOT, Block, Page

COPIED = ("common", "rebalancer", "simulator", "tests/support")
_NAMED = re.compile(r"# (\S+\.py)\n")


class DoesNotApply(Exception):
    """A page whose steps do not fit the code any more."""


def copy_code(folder: Path) -> None:
    """Copy what the example needs, and the settings of pytest."""
    leave = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", folder)


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
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "+")
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] != "-")
    if text.count(before) != 1:
        raise DoesNotApply(f"{name} does not have these lines once:\n{before}")
    (folder / name).write_text(text.replace(before, after))
    return name
