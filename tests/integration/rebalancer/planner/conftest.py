# SPDX-License-Identifier: Apache-2.0
"""`--all-seeds` here too, for runs of this folder alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    # Someone else may have brought it; from a larger run it cannot be brought any more.
    with contextlib.suppress(ValueError):
        parser.addoption(
            "--all-seeds", action="store_true", help="compare all instances with their optimum"
        )
