# SPDX-License-Identifier: Apache-2.0
"""The pages: templates, and what all of them have in common.

Texts are escaped by default, and characters that cannot be seen are shown as their escapes, so a
name from the cluster is never anything but text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from common import __version__
from common.visible import visible


class Item(NamedTuple):
    """An entry of the navigation."""

    template: str
    path: str
    title: str


NAVIGATION: Final = (
    Item("cluster", "/", "Cluster"),
    Item("plan", "/plan", "Plan"),
    Item("migrations", "/migrations", "Migrations"),
    Item("why", "/why", "Why"),
    Item("health", "/health", "Health"),
)


class Pages:
    """Renders templates."""

    def __init__(self, *, program: str, pausable: bool) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(visible=visible, clock=_clock, part=_part)
        self._environment.globals.update(
            navigation=NAVIGATION, program=program, pausable=pausable, version=__version__
        )

    def render(self, page: str, /, **values: Any) -> str:
        """Return a page."""
        return self._environment.get_template(f"{page}.html").render(page=page, **values)


def _clock(seconds: float | None) -> str:
    """Return a time as machines write it; the page shows it in the viewer's own zone."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _part(text: str) -> str:
    return quote(text, safe="")
