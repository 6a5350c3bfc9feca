# SPDX-License-Identifier: Apache-2.0
"""A demo as an animated SVG for a README: every frame is a screen of a real run.

Frames are side by side like a film, and a style sheet moves the film, one frame at a time.
A line that several frames share is written once. Viewers that do not animate, or are asked
not to (`prefers-reduced-motion`), show the last frame.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from simulator.demo.screen import BLOCK, DemoState, bars, left_width, screen
from simulator.demo.views import summary_table
from simulator.figures import Utilization

WIDTH, HEIGHT = 100, 30
_CELL_W, _CELL_H, _FONT = 8.4, 16.5, 14
_EDGE, _BAR = 14, 34
_LONGEST_S: Final = 1.5
_EVERY_S: Final = 0.5
_LAST_S: Final = 8.0
_THEME: Final = TerminalTheme(
    (17, 20, 27),
    (201, 209, 217),
    [
        *((60, 66, 76), (214, 72, 66), (70, 160, 88), (204, 152, 46)),
        *((88, 140, 230), (178, 120, 220), (64, 170, 190), (201, 209, 217)),
    ],
    [
        *((92, 100, 112), (240, 100, 92), (90, 190, 110), (226, 180, 80)),
        *((120, 165, 245), (200, 150, 235), (100, 200, 215), (240, 244, 248)),
    ],
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One screen: when it begins, and the pieces of its lines."""

    seconds: float
    lines: list[tuple[int, ...]]


@dataclass(slots=True)
class Recorder:
    """Records the screens of a demo and makes a film of them."""

    parts: dict[str, int] = field(default_factory=dict)
    """Pieces of lines as SVG, each with its number."""
    frames: list[Frame] = field(default_factory=list)

    def take(self, state: DemoState) -> None:
        """Record a screen, unless one was recorded just before."""
        if not self.frames or state.seconds - self.frames[-1].seconds >= _EVERY_S:
            self._add(state.seconds, screen(state, WIDTH, HEIGHT))

    def end(
        self, after: Utilization, verdict: str, rows: list[tuple[str, str]], seconds: float
    ) -> None:
        """Record the summary as the last screen."""
        table = summary_table(verdict, rows)
        room = HEIGHT - len(_lines(table))
        self._add(seconds, Group(bars(after, (), WIDTH, room), table))

    def write(self, path: Path) -> None:
        """Write the film."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(film(self.parts, self.frames))

    def _add(self, seconds: float, shown: RenderableType) -> None:
        lines = [_number(self.parts, line) for line in _lines(shown)]
        # The first line has the clock: a change of the clock alone is not worth a frame.
        if not self.frames or self.frames[-1].lines[1:] != lines[1:]:
            self.frames.append(Frame(seconds, lines))


def _number(parts: dict[str, int], line: Sequence[Segment]) -> tuple[int, ...]:
    """Return the numbers of the pieces of a line: one for each column of the screen."""
    # A change in one column must not repeat the other.
    cuts = Segment.divide(line, [left_width(WIDTH), WIDTH])
    drawn = [row(piece, at) for piece, at in zip(cuts, (0, left_width(WIDTH)), strict=True)]
    return tuple(parts.setdefault(text, len(parts)) for text in drawn if text)


def film(parts: dict[str, int], frames: Sequence[Frame]) -> str:
    """Return the whole SVG."""
    inner_w, inner_h = WIDTH * _CELL_W, HEIGHT * _CELL_H
    width, height = inner_w + 2 * _EDGE, inner_h + _BAR + _EDGE
    starts, whole = _timing([frame.seconds for frame in frames])
    steps = "".join(
        f"{100 * start / whole:.2f}%{{transform:translateX({-number * inner_w:g}px)}}"
        for number, start in enumerate(starts)
    )
    last = f"translateX({-(len(frames) - 1) * inner_w:g}px)"
    shown = "".join(_frame(number, frame, inner_w) for number, frame in enumerate(frames))
    drawn = "".join(f'<g id="r{number}">{text}</g>' for text, number in parts.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" \
width="{width:g}" height="{height:g}" role="img" aria-label="A recording of make demo">
<style>
text{{font:{_FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;\
white-space:pre;fill:{_hex(None)}}}
.b{{font-weight:bold}}.d{{opacity:.65}}
.film{{transform:{last};animation:play {whole:.1f}s step-end infinite}}
@keyframes play{{{steps}}}
@media(prefers-reduced-motion:reduce){{.film{{animation:none}}}}
</style>
<defs>{drawn}</defs>
<rect width="{width:g}" height="{height:g}" rx="10" fill="#11141b"/>
<circle cx="20" cy="17" r="5" fill="#d64842"/><circle cx="38" cy="17" r="5" fill="#cc982e"/>\
<circle cx="56" cy="17" r="5" fill="#46a058"/>
<text x="{width / 2:g}" y="22" text-anchor="middle" class="d">make demo</text>
<svg x="{_EDGE}" y="{_BAR}" width="{inner_w:g}" height="{inner_h:g}">
<g class="film">{shown}</g>
</svg>
</svg>
"""


