# SPDX-License-Identifier: Apache-2.0
"""The tables on the page about the descheduler, from the rows of the converter.

python -m tests.support.docs.policy_page      # writes the page
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from evenkeel.policy import PLUGINS, POLICY, Argument, Plugin
from tests.support.repository import ROOT

PAGE: Final = ROOT / "docs" / "coming-from-the-descheduler.md"
_TABLES: Final = re.compile(r"(?<=<!-- converter -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


def tables() -> str:
    """Return the plugins, then the arguments of the policy and of each plugin."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield from ("### The policy", "", *_table(POLICY))
    for plugin in PLUGINS:
        yield from ("", f"### {plugin.name}", "", _sentence(plugin), "", *_table(plugin.arguments))


def _sentence(plugin: Plugin) -> str:
    return f"Becomes {plugin.here}: {plugin.difference}."


def _table(rows: Iterable[Argument]) -> Iterator[str]:
    yield from ("| argument | Evenkeel | what differs |", "|---|---|---|")
    for row in rows:
        difference = f" {row.difference} |" if row.difference else " |"
        yield f"| `{row.name}` | {row.here} |{difference}"


def written() -> str:
    """Return the page with the tables of today."""
    return _TABLES.sub(lambda _: tables(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
