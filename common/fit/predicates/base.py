# SPDX-License-Identifier: Apache-2.0
"""What a predicate is: one family of the scheduler's filters, in two forms.

`reject` judges one node and says why not. `allow` judges all nodes at once, without the
pods nominated to them; `None` means that it has nothing against any. Both must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.fit.index.arrays import Flags
from common.fit.rejections import Rejections

if TYPE_CHECKING:
    from common.fit.question import NodeInfo, Question


@dataclass(frozen=True, slots=True)
class Predicate:
    """A family of filters; it judges a question and changes nothing."""

    name: str
    reject: Callable[[Question, NodeInfo], Rejections]
    allow: Callable[[Question], Flags | None]
