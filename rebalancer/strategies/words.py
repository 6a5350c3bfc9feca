"""Names and lists as people write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rebalancer.goals import Dimension

NAMES: Final = {Dimension.CPU: "CPU", Dimension.MEMORY: "memory"}

_SHOWN: Final = 3


def some(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
