# SPDX-License-Identifier: Apache-2.0
"""Messages that pages show as examples are messages of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from rebalancer.refusals import Reason
from tests.support.docs.pages import Page, code_words, sample
from tests.support.repository import DOCS, ROOT

PAGE = Page(DOCS / "evictability.md", (DOCS / "evictability.md").read_text())
COLUMN = "message, for example"
_FIELD = re.compile(r"\\\{.*?\\\}")


def pattern(template: str) -> re.Pattern[str]:
    """Return what matches a message with any values in its fields."""
    return re.compile(_FIELD.sub(".+", re.escape(template)))


def problems(page: Page) -> Iterator[str]:
    for row in page.rows():
        if COLUMN not in row.cells:
            continue
        [name] = code_words(row.cells["reason"])
        # The page adds the configuration key behind a message, and sets names as code.
        shown = re.sub(r" \(`\w+`\)$", "", row.cells[COLUMN]).replace("`", "")
        templates = [message.template for message in Reason(name).messages.values()]
        if not any(pattern(template).fullmatch(shown) for template in templates):
            yield f"{name}: {shown!r} is none of {templates}"


def unknown_notes(page: Page) -> list[str]:
    """Return the notes of plans on a page that no text of the rebalancer makes."""
    cells = [row.cells["note"] for row in page.rows() if "note" in row.cells]
    shown = [word.replace("…", "X") for cell in cells for word in code_words(cell)]
    return [note for note in shown if not any(text.fullmatch(note) for text in texts())]


@cache
def texts() -> list[re.Pattern[str]]:
    """Return a pattern for every text in the rebalancer that is a sentence with fields."""
    files = (ROOT / "rebalancer").rglob("*.py")
    found = {text for path in files for text in _texts_in(ast.parse(path.read_text()))}
    return [re.compile(text) for text in found if len(re.findall(r"[a-z]{2,}", text)) > 2]


def _texts_in(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(value) for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _FIELD.sub(".+", re.escape(node.value))


def _part(value: ast.expr) -> str:
    return re.escape(str(value.value)) if isinstance(value, ast.Constant) else ".+"


def test_messages_on_the_page_are_those_of_the_code() -> None:
    assert list(problems(PAGE)) == []


def test_an_old_message_is_found() -> None:
    row = "| `NotPlaced` | it is nowhere | x |"
    page = sample(f"| reason | {COLUMN} | lasts |\n|---|---|---|\n{row}\n")
    assert len(list(problems(page))) == 1


def test_notes_on_pages_are_those_of_the_code() -> None:
    page = Page(DOCS / "operations.md", (DOCS / "operations.md").read_text())
    assert unknown_notes(page) == []
    assert sum("note" in row.cells for row in page.rows()) > 10


def test_an_old_note_is_found() -> None:
    page = sample("| note | x |\n|---|---|\n| `… is paused for ever` | |\n")
    assert unknown_notes(page) == ["X is paused for ever"]
