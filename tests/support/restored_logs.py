# SPDX-License-Identifier: Apache-2.0
"""Leave the logging of the test process as it was."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def restored_logs() -> Iterator[None]:
    """Undo what `common.logs.configure` does in this process."""
    root = logging.getLogger()
    handlers, level, settings = list(root.handlers), root.level, structlog.get_config()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        structlog.configure(**settings)
