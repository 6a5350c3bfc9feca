# SPDX-License-Identifier: Apache-2.0
"""Affinity terms of the pods that run, found by the pod that they would match.

Anti-affinity binds both sides: a pod may not join a domain where another pod's term forbids
it. Terms are filed under one label that they demand, so that a pod meets only the few
terms that could be about it, however many pods have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from common.cluster.selectors import Operator, Selector
from common.cluster.shapes import PodTerm

Weighted = tuple[PodTerm, int]
Label = tuple[str, str]


def concerns(
    term: PodTerm, namespace: str, labels: Mapping[str, str], of_namespace: Mapping[str, str]
) -> bool:
    """Tell whether a running pod's term is about this pod (AffinityTerm.Matches)."""
    if namespace not in term.namespaces and not term.namespace_selector.matches(of_namespace):
        return False
    return term.selector.matches(labels)


class TermIndex:
    """Weighted terms of running pods: term → row → how many pods have it there."""

    def __init__(self) -> None:
        self._rows: dict[Weighted, dict[int, int]] = {}
        self._filed: dict[Label | None, dict[Weighted, dict[int, int]]] = {}

    def move(self, row: int, terms: Iterable[Weighted], sign: int) -> None:
        """Add a pod's terms to a node, or take them away."""
        for term in terms:
            rows = self._rows.get(term)
            if rows is None:
                rows = self._file(term)
            count = rows.get(row, 0) + sign
            if count:
                rows[row] = count
                continue
            del rows[row]
            if not rows:
                self._unfile(term)

    def about(
        self, namespace: str, labels: Mapping[str, str], of_namespace: Mapping[str, str]
    ) -> Iterator[tuple[Weighted, Mapping[int, int]]]:
        """Return the terms that are about a pod, with the rows where they hold."""
        for file in (None, *labels.items()):
            for term, rows in self._filed.get(file, {}).items():
                if concerns(term[0], namespace, labels, of_namespace):
                    yield term, rows

    def _file(self, term: Weighted) -> dict[int, int]:
        rows: dict[int, int] = {}
        self._rows[term] = rows
        for file in demanded(term[0].selector):
            self._filed.setdefault(file, {})[term] = rows
        return rows

    def _unfile(self, term: Weighted) -> None:
        del self._rows[term]
        for file in demanded(term[0].selector):
            del self._filed[file][term]
            if not self._filed[file]:
                del self._filed[file]


def demanded(selector: Selector) -> list[Label | None]:
    """Return the labels of which a selected pod has one; `None` when none can be named."""
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN:
            return [(requirement.key, value) for value in requirement.values]
    return [None]
