"""Nodes that have the pod's images already (plugins/imagelocality)."""

from __future__ import annotations

from typing import Final

import numpy as np

from common.fit.index.arrays import Flags, Ints
from common.fit.question import Question
from common.fit.scores.base import BEST, Score

_MB: Final = 1024 * 1024
_SMALLEST: Final = 23 * _MB
_LARGEST: Final = 1000 * _MB


def rate(ask: Question, _: Flags) -> Ints:
    """Prefer nodes with large images of the pod that many nodes have."""
    facts = ask.index.facts
    total = np.zeros(facts.capacity, dtype=np.int64)
    everybody = len(facts.row_of)
    for image in ask.pod.shape.images:
        sizes = facts.image_sizes(normalized(image))
        share = np.count_nonzero(sizes) / max(everybody, 1)
        total += (sizes * share).astype(np.int64)
    most = _LARGEST * max(ask.pod.shape.containers, 1)
    return BEST * (np.clip(total, _SMALLEST, most) - _SMALLEST) // (most - _SMALLEST)


def normalized(image: str) -> str:
    """Return the name under which nodes report an image."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


IMAGE_LOCALITY: Final = Score("ImageLocality", 1, rate)
