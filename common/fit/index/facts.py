# SPDX-License-Identifier: Apache-2.0
"""What is true of nodes whatever runs on them: names, labels, taints, cordons.

Answers are flags over all rows. They are remembered until some node's facts change,
which is rare: pods come and go without touching them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final

import numpy as np

from common.api.objects import Effect, Taint, Toleration
from common.cluster.records import NodeName, NodeRecord
from common.cluster.selectors import NodeSelector, NodeTerm
from common.cluster.tolerations import tolerated, untolerated
from common.fit.index.arrays import Flags, Ints, flags_at, grown
from common.fit.index.columns import Column

CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect=Effect.NO_SCHEDULE)
"""Who tolerates this tolerates a cordoned node."""

_REMEMBERED = 4096
_FIRST_CAPACITY = 64


class NodeFacts:
    """The nodes, each in its row."""

    def __init__(self) -> None:
        self.capacity = _FIRST_CAPACITY
        self.nodes: list[NodeRecord | None] = [None] * self.capacity
        self.row_of: dict[NodeName, int] = {}
        self.alive: Flags = np.zeros(self.capacity, dtype=np.bool_)
        self.cordoned: Flags = np.zeros(self.capacity, dtype=np.bool_)
        self._taint_ids: Ints = np.zeros(self.capacity, dtype=np.int64)
        self._taint_sets: dict[tuple[Taint, ...], int] = {(): 0}
        self._columns: dict[str, Column] = {}
        self._labels: set[str] = set()
        """The names of all labels that a node has had."""
        self._images: list[dict[str, int] | None] = [None] * self.capacity
        self._answers: dict[Hashable, Flags] = {}
        self._free = list(range(self.capacity - 1, -1, -1))

    @property
    def full(self) -> bool:
        return not self._free

    def grow(self) -> None:
        """Double the number of rows."""
        old, self.capacity = self.capacity, 2 * self.capacity
        self.nodes += [None] * (self.capacity - old)
        self._images += [None] * (self.capacity - old)
        self.alive = grown(self.alive, self.capacity)
        self.cordoned = grown(self.cordoned, self.capacity)
        self._taint_ids = grown(self._taint_ids, self.capacity)
        self._free = list(range(self.capacity - 1, old - 1, -1))
        for column in self._columns.values():
            column.grow(self.capacity)
        self._answers.clear()

    def put(self, node: NodeRecord) -> int:
        """Take in a node, new or changed; return its row."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self.row_of[node.name] = self._free.pop()
        if not _same(self.nodes[row], node):
            self._set(row, node)
        self.nodes[row] = node
        self._images[row] = None
        return row

    def drop(self, name: NodeName) -> int:
        """Forget a node; return the row that it had."""
        row = self.row_of.pop(name)
        self._set(row, None)
        self.nodes[row] = self._images[row] = None
        self._free.append(row)
        return row

    def knows(self, key: str) -> bool:
        """Tell whether any node has, or had, a label of this name."""
        return key in self._labels

    def column(self, key: str) -> Column:
        """Return the values of a label.

        Pods may name any number of labels that no node has; of those nothing is kept.
        """
        if key not in self._labels:
            return Column(key, [], self.capacity)
        column = self._columns.get(key)
        if column is None or column.size > 2 * self.capacity:
            column = self._columns[key] = Column(key, self.nodes, self.capacity)
        return column

    def named(self, names: frozenset[str]) -> Flags:
        """Return the rows of these nodes."""
        rows = (self.row_of.get(NodeName(name)) for name in names)
        return flags_at(self.capacity, [row for row in rows if row is not None])

    def spread(self, values: Mapping[NodeName, int], *, other: int) -> Ints:
        """Return values of nodes by row; rows of all others hold `other`."""
        found = np.full(self.capacity, other, dtype=np.int64)
        for name, value in values.items():
            row = self.row_of.get(name)
            if row is not None:
                found[row] = value
        return found

    def labelled(self, pairs: tuple[tuple[str, str], ...]) -> Flags:
        """Return the rows with all of these labels."""
        return self._remember(("labels", pairs), lambda: self._labelled(pairs))

    def selected(self, selector: NodeSelector, *, by_name: bool = True) -> Flags:
        """Return the selected rows; without names, requirements on fields are skipped."""
        return self._remember(
            ("nodes", selector, by_name), lambda: self._selected(selector, by_name=by_name)
        )

    def image_sizes(self, image: str) -> Ints:
        """Return how large an image is on each row's node; 0 where it is not."""
        for row, node in enumerate(self.nodes):
            if self._images[row] is None and node is not None:
                self._images[row] = dict(node.images)
        sizes = (images.get(image, 0) if images else 0 for images in self._images)
        return np.fromiter(sizes, dtype=np.int64, count=self.capacity)

    def tolerable(self, tolerations: tuple[Toleration, ...]) -> Flags:
        """Return the rows without a taint that keeps such a pod away."""
        return self._remember(("taints", tolerations), lambda: self._tolerable(tolerations))

    def open_to(self, tolerations: tuple[Toleration, ...]) -> Flags:
        """Return the rows that no cordon closes to such a pod."""
        return self.alive if tolerated(CORDON, tolerations) else ~self.cordoned

    def per_taints(self, judge: Callable[[tuple[Taint, ...]], int]) -> Ints:
        """Judge every distinct set of taints once; return the verdicts per row."""
        verdicts = np.array([judge(taints) for taints in self._taint_sets], dtype=np.int64)
        return verdicts[self._taint_ids]

    def _set(self, row: int, node: NodeRecord | None) -> None:
        taints = node.taints if node is not None else ()
        self.alive[row] = node is not None
        self.cordoned[row] = node is not None and node.unschedulable
        if len(self._taint_sets) > 2 * self.capacity:
            self._renumber_taints()
        self._taint_ids[row] = self._taint_sets.setdefault(taints, len(self._taint_sets))
        if node is not None:
            self._labels.update(node.labels)
        for column in self._columns.values():
            column.put(row, node)
        self._answers.clear()

    def _renumber_taints(self) -> None:
        """Forget sets that no node has any more: some taints carry a timestamp."""
        self._taint_sets = {(): 0}
        for row, node in enumerate(self.nodes):
            taints = node.taints if node is not None else ()
            self._taint_ids[row] = self._taint_sets.setdefault(taints, len(self._taint_sets))

    def _remember(self, key: Hashable, compute: Callable[[], Flags]) -> Flags:
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _REMEMBERED:
                self._answers.clear()
            found = self._answers[key] = compute()
        return found

    def _labelled(self, pairs: tuple[tuple[str, str], ...]) -> Flags:
        found = self.alive.copy()
        for key, value in pairs:
            column = self.column(key)
            found &= column.ids == column.values.get(value, column.size)
        return found

    def _selected(self, selector: NodeSelector, *, by_name: bool) -> Flags:
        found = np.zeros(self.capacity, dtype=np.bool_)
        for term in selector.terms:
            found |= self._term(term, by_name=by_name)
        return found & self.alive

    def _term(self, term: NodeTerm, *, by_name: bool) -> Flags:
        found = np.full(self.capacity, not term.labels.never, dtype=np.bool_)
        for requirement in term.labels.requirements:
            found &= self.column(requirement.key).matching(requirement)
        # The API server lets only metadata.name be a field here.
        for field in term.fields.requirements if by_name else ():
            found &= self.named(frozenset({field.value})) != field.negated
        return found

    def _tolerable(self, tolerations: tuple[Toleration, ...]) -> Flags:
        verdicts = self.per_taints(lambda taints: untolerated(taints, tolerations) is None)
        return verdicts.astype(np.bool_)


def _same(old: NodeRecord | None, new: NodeRecord) -> bool:
    return (
        old is not None
        and old.labels == new.labels
        and old.taints == new.taints
        and old.unschedulable == new.unschedulable
    )
