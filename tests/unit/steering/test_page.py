"""The page about limits names every reason there is, with its key and what the key is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from common.config import RebalancerConfiguration, effective
from tests.support.steering_world import load_cases

ROOT = Path(__file__).parents[3]
MODULES = ("limits", "breaker", "extenders", "steering")
ROWS = re.findall(
    r"^\| `(\w+)` \| .+ \| (?:–|`([\w.]+)` \(`([^`]+)`\)) \| (for good|for now) \| ([\w, ]+) \|$",
    (ROOT / "docs" / "limits.md").read_text(),
    re.MULTILINE,
)
"""(reason, key, default, how long it lasts, what it binds)"""


def reasons_in_code() -> set[str]:
    sources = "".join((ROOT / "rebalancer" / f"{name}.py").read_text() for name in MODULES)
    return set(re.findall(r"(?:Refusal|_full)\(\s*\"(\w+)\"", sources))


def test_every_reason_stands_on_the_page_once() -> None:
    names = [row[0] for row in ROWS]
    assert len(names) == len(set(names))
    assert set(names) == reasons_in_code()


@pytest.mark.parametrize("row", [row for row in ROWS if row[1]], ids=lambda row: row[0])
def test_the_page_names_the_defaults(row: tuple[str, ...]) -> None:
    found: Any = effective(RebalancerConfiguration())
    for part in row[1].split("."):
        found = found[part]
    said = ", ".join(found) if isinstance(found, list | tuple) else str(found)
    assert said in (row[2], row[2].capitalize())


def test_how_long_a_limit_lasts_is_what_the_tests_say() -> None:
    lasts = {row[0]: row[3] for row in ROWS}
    for case in load_cases("limits"):
        for name in case.words:
            assert lasts[name] == ("for good" if name in case.for_good else "for now")


def test_what_a_limit_binds_is_what_the_tests_say() -> None:
    binds = {row[0]: row[4].split(", ") for row in ROWS}
    for case in load_cases("limits"):
        for name in case.words:
            assert ("maintenance" if case.row.get("maintenance") else "load") in binds[name]
