# SPDX-License-Identifier: Apache-2.0
"""The glossary is sorted, explains each term once, and has only terms that are in use."""

from __future__ import annotations

import re
from functools import cache

from tests.support.docs.pages import pages
from tests.support.repository import DOCS, ROOT

PAGE = DOCS / "glossary.md"
CODE = ("common", "console", "evenkeel", "extender", "rebalancer", "simulator")
_ENTRY = re.compile(r"^- \*\*(.+?)\*\*: \S.*\.$")


def entries(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def terms(text: str) -> list[str]:
    return [found[1] for line in entries(text) if (found := _ENTRY.match(line))]


@cache
def all_texts() -> str:
    """Return every other page and all code of the programs, as one text in lower case."""
    found = [page.text for page in pages() if page.path != PAGE]
    found += [path.read_text() for name in CODE for path in (ROOT / name).rglob("*.py")]
    return "\n".join(found).lower()


def unused(names: list[str]) -> list[str]:
    return [name for name in names if not re.search(rf"\b{re.escape(name.lower())}", all_texts())]


def test_every_entry_is_a_term_and_one_sentence() -> None:
    text = PAGE.read_text()
    assert len(terms(text)) == len(entries(text)) > 50


def test_the_terms_are_sorted_and_explained_once() -> None:
    found = [term.lower() for term in terms(PAGE.read_text())]
    assert found == sorted(set(found))


def test_every_term_is_in_use() -> None:
    assert unused(terms(PAGE.read_text())) == []


def test_a_term_that_is_not_in_use_is_found() -> None:
    assert unused(["Migration", "flywheel governor"]) == ["flywheel governor"]
