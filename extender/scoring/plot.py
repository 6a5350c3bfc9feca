# SPDX-License-Identifier: Apache-2.0
"""Draws the curve: `python -m extender.scoring.plot > docs/scoring.svg`.

Plain SVG text; the figures come from the curve itself, so the picture always matches it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from common.config import ExtenderConfiguration
from extender.scoring.curve import BEST, scores

WIDTH: Final = 640
HEIGHT: Final = 360
LEFT: Final = 56
RIGHT: Final = 24
TOP: Final = 24
BOTTOM: Final = 52

LINES: Final = (
    (0.0, "#1f77b4", "requests do not matter (no more than use)"),
    (0.9, "#ff7f0e", "90 % of the node is requested"),
)


def points(requested: float, threshold: float) -> list[tuple[float, int]]:
    """Return (percent in use, score) wherever the score changes."""
    percent = np.arange(0.0, 100.01, 0.1)
    found = scores(percent / threshold, np.full_like(percent, requested)).tolist()
    corners: list[tuple[float, int]] = []
    for at, score in zip(percent.tolist(), found, strict=True):
        if corners and corners[-1][1] != score:
            corners.append((at, corners[-1][1]))
        if not corners or corners[-1][1] != score:
            corners.append((at, score))
    return [*corners, (100.0, found[-1])]


def draw(config: ExtenderConfiguration) -> str:
    """Return the picture."""
    threshold = config.cpu_threshold
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *_grid(threshold),
            *(_line(points(requested, threshold), color) for requested, color, _ in LINES),
            *_legend(),
            "</svg>\n",
        )
    )


def _x(percent: float) -> float:
    return round(LEFT + percent / 100.0 * (WIDTH - LEFT - RIGHT), 1)


def _y(score: float) -> float:
    return round(TOP + (BEST - score) / BEST * (HEIGHT - TOP - BOTTOM), 1)


def _grid(threshold: float) -> Sequence[str]:
    rules = [
        f'<path d="M{_x(0)} {_y(score)}H{_x(100)}" stroke="#ddd"/>'
        f'<text x="{LEFT - 10}" y="{_y(score) + 4}" text-anchor="end">{score}</text>'
        for score in range(BEST + 1)
    ]
    marks = [
        f'<text x="{_x(percent)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{percent}</text>'
        for percent in range(0, 101, 10)
    ]
    return [
        *rules,
        *marks,
        f'<path d="M{_x(threshold)} {TOP}V{_y(0)}" stroke="#d62728" stroke-dasharray="4 3"/>',
        f'<text x="{_x(threshold) + 6}" y="{TOP + 12}" fill="#d62728">threshold</text>',
        f'<text x="{_x(50)}" y="{HEIGHT - 10}" text-anchor="middle">'
        "predicted use of the dominant resource, percent of allocatable</text>",
        f'<text transform="translate(16 {_y(5)}) rotate(-90)" text-anchor="middle">score</text>',
    ]


def _line(corners: Sequence[tuple[float, int]], color: str) -> str:
    path = " ".join(f"{_x(percent)},{_y(score)}" for percent, score in corners)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'


def _legend() -> Sequence[str]:
    left, top = LEFT + 14, HEIGHT - BOTTOM - 44
    return [
        f'<path d="M{left} {top + 18 * i}h24" stroke="{color}" stroke-width="2"/>'
        f'<text x="{left + 32}" y="{top + 18 * i + 4}">{label}</text>'
        for i, (_, color, label) in enumerate(LINES)
    ]


if __name__ == "__main__":
    sys.stdout.write(draw(ExtenderConfiguration()))
