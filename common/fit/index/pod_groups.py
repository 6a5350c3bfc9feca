# SPDX-License-Identifier: Apache-2.0
"""Where the pods are, by namespace and labels.

Pod affinity and topology spread ask how many pods with certain labels there are in each
domain. Replicas share their labels, so pods are counted in groups of equal namespace,
labels and state; a selector finds its groups through one of the labels that it demands.
The cost is that of the groups found, not that of the pods.

Nothing limits the labels of a pod but the size of an object: thousands are possible. A key
made of all of them is hashed once for a group, and never once for each label.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import TypeVar

import numpy as np

from common.cluster.selectors import Operator, Selector
from common.fit.index.arrays import Ints

K = TypeVar("K", bound=Hashable)

GroupKey = tuple[str, bool, tuple[tuple[str, str], ...]]


class Group:
    """Pods that no selector can tell apart, counted per row."""

    __slots__ = ("key", "labels", "namespace", "number", "rows", "terminating")

    def __init__(self, key: GroupKey, labels: Mapping[str, str], number: int) -> None:
        self.key = key
        self.number = number
        self.namespace, self.terminating, _ = key
        self.labels = labels
        self.rows: dict[int, int] = {}


class PodGroups:
    """All groups of pods."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Group] = {}
        self._known: dict[tuple[int, str, bool], Group] = {}
        """The same by the id of their labels, of which replicas share one copy: reading and
        hashing these for each pod would make filling an index a quarter dearer."""
        self._numbers = count()
        self._in_namespace: dict[str, dict[int, Group]] = {}
        self._with_label: dict[tuple[str, str, str], dict[int, Group]] = {}
        """The groups, by their number."""

    @property
    def namespaces(self) -> Iterable[str]:
        """Namespaces that have pods on nodes."""
        return self._in_namespace

    def move(
        self, row: int, namespace: str, labels: Mapping[str, str], sign: int, *, terminating: bool
    ) -> None:
        """Add a pod to a node, or take it away."""
        group = self._known.get((id(labels), namespace, terminating))
        if group is None:
            key = (namespace, terminating, tuple(labels.items()))
            group = self._groups.get(key) or self._found(key, labels)
        rows = group.rows
        left = rows.get(row, 0) + sign
        if left:
            rows[row] = left
            return
        del rows[row]
        if not rows:
            self._dissolve(group)

    def find(self, selector: Selector, namespaces: Iterable[str]) -> Iterator[Group]:
        """Return the groups in these namespaces that a selector selects."""
        if selector.never:
            return
        for namespace in namespaces:
            for group in self._likely(selector, namespace):
                if selector.matches(group.labels):
                    yield group

    def _likely(self, selector: Selector, namespace: str) -> Iterable[Group]:
        """Return groups among which all selected ones are; as few as one label can tell."""
        best: list[dict[int, Group]] | None = None
        fewest = 0
        for requirement in selector.requirements:
            if requirement.operator is not Operator.IN:
                continue
            held = [
                self._with_label.get((namespace, requirement.key, value), {})
                for value in requirement.values
            ]
            size = sum(map(len, held))
            if best is None or size < fewest:
                best, fewest = held, size
        if best is None:
            best = [self._in_namespace.get(namespace, {})]
        return (group for groups in best for group in groups.values())

    def _found(self, key: GroupKey, labels: Mapping[str, str]) -> Group:
        group = self._groups[key] = Group(key, labels, next(self._numbers))
        # The group keeps its labels alive, so nothing else gets their id meanwhile.
        self._known[id(labels), group.namespace, group.terminating] = group
        self._in_namespace.setdefault(group.namespace, {})[group.number] = group
        for name, value in labels.items():
            self._with_label.setdefault((group.namespace, name, value), {})[group.number] = group
        return group

    def _dissolve(self, group: Group) -> None:
        del self._groups[group.key]
        del self._known[id(group.labels), group.namespace, group.terminating]
        self._forget(self._in_namespace, group.namespace, group.number)
        for name, value in group.labels.items():
            self._forget(self._with_label, (group.namespace, name, value), group.number)

    @staticmethod
    def _forget(files: dict[K, dict[int, Group]], file: K, number: int) -> None:
        del files[file][number]
        if not files[file]:
            del files[file]


def tally(groups: Iterable[Group]) -> tuple[Ints, Ints]:
    """Return rows and how many pods of these groups each has; a row may come twice."""
    rows: list[int] = []
    counts: list[int] = []
    for group in groups:
        rows += group.rows.keys()
        counts += group.rows.values()
    return np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64)
