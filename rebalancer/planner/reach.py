# SPDX-License-Identifier: Apache-2.0
"""Where pods could ever run, whatever a plan does: what the lower bound may rely on.

Selectors, taints and node affinity are certain, and so are volumes: a claim that is bound keeps
its volume, and the volume its node affinity and its zone. Level domains of a hard spread
keep their replicas too (`kept_domains`). What else other pods have against a pod is not
certain, because they may move. Nor is a claim that is not bound, or not found: it may get
any volume.

Pods with the same answer share one row of flags.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from rebalancer.planner.fitting import Fitting
from rebalancer.planner.instance import Flags, Instance, Ints
from rebalancer.planner.movable import Movable
from rebalancer.planner.problem import Problem

CELLS: Final = 50_000_000
"""How many flags are kept; pods beyond that count as able to run anywhere."""

_ANYWHERE, _NOWHERE = 0, 1


class Reach:
    """The nodes that the pods of one problem could ever move to."""

    def __init__(self, problem: Problem, fitting: Fitting) -> None:
        self._problem = problem
        self._fitting = fitting
        self._kept = fitting.kept_domains()
        self._masks: list[Flags] = [problem.all_rows, np.zeros_like(problem.all_rows)]
        self._kinds: dict[Hashable, int] = {}
        self._by_shape: dict[tuple[int, bool], int] = {}

    def of(self, pods: Sequence[Movable]) -> tuple[Flags, Ints]:
        """[K, N] and [P] return the nodes of every kind of pods, and the kind of each pod.

        The first kind is of those that nothing is known of, the second of those that cannot
        leave.
        """
        kinds = np.array([self._kind(m) for m in pods], dtype=np.int64)
        return np.array(self._masks), kinds

    def tightened(self, instance: Instance, pods: Sequence[Movable]) -> Instance:
        """Ask also what keeps the pods in their domains; they stand first in the instance."""
        if instance.kinds is None:
            return instance
        kinds = instance.kinds.copy()
        for place, m in enumerate(pods):
            if m.pod.shape.spread and self._is_kept(m, int(kinds[place])):
                kinds[place] = _NOWHERE
        return replace(instance, kinds=kinds)

    def _kind(self, m: Movable) -> int:
        shape = m.pod.shape
        if m.stateful or shape.claims:
            return self._found(m)
        # Pods that are alike share their shape, which is kept, so its id stays its own.
        key = (id(shape), m.maintenance)
        kind = self._by_shape.get(key)
        if kind is None:
            kind = self._by_shape[key] = self._found(m)
        return kind

    def _found(self, m: Movable) -> int:
        key = (self._fitting.lasting_key(m), m.maintenance)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._added(m)
        return kind

    def _added(self, m: Movable) -> int:
        if len(self._masks) * len(self._problem.nodes) > CELLS:
            return _ANYWHERE
        takes = self._problem.shelters if m.maintenance else self._problem.takes
        self._masks.append(takes & self._fitting.ever_possible(m))
        return len(self._masks) - 1

    def _is_kept(self, m: Movable, kind: int) -> bool:
        """Tell whether the domain that a pod cannot leave has no other node for it."""
        return self._kept.hold(m, self._fitting.candidate(m), self._masks[kind])
