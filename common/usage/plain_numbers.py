# SPDX-License-Identifier: Apache-2.0
"""Many numbers with the same unit, parsed in a few calls instead of one by one.

The texts of a piece are joined to one JSON array without their units, which one call decodes.
The result is the same to the bit as that of parsing each: whole numbers below 10^12 are exact
as floats. What has another unit is parsed on its own; if the joined text is not exactly
digits and one unit for each number, all of them are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

Figures = npt.NDArray[np.float64]

_LARGEST: Final = 1e12
_DIGITS: Final = b"0123456789,"
_NUMBERS: Final = msgspec.json.Decoder(list[float])


def parsed(
    texts: Sequence[str],
    unit: str,
    scale: Callable[[Figures], Figures],
    parse: Callable[[str], float],
) -> list[float]:
    """Return what the texts say: `scale` of the number before `unit`, or else `parse` of all."""
    odd: list[int] = []
    numbers = _joined(texts, unit.encode())
    if numbers is None:
        odd = [place for place, text in enumerate(texts) if not text.endswith(unit)]
        numbers = _joined(_without(texts, odd, f"0{unit}"), unit.encode()) if odd else None
    if numbers is None:
        return [parse(text) for text in texts]
    found: list[float] = scale(np.array(numbers, np.float64)).tolist()
    for place in odd:
        found[place] = parse(texts[place])
    return found


def _without(texts: Sequence[str], odd: Sequence[int], instead: str) -> Sequence[str]:
    plain = list(texts)
    for place in odd:
        plain[place] = instead
    return plain


def _joined(texts: Sequence[str], unit: bytes) -> list[float] | None:
    """Return the numbers of texts that end with this unit; None if one of them is not plain."""
    joined = ",".join(texts).encode()
    # Every text ends with the unit, so if there are no more letters than that, each is
    # characters of `_DIGITS` and then the unit. A comma in a text changes the count.
    if joined.translate(None, _DIGITS) != unit * len(texts):
        return None
    try:
        numbers = _NUMBERS.decode(b"[%b]" % joined.translate(None, unit))
    except ValueError:
        return None
    return numbers if len(numbers) == len(texts) and max(numbers, default=0.0) < _LARGEST else None