def row(line: Iterable[Segment], column: int = 0) -> str:
    """Return a piece of a terminal line as SVG."""
    drawn = []
    for text, style, _ in Segment.simplify(line):
        width = Segment(text).cell_length
        drawn.append(_run(text, style or Style.null(), column * _CELL_W, width * _CELL_W))
        column += width
    return "".join(drawn)


def _run(text: str, style: Style, left: float, width: float) -> str:
    color, ground = style.color, style.bgcolor
    if style.reverse:
        color, ground = ground or Color.parse("black"), color or Color.parse("white")
    if not text.strip(BLOCK):
        # Fonts leave gaps between blocks.
        text, ground = "", color
    drawn = ""
    if ground is not None and not ground.is_default:
        # A little wider, so that no seam shows between two runs.
        place = f'x="{left:.5g}" width="{width + 0.3:.5g}" y="1.5" height="13.5"'
        drawn = f'<rect {place} fill="{_hex(ground)}"/>'
    if not text.strip():
        return drawn
    lead = len(text) - len(text.lstrip())
    text, left, width = text[lead:], left + lead * _CELL_W, width - lead * _CELL_W
    running = text.rstrip()
    width -= (len(text) - len(running)) * _CELL_W
    names = " ".join(name for name, on in (("b", style.bold), ("d", style.dim)) if on)
    marked = f' class="{names}"' if names else ""
    own = color is not None and not color.is_default
    fill = f' style="fill:{_hex(color)}"' if own else ""
    return (
        f'{drawn}<text x="{left:.5g}" y="12.8" textLength="{width:.5g}"{marked}{fill}>'
        f"{escape(running, quote=False)}</text>"
    )


def _frame(number: int, frame: Frame, width: float) -> str:
    used = "".join(
        f'<use href="#r{part}" y="{place * _CELL_H:g}"/>'
        for place, line in enumerate(frame.lines)
        for part in line
    )
    return f'<g transform="translate({number * width:g})">{used}</g>'


def _timing(seconds: Sequence[float]) -> tuple[list[float], float]:
    """Return when each frame begins, with long waits cut, and the total length."""
    starts, at = [0.0], 0.0
    for before, after in pairwise(seconds):
        at += min(after - before, _LONGEST_S)
        starts.append(at)
    return starts, at + _LAST_S


def _lines(shown: RenderableType) -> list[list[Segment]]:
    console = Console(
        width=WIDTH,
        height=HEIGHT,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    return console.render_lines(shown, pad=True)[:HEIGHT]


def _hex(color: Color | None) -> str:
    found = _THEME.foreground_color if color is None else color.get_truecolor(_THEME)
    return found.hex
