# SPDX-License-Identifier: Apache-2.0
"""What kube-scheduler once said of some random clusters, so that it need not run each time.

The e2e tests write these files when `EVENKEEL_FIT_RECORD` names a folder; the unit tests
read them. After a change of the generator, record the cases again:

    EVENKEEL_FIT_RECORD=tests/unit/common/fit EVENKEEL_FIT_SEED=1 EVENKEEL_FIT_CLUSTERS=8 \\
        python -m pytest -p no:xdist tests/e2e/test_fit_oracle.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.repository import UNIT_TESTS

FIT = "kube_scheduler_fit.json"
SCORES = "kube_scheduler_scores.json"

Verdicts = dict[str, dict[str, list[str]]]
"""Seed → pod → feasible nodes."""
Scores = dict[str, dict[str, dict[str, dict[str, int]]]]
"""Seed → pod → plugin → node → score."""


def keep(name: str, record: Verdicts | Scores) -> None:
    """Write a record, if someone asked for it."""
    folder = os.environ.get("EVENKEEL_FIT_RECORD")
    if folder:
        lines = (f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in record.items())
        Path(folder, name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def recorded(name: str) -> Any:  # Any: each record has its own shape
    """Read a record."""
    return json.loads((UNIT_TESTS / "common" / "fit" / name).read_text())
