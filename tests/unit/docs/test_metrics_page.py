# SPDX-License-Identifier: Apache-2.0
"""What the documentation says is what the code does."""

from __future__ import annotations

import re

from tests.support.repository import DOCS, ROOT

PACKAGES = ("common", "extender", "rebalancer")


def metrics_in_code() -> set[str]:
    made = re.compile(r"metrics\.(?:counter|gauge|live_gauge|histogram)\(\s*\"([a-z_]+)\"")
    sources = [path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = {name for text in sources for name in made.findall(text)}
    return {f"evenkeel_{name}" for name in found} | {"evenkeel_build_info"}


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    page = (DOCS / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(evenkeel_\w+)`", page, re.MULTILINE)) == metrics_in_code()
