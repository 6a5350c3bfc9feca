# SPDX-License-Identifier: Apache-2.0
"""Finds pods, nodes and workloads by a part of their names. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from common.cache.snapshot import Snapshot
from console.data import Match, WhyKind


def search(snapshot: Snapshot, text: str, limit: int) -> tuple[Match, ...]:
    """Return objects whose names contain the text, exact ones and prefixes first."""
    wanted = text.strip().casefold()
    found = [match for match in _all(snapshot) if wanted in match.name.casefold()]
    found.sort(key=lambda match: (*_rank(match.name.casefold(), wanted), match.kind, match.name))
    return tuple(found[: max(0, limit)])


def _all(snapshot: Snapshot) -> Iterator[Match]:
    for node in snapshot.nodes:
        yield Match(kind=WhyKind.NODE, name=node)
    for pod in snapshot.pods.values():
        yield Match(kind=WhyKind.POD, name=pod.key)
    tops = {w.key for w in snapshot.workloads.values() if w.owner is None}
    for name in tops:
        yield Match(kind=WhyKind.WORKLOAD, name=name)


def _rank(name: str, wanted: str) -> tuple[int, int]:
    short = name.rpartition("/")[2]
    if wanted in (name, short):
        return 0, len(name)
    if name.startswith(wanted) or short.startswith(wanted):
        return 1, len(name)
    return 2, len(name)
