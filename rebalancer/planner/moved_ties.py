# SPDX-License-Identifier: Apache-2.0
"""Whether the moves of a draft can have changed where a pod with ties to others may run.

Asking about such a pod in the world as a plan has changed it is the most expensive question.
Most moves are of other workloads: they carry none of the labels that its terms demand, and no
term of theirs demands a label of its own. Then the first answer still holds.

A doubt counts as a change: a selector that demands no particular label may select any pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from common.cluster.selectors import Selector
from common.cluster.shapes import PodShape
from common.fit.index.terms import Label, demanded
from common.fit.predicates.topology_spread import constraint_selector

_ANY: Final[tuple[Label | None, ...]] = (None,)


class Ties(NamedTuple):
    """What ties a pod and its replacement to other pods."""

    labels: frozenset[Label]
    """What others may select the two by."""
    wanted: frozenset[Label | None]
    """Of the pods that the replacement's terms select, each has one of these; None: any pod."""
    forbidden: frozenset[Label | None]
    """The same of the pods that their anti-affinity keeps away."""


def ties_of(shape: PodShape, *labels: Mapping[str, str]) -> Ties:
    """Return the ties of a replacement; labels are its own, and those of the pod before it."""
    own = labels[0]
    terms = (*shape.affinity, *shape.anti_affinity)
    selectors = (
        *(term.selector for term in terms),
        *(constraint_selector(constraint, own) for constraint in shape.spread),
    )
    # Ports and volumes are not told apart: any pod may hold them.
    others = shape.host_ports or shape.claims or shape.ephemeral_claims or shape.disks
    return Ties(
        labels=frozenset(item for each in labels for item in each.items()),
        wanted=frozenset(_demanded(selectors)) | frozenset(_ANY if others else ()),
        forbidden=frozenset(_demanded(term.selector for term in shape.anti_affinity)),
    )


def _demanded(selectors: Iterable[Selector]) -> Iterator[Label | None]:
    return (label for selector in selectors for label in demanded(selector))


class MovedTies:
    """The ties of the pods that the moves of one draft have moved."""

    def __init__(self) -> None:
        self._moves = 0
        self._labels: Counter[Label] = Counter()
        self._forbidden: Counter[Label | None] = Counter()

    def shift(self, ties: Ties, sign: int) -> None:
        """Count a move, or take it back."""
        self._moves += sign
        for label in ties.labels:
            self._labels[label] += sign
        for wanted in ties.forbidden:
            self._forbidden[wanted] += sign

    def concern(self, ties: Ties) -> bool:
        """Tell whether a move may have changed the answer for a pod."""
        if not self._moves:
            return False
        if any(label is None or self._labels[label] > 0 for label in ties.wanted):
            return True
        return self._forbidden[None] > 0 or any(self._forbidden[label] > 0 for label in ties.labels)
