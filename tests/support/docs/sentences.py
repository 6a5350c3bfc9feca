# SPDX-License-Identifier: Apache-2.0
"""One sentence per line: a change of one then shows as a change of one line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.docs.pages import Page

_NO_PROSE = re.compile(r"\s*(?:\||#|<!--|!\[)")
# A title in front of a paragraph, such as **Memory.**, is no sentence.
_HEAD = re.compile(r"\s*(?:(?:\d+\.|[-*])\s+)?(?:(\*+)[^*]+\1)?")
_CODE = re.compile(r"(`+).+?\1")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf)\.")
_TWO = re.compile(r"[\w)\]*_…”\"%] ?[.?!][)\]*_”\"]* +[(\[*_“\"]*(?:[A-Z0-9]|kube)")


def problems(page: Page) -> list[str]:
    """Return the lines outside of code and tables that hold more than one sentence."""
    return [f"{page}:{number}: more than one sentence: {line}" for number, line in _crowded(page)]


def _crowded(page: Page) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(page.prose.splitlines(), start=1):
        if not _NO_PROSE.match(line) and _TWO.search(_plain(line)):
            yield number, line.strip()


def _plain(line: str) -> str:
    """Return a line without what only looks like the end of a sentence."""
    head = _HEAD.match(line)
    return _ABBREVIATION.sub("", _CODE.sub("CODE", line[head.end() if head else 0 :]))
