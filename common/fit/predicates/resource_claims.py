# SPDX-License-Identifier: Apache-2.0
"""Pods with resource claims: devices are allocated by rules that are not judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from common.fit.index.arrays import Flags
from common.fit.predicates.base import Predicate
from common.fit.rejections import NONE, Rejection, Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question

_NOT_JUDGED: Final = (
    Rejection(
        "DynamicResources",
        "ResourceClaimsNotJudged",
        "pods with resource claims are not judged",
        everywhere=True,
    ),
)


def reject(ask: Question, _: NodeInfo) -> Rejections:
    return _NOT_JUDGED if ask.pod.shape.resource_claims else NONE


def allow(ask: Question) -> Flags | None:
    if not ask.pod.shape.resource_claims:
        return None
    return np.zeros(ask.index.facts.capacity, dtype=np.bool_)


RESOURCE_CLAIMS: Final = Predicate("resource-claims", reject, allow)
