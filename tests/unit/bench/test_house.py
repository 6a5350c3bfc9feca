# SPDX-License-Identifier: Apache-2.0
"""The figures about a source tree are counted as they are described."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.house import House, rows

MODULE = '''# SPDX-License-Identifier: Apache-2.0
"""A module."""

import os
from typing import (
    Protocol,
)


class Client(Protocol):
    """Nobody implements it, for it is too large."""


class RetrySettings:
    def __init__(self, a: int, b: int, c: int, d: int, e: int, *, f: int, g: int, h: int) -> None:
        self.words = [a, b, c, d, e, f, g, h]  # every one
'''


@pytest.fixture
def figures(tmp_path: Path) -> dict[str, str]:
    for name in ("common", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(MODULE)
    (tmp_path / "README.md").write_text("Whoever reads this has a look.\n")
    return {row[0]: row[1] for row in rows([House(tmp_path)])}


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("modules", "1"),
        ("median lines of a module", "16"),
        ("files under 60 lines", "1"),
        ("lines that import", "25.0 %"),
        ("lines with a comment", "6.2 %"),
        ("protocols", "1"),
        ("*Settings classes", "1"),
        ("most constructor parameters", "8 (RetrySettings)"),
        ("constructors with more than 7", "1"),
        ("word: nobody, somebody, whoever", "1 + 1 + 1"),
        ("word: for (because)", "1 + 1 + 0"),
        ("word: look", "0 + 0 + 1"),
        ("word: words", "1 + 1 + 0"),
    ],
)
def test_figures(figures: dict[str, str], title: str, value: str) -> None:
    assert figures[title] == value
