# SPDX-License-Identifier: Apache-2.0
"""The page about evictability names every reason there is, and says of each what is so."""

from __future__ import annotations

import re
from pathlib import Path

from rebalancer import evictability, pod_groups
from rebalancer.evictability import GATES
from tests.support.docs.names import reasons_in
from tests.support.repository import DOCS
from tests.support.worlds.evictability import load_cases

PACKAGE = Path(evictability.__file__).parent
ROWS = re.findall(
    r"^\| `(\w+)` \| .+ \| (for good|for now|either) \| (load(?:, maintenance)?) \|$",
    (DOCS / "evictability.md").read_text(),
    re.MULTILINE,
)
REASONS = reasons_in(*PACKAGE.glob("*.py"), Path(pod_groups.__file__))


def test_every_reason_stands_on_the_page_once() -> None:
    names = [name for name, _, _ in ROWS]
    assert len(names) == len(set(names))
    assert set(names) == REASONS


def test_every_reason_stands_in_a_table_of_tests() -> None:
    assert {name for case in load_cases() for name in case.words} == REASONS


def test_the_page_has_the_order_of_the_gates() -> None:
    place: dict[str, int] = {}
    for case in load_cases():
        world = case.world()
        context = world.context()
        for number, gate in enumerate(GATES):
            reason = gate(world.pod, context)
            if reason is not None:
                place[reason.name] = number
    listed = [place[name] for name, _, _ in ROWS]
    assert listed == sorted(listed)


def test_how_long_a_reason_lasts_is_what_the_tests_say() -> None:
    lasts: dict[str, set[str]] = {name: set() for name in REASONS}
    for case in load_cases():
        for name in case.words:
            lasts[name].add("for good" if name in case.for_good else "for now")
    told = {name: {"for good", "for now"} if how == "either" else {how} for name, how, _ in ROWS}
    assert told == lasts


def test_what_a_reason_binds_is_what_the_tests_say() -> None:
    binds: dict[str, set[str]] = {name: set() for name in REASONS}
    for case in load_cases():
        for name in case.words:
            binds[name].add("load, maintenance" if name in case.maintenance else "load")
    assert {name: {what} for name, _, what in ROWS} == binds


def test_reasons_named_for_people_who_switch_exist() -> None:
    page = (DOCS / "evictability.md").read_text()
    table = page.split("from the descheduler")[1]
    ours = [cells.split("|")[2] for cells in table.splitlines() if cells.startswith("| ")][1:]
    named = {name for cell in ours for name in re.findall(r"`(\w+)`", cell)}
    assert named <= REASONS
    assert len(named) > 10
