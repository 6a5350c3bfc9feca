# SPDX-License-Identifier: Apache-2.0
"""Names on pages: metrics, reasons, keys and files that people read exist in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from common.config import KINDS, effective
from common.config.reference import rows
from rebalancer.refusals import Reason
from tests.support.docs.pages import Page, code_words
from tests.support.repository import ROOT

PACKAGES = ("common", "extender", "rebalancer")
_MADE = re.compile(r"metrics\.(?:counter|gauge|live_gauge|histogram)\(\s*\"([a-z_]+)\"")
_METRIC = re.compile(r"\bevenkeel_[a-z_]+\b")
PARTS = ("_bucket", "_sum", "_count")
_LITERAL = re.compile(r"\"([A-Z][A-Za-z]+)\"")
_REASON = re.compile(r"\bReason\.([A-Z_]+)\b")
_REASONS = frozenset(str(reason) for reason in Reason)
_NAME = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
_LOGGED = re.compile(r"log(?:_\w+|\.(?:debug|info|warning|error|exception))\(\s*\"([^\"]+)\"")
_IN_THE_LOG = re.compile(r"`([^`]+)`(?: in|:)? (?:in )?(?:the |[a-z]+'s )log\b")
EVENT_TITLES = frozenset({"event"})
REASON_TITLES = frozenset({"reason", "reasons", "condition", "outcome"})
_FILE = re.compile(
    r"(?:bench|common|controlplane|deploy|docs|extender|rebalancer|simulator|tests)/[\w./{},-]*"
)
KEY_TITLES = frozenset({"key", "keys", "key and default"})


def problems(page: Page) -> list[str]:
    """Return the names of a page that nothing in the code has."""
    return [*_metrics(page), *_reasons(page), *_keys(page), *_files(page), *_events(page)]


def _metrics(page: Page) -> Iterator[str]:
    known = metrics_in_code() | _made_on(page)
    for number, line in enumerate(page.text.splitlines(), start=1):
        for name in _METRIC.findall(line):
            whole = {name, *(name.removesuffix(part) for part in PARTS)}
            if not whole & known and not name.endswith("_"):
                yield f"{page}:{number}: no metric {name}"


def _made_on(page: Page) -> set[str]:
    """Return the metrics that a page itself adds to the code, in a diff."""
    added = [re.sub(r"^[+ ]", "", b.text, flags=re.MULTILINE) for b in page.blocks]
    return {f"evenkeel_{name}" for text in added for name in _MADE.findall(text)}


def _reasons(page: Page) -> Iterator[str]:
    for row in page.rows():
        for title in REASON_TITLES & row.cells.keys():
            for word in code_words(row.cells[title]):
                if _NAME.fullmatch(word) and word not in _REASONS | literals():
                    yield f"{page}:{row.line}: no reason {word}"


def _keys(page: Page) -> Iterator[str]:
    for row in page.rows():
        for title in KEY_TITLES & row.cells.keys():
            word = next(iter(code_words(row.cells[title])), "")
            if re.fullmatch(r"[a-z]\w*(?:\.\w+)*", word) and word not in configuration_keys():
                yield f"{page}:{row.line}: no key {word}"


def _events(page: Page) -> Iterator[str]:
    for row in page.rows():
        for title in EVENT_TITLES & row.cells.keys():
            for word in code_words(row.cells[title]):
                if word not in log_events():
                    yield f"{page}:{row.line}: no log event {word}"
    for number, line in enumerate(page.prose.splitlines(), start=1):
        for word in _IN_THE_LOG.findall(line):
            if re.fullmatch(r"[a-zA-Z][a-zA-Z ;,]+", word) and word not in log_events():
                yield f"{page}:{number}: no log event {word}"


def _files(page: Page) -> Iterator[str]:
    for number, span in page.spans():
        if _FILE.fullmatch(span):
            for path in _expanded(span):
                if not (ROOT / path).exists():
                    yield f"{page}:{number}: no file {path}"


def _expanded(path: str) -> list[str]:
    """Return the paths that a shell would make of `a/{b,c}.py`."""
    found = re.search(r"\{([^}]*)\}", path)
    if found is None:
        return [path]
    ends = [path[: found.start()] + each + path[found.end() :] for each in found[1].split(",")]
    return [whole for end in ends for whole in _expanded(end)]


@cache
def metrics_in_code() -> frozenset[str]:
    """Return the full names of all metrics that the programs make."""
    found = {name for text in _sources() for name in _MADE.findall(text)}
    return frozenset({f"evenkeel_{name}" for name in found} | {"evenkeel_build_info"})


@cache
def literals() -> frozenset[str]:
    """Return every CamelCase text in the code; conditions and outcomes are among them."""
    return frozenset(word for text in _sources() for word in _LITERAL.findall(text))


def reasons_in(*paths: Path) -> frozenset[Reason]:
    """Return the reasons that these modules give."""
    text = "".join(path.read_text() for path in paths)
    return frozenset(Reason[name] for name in _REASON.findall(text))


@cache
def log_events() -> frozenset[str]:
    """Return the names of everything that the programs log."""
    return frozenset(event for text in _sources() for event in _LOGGED.findall(text))


@cache
def configuration_keys() -> frozenset[str]:
    """Return the keys of both kinds of configuration, those of blocks with their path."""
    return frozenset(row.key for kind in KINDS.values() for row in rows(kind, effective(kind())))


def _sources() -> list[str]:
    return [path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
