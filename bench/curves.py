# SPDX-License-Identifier: Apache-2.0
"""Recorded curves of CPU use: a folder with one file per machine, one percentage a line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np
import numpy.typing as npt

Curves = npt.NDArray[np.float64]
"""[curve, point] in percent."""

LEAST_POINTS = 2
_SHOWN = 3


class BrokenCurve(ValueError):
    """A file begins like a curve, and has a line that is no percentage."""


def read_curves(folder: Path) -> Curves:
    """Return the curves of a folder and its subfolders; what is left out is named on stderr.

    A file that does not begin with a number is no curve, such as a README. A curve that is broken
    further down ends the program. Curves of different lengths are cut to the length that keeps the
    most points, and shorter ones are left out.
    """
    if not folder.is_dir():
        raise SystemExit(f"{folder}: not a folder; unpack an archive first")
    found, others = [], []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        try:
            curve = curve_of(path)
        except BrokenCurve as error:
            raise SystemExit(str(error)) from None
        if curve is None:
            others.append(path.name)
        else:
            found.append(curve)
    if not found:
        raise SystemExit(f"{folder}: no file with one percentage a line")
    if others:
        print(f"{folder}: left out, because they are no curves: {_some(others)}", file=sys.stderr)
    return _of_one_length(folder, found)


def curve_of(path: Path) -> Curves | None:
    """Return the points of a file; None if it is no curve."""
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        return None
    points: list[float] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text:
            continue
        try:
            point = float(text)
        except ValueError:
            point = -1.0
        if not isfinite(point) or point < 0.0:
            if not points:
                return None
            raise BrokenCurve(f"{path}:{number}: {text[:40]!r} is not a percentage")
        points.append(point)
    return np.array(points) if len(points) >= LEAST_POINTS else None


def _of_one_length(folder: Path, curves: Sequence[Curves]) -> Curves:
    sizes = np.array([curve.size for curve in curves])
    length = max(set(sizes.tolist()), key=lambda size: size * int((sizes >= size).sum()))
    kept = [curve[:length] for curve in curves if curve.size >= length]
    if len(set(sizes.tolist())) > 1:
        print(
            f"{folder}: curves of {sizes.min()} to {sizes.max()} points; the first {length} points "
            f"of {len(kept)} curves are used, {len(curves) - len(kept)} shorter ones left out",
            file=sys.stderr,
        )
    return np.array(kept)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def drawn_curves(count: int, points: int, seed: int = 1) -> Curves:
    """Return random curves: quiet for most of the time, with bursts, some with a daily tide."""
    rng = np.random.default_rng(seed)
    level = rng.lognormal(2.0, 0.8, (count, 1))
    tide = 1.0 + rng.uniform(0.0, 0.6, (count, 1)) * np.sin(np.linspace(0.0, 2 * np.pi, points))
    bursts = np.where(rng.random((count, points)) < 0.05, rng.uniform(20, 80, (count, points)), 0.0)
    noise = rng.lognormal(0.0, 0.3, (count, points))
    found: Curves = np.clip(level * tide * noise + bursts, 0.0, 100.0)
    return found
