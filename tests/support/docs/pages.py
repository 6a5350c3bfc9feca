# SPDX-License-Identifier: Apache-2.0
"""Pages of documentation as values: headings, links, code blocks, tables.

Enough Markdown for our own pages, no more. Every check on them returns problems, one line
each with the place, so that a test can show that a broken page is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.repository import DOCS, ROOT

_FENCE = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^ *```[ ]*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"(`+)(.+?)\1")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\](?:\([^)]*\))?)*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]: *(\S+)", re.MULTILINE)
_HTML_LINK = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Block:
    """One fenced block of code."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Row:
    """One row of a table, by the titles of its columns."""

    cells: dict[str, str]
    line: int


@dataclass(frozen=True)
class Page:
    """One page, where it is and what it says."""

    path: Path
    text: str

    def __str__(self) -> str:
        inside = self.path.is_relative_to(ROOT)
        return str(self.path.relative_to(ROOT) if inside else self.path.name)

    @cached_property
    def prose(self) -> str:
        """The page with blank lines where its code blocks are."""
        return _FENCE.sub(lambda found: "\n" * found.group().count("\n"), self.text)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(
            Block(found[2], _outdented(found[3], len(found[1])), self._line(found.start()))
            for found in _FENCE.finditer(self.text)
        )

    @cached_property
    def anchors(self) -> frozenset[str]:
        """What a link to this page may name after the #, as GitHub makes them."""
        seen: Counter[str] = Counter()
        made = set(_ANCHOR.findall(self.prose))
        for title in _HEADING.findall(self.prose):
            name = slug(title)
            made.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
        return frozenset(made)

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield line and target of every link and picture."""
        text = _CODE_SPAN.sub(lambda found: " " * len(found.group()), self.prose)
        for pattern in (_LINK, _REFERENCE, _HTML_LINK):
            for found in pattern.finditer(text):
                yield text.count("\n", 0, found.start()) + 1, found[1]

    def spans(self) -> Iterator[tuple[int, str]]:
        """Yield line and text of what is in backticks."""
        for number, line in enumerate(self.prose.splitlines(), start=1):
            for found in _CODE_SPAN.finditer(line):
                yield number, found[2].strip()

    def rows(self) -> Iterator[Row]:
        """Yield the rows of all tables."""
        titles: list[str] | None = None
        lines = self.prose.splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.startswith("|"):
                titles = None
            elif titles is None:
                titles = _cells(line)
            elif not set(line) <= set("|-: "):
                yield Row(dict(zip(titles, _cells(line), strict=False)), number)

    def _line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1


def pages() -> list[Page]:
    """Return every page of this project that people read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
    return [Page(path, path.read_text()) for path in sorted(found)]


def sample(text: str, name: str = "sample.md") -> Page:
    """Return a page that is not there, in the folder of the others."""
    return Page(DOCS / name, text)


def code_words(cell: str) -> list[str]:
    """Return what is in backticks in a cell."""
    return [found[1] for found in _CODE_SPAN.findall(cell)]


def slug(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title.replace("`", ""))
    kept = "".join(c for c in plain.lower() if c.isalnum() or c in " -_")
    return kept.strip().replace(" ", "-")


def broken_links(page: Page) -> list[str]:
    """Return the links that lead nowhere; other sites are not asked."""
    return [
        f"{page}:{line}: {target}: {why}"
        for line, target in page.links()
        if (why := _wrong(page, target))
    ]


def unreachable(found: Sequence[Page], starts: Iterable[Page]) -> list[str]:
    """Return the pages that no way leads to; a link to a folder leads to all in it."""
    by_path = {page.path: page for page in found}
    reached: set[Path] = set()
    waiting = [page.path for page in starts]
    while waiting:
        path = waiting.pop()
        if path not in reached and path in by_path:
            reached.add(path)
            waiting += _neighbours(by_path[path])
    return [str(page) for page in found if page.path not in reached]


def _neighbours(page: Page) -> Iterator[Path]:
    for _, target in page.links():
        path = (page.path.parent / target.partition("#")[0]).resolve()
        yield from path.glob("*.md") if path.is_dir() else [path]


def _wrong(page: Page, target: str) -> str:
    if re.match(r"https?://", target):
        return ""
    if ":" in target.split("/")[0]:
        return "neither a page of ours nor of the web"
    path, _, anchor = target.partition("#")
    found = (page.path.parent / path).resolve() if path else page.path
    if path and not found.exists():
        return "no such file"
    if path and not found.is_relative_to(ROOT):
        return "outside of the project"
    if not anchor or found.suffix != ".md":
        return ""
    there = page if found == page.path else Page(found, found.read_text())
    return "" if anchor in there.anchors else "no such heading"


def _cells(line: str) -> list[str]:
    # A bar inside backticks is not the end of a cell if it is escaped, as GitHub wants it.
    return [cell.strip() for cell in _CELL.split(line.strip().strip("|"))]


def _outdented(text: str, by: int) -> str:
    return re.sub(rf"^ {{0,{by}}}", "", text, flags=re.MULTILINE) if by else text
