# SPDX-License-Identifier: Apache-2.0
"""Tables of cases: YAML files beside the tests that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

# Every test process reads all tables before its first test; the parser in C takes a tenth.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_table(path: Path) -> Any:
    """Return what a YAML file holds."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)


def read_documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_LOADER))
