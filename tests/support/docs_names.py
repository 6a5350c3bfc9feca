"""Names on pages: metrics, reasons, keys and files that are told to people exist in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from common.config import KINDS, effective
from common.config.reference import rows
from tests.support.docs import ROOT, Page, code_words

PACKAGES = ("common", "extender", "rebalancer")
_MADE = re.compile(r"metrics\.(?:counter|gauge|histogram)\(\s*\"([a-z_]+)\"")
_METRIC = re.compile(r"\bevenkeel_[a-z_]+\b")
PARTS = ("_bucket", "_sum", "_count")
_LITERAL = re.compile(r"\"([A-Z][A-Za-z]+)\"")
_NAME = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
REASON_TITLES = frozenset({"reason", "reasons", "condition", "outcome"})
_FILE = re.compile(
    r"(?:bench|common|controlplane|deploy|docs|extender|rebalancer|simulator|tests)/[\w./{},-]*"
)
KEY_TITLES = frozenset({"key", "keys", "key and default"})


def complaints(page: Page) -> list[str]:
    """Return the names of a page that nothing in the code has."""
    return [*_metrics(page), *_reasons(page), *_keys(page), *_files(page)]


def _metrics(page: Page) -> Iterator[str]:
    known = metrics_in_code()
    for number, line in enumerate(page.text.splitlines(), start=1):
        for name in _METRIC.findall(line):
            whole = {name, *(name.removesuffix(part) for part in PARTS)}
            if not whole & known and not name.endswith("_"):
                yield f"{page}:{number}: no metric {name}"


def _reasons(page: Page) -> Iterator[str]:
    for row in page.rows():
        for title in REASON_TITLES & row.cells.keys():
            for word in code_words(row.cells[title]):
                if _NAME.fullmatch(word) and word not in literals():
                    yield f"{page}:{row.line}: no reason {word}"


def _keys(page: Page) -> Iterator[str]:
    for row in page.rows():
        for title in KEY_TITLES & row.cells.keys():
            word = next(iter(code_words(row.cells[title])), "")
            if re.fullmatch(r"[a-z]\w*(?:\.\w+)*", word) and word not in configuration_keys():
                yield f"{page}:{row.line}: no key {word}"


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
    """Return every CamelCase text in the code; reasons, conditions and outcomes are among them."""
    return frozenset(word for text in _sources() for word in _LITERAL.findall(text))


@cache
def configuration_keys() -> frozenset[str]:
    """Return the keys of both kinds of configuration, those of blocks with their path."""
    return frozenset(row.key for kind in KINDS.values() for row in rows(kind, effective(kind())))


def _sources() -> list[str]:
    return [path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
