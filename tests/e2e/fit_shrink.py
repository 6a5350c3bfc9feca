# SPDX-License-Identifier: Apache-2.0
"""Makes a disagreement small enough to read, by asking the real scheduler again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from simulator.build import Manifest
from tests.support.worlds.fit_dice import ClusterCase

KINDS = ("pods", "pvcs", "pvs", "csinodes", "storageclasses", "nodes")
TRIES = 80

Still = Callable[[ClusterCase], Awaitable[bool]]
"""Tells whether a smaller case still shows the disagreement."""


async def smallest(case: ClusterCase, still: Still) -> ClusterCase:
    """Leave out whatever is not needed for the disagreement."""
    tries = TRIES
    for kind in KINDS:
        kept: list[Manifest] = list(getattr(case, kind))
        size = max(len(kept) // 2, 1)
        while size and kept and tries:
            start = 0
            while start < len(kept) and tries:
                without = kept[:start] + kept[start + size :]
                tries -= 1
                if await still(_with(case, kind, without)):
                    kept = without
                else:
                    start += size
            size = size // 2 if size > 1 else 0
        case = _with(case, kind, kept)
    return case


def _with(case: ClusterCase, kind: str, objects: list[Manifest]) -> ClusterCase:
    changed: dict[str, Any] = {kind: objects}  # Any: mypy cannot know which field it is
    return replace(case, **changed)
