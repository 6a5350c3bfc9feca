"""Tables for people: as wide as their terminal, and elsewhere wide enough, without padding."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

_WIDTH: Final = 160
"""A pipe has no width; what is cut off there is lost."""


def print_out(shown: RenderableType) -> None:
    """Print on stdout."""
    if sys.stdout.isatty():
        Console().print(shown)
    else:
        sys.stdout.write(as_text(shown))


def as_text(shown: RenderableType) -> str:
    """Return it as a terminal without colours shows it."""
    drawn = io.StringIO()
    Console(file=drawn, width=_WIDTH, color_system=None).print(shown)
    return "".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines())
