# SPDX-License-Identifier: Apache-2.0
"""Tables for people: as wide as their terminal, and elsewhere unlimited, without padding."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.segment import Segment

from common.visible import visible_lines

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType, RenderResult

_WIDTH: Final = 4000
"""A pipe has no width: a line there is as long as it is, so that programs can read it."""


def print_out(shown: RenderableType) -> None:
    """Print on stdout."""
    if sys.stdout.isatty():
        # Cropping would cut a name that is longer than the terminal; the terminal breaks it.
        Console().print(Visible(shown), crop=False)
    else:
        sys.stdout.write(as_text(shown))


def as_text(shown: RenderableType) -> str:
    """Return it as a terminal without colours shows it."""
    drawn = io.StringIO()
    Console(file=drawn, width=_WIDTH, color_system=None).print(Visible(shown), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())


class Visible:
    """Something to draw, of which only its own lines and colours reach the terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else _clean_segment(segment)


def _clean_segment(segment: Segment) -> Segment:
    return Segment(visible_lines(segment.text), segment.style)
