# SPDX-License-Identifier: Apache-2.0
"""The page about limits names every reason there is, with its key and what the key is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from common.config import RebalancerConfiguration, effective
from rebalancer.refusals import Reason
from tests.support.docs.names import reasons_in
from tests.support.repository import DOCS, ROOT
from tests.support.worlds.pacing import load_cases

MODULES = (
    "limits",
    "rules",
    "pacing/checks",
    "pacing/breaker",
    "pacing/extenders",
    "pacing/policy",
)
ROWS = re.findall(
    r"^\| `(\w+)` \| .+ \| (?:–|`([\w.]+)` \(`([^`]+)`\)) \| (for good|for now) \| ([\w, ]+) \|$",
    (DOCS / "limits.md").read_text(),
    re.MULTILINE,
)
"""(reason, key, default, how long it lasts, what it binds)"""


def reasons_in_code() -> set[str]:
    paths = [ROOT / "rebalancer" / f"{name}.py" for name in MODULES]
    # Only compared with what Migrations say.
    ended = {
        Reason.DEADLINE_EXCEEDED,
        Reason.COUNT_CHANGED,
        Reason.RAISE_REVERTED,
        Reason.WORKLOAD_CHANGED,
    }
    return {str(reason) for reason in reasons_in(*paths) if reason not in ended}


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
    for case in load_cases("checks"):
        for name in case.words:
            assert lasts[name] == ("for good" if name in case.for_good else "for now")


def test_what_a_limit_binds_is_what_the_tests_say() -> None:
    binds = {row[0]: row[4].split(", ") for row in ROWS}
    for case in load_cases("checks"):
        for name in case.words:
            assert ("maintenance" if case.row.get("maintenance") else "load") in binds[name]
