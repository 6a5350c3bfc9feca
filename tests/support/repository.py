# SPDX-License-Identifier: Apache-2.0
"""Where the repository is, for tests that read shipped files or start programs in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCS: Final = ROOT / "docs"
SCHEDULER_CONFIG: Final = ROOT / "scheduler-config.yaml"
UNIT_TESTS: Final = ROOT / "tests" / "unit"
