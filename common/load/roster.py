# SPDX-License-Identifier: Apache-2.0
"""The pods of all nodes in columns: what a sample is compared with.

A round of samples asks the same few questions about every pod: its name, since when it is
there, until when it counts as using its node. The answers follow from its record alone, so
they are kept for each node until its pods change. The rows of a roster are in the order of the
snapshot: node by node, and within a node pod by pod. A roster never changes once it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count, repeat
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from common.cache.snapshot import Snapshot
from common.checkpoint import Checkpoint
from common.cluster.records import NodeName, PodRecord, PodUid
from common.load.freshness import began_s, uses_until_s

K = TypeVar("K", bound=str)
Figures = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

ABSENT: Final = -1
"""The row of what is not there."""
PIECE: Final = 4_096
"""How many rows are worked on between two checkpoints."""


class _Block(NamedTuple):
    """The pods of one node."""

    pods: Mapping[PodUid, PodRecord]
    keys: list[str]
    scheduled_s: list[float]
    began_s: list[float]
    until_s: list[float]


class Roster(NamedTuple):
    """All pods that are on nodes."""

    blocks: Mapping[NodeName, _Block]
    uids: Sequence[PodUid]
    rows: Mapping[PodUid, int]
    keys: Sequence[str]
    sizes: Rows
    """How many pods each node has."""
    scheduled_s: Figures
    """NaN, for which no comparison holds, where it is not known."""
    began_s: Figures
    until_s: Figures

    def ends(self) -> list[int]:
        """Return the row behind the last pod of each node."""
        found: list[int] = self.sizes.cumsum().tolist()
        return found

    def any_on_node(self, pods: Mask) -> list[bool]:
        """Tell for each node whether one of these pods is on it."""
        ends = self.sizes.cumsum()
        counts = np.concatenate(([0], np.cumsum(pods)))
        found: list[bool] = (counts[ends] > counts[ends - self.sizes]).tolist()
        return found


def roster_after(previous: Roster | None, snapshot: Snapshot, checkpoint: Checkpoint) -> Roster:
    """Return the roster of a snapshot; the same object if no pod and no node has changed."""
    old = previous.blocks if previous is not None else {}
    blocks: dict[NodeName, _Block] = {}
    for name, view in snapshot.nodes.items():
        block = old.get(name)
        if block is None or block.pods is not view.pods:
            checkpoint()
            block = _block(view.pods)
        blocks[name] = block
    if previous is not None and _same(previous.blocks, blocks):
        return previous
    return _joined(blocks, checkpoint)


def _same(old: Mapping[NodeName, _Block], new: Mapping[NodeName, _Block]) -> bool:
    return len(old) == len(new) and all(
        a is b for a, b in zip(old.values(), new.values(), strict=True)
    )


def _block(pods: Mapping[PodUid, PodRecord]) -> _Block:
    records = list(pods.values())
    return _Block(
        pods,
        [pod.key for pod in records],
        [np.nan if pod.scheduled_s is None else pod.scheduled_s for pod in records],
        [began_s(pod) for pod in records],
        [uses_until_s(pod) for pod in records],
    )


def _joined(blocks: Mapping[NodeName, _Block], checkpoint: Checkpoint) -> Roster:
    each = blocks.values()
    uids = list(chain.from_iterable(block.pods for block in each))
    return Roster(
        blocks,
        uids,
        _rows(uids, checkpoint),
        list(chain.from_iterable(block.keys for block in each)),
        np.fromiter((len(block.keys) for block in each), np.intp, len(blocks)),
        _column((block.scheduled_s for block in each), len(uids)),
        _column((block.began_s for block in each), len(uids)),
        _column((block.until_s for block in each), len(uids)),
    )


def _rows(uids: Sequence[PodUid], checkpoint: Checkpoint) -> dict[PodUid, int]:
    rows: dict[PodUid, int] = {}
    for start in range(0, len(uids), PIECE):
        checkpoint()
        rows.update(zip(uids[start : start + PIECE], count(start), strict=False))
    return rows


def _column(parts: Iterable[Sequence[float]], size: int) -> Figures:
    return np.fromiter(chain.from_iterable(parts), np.float64, size)


def find_rows(index: Mapping[K, int], keys: Sequence[K], checkpoint: Checkpoint) -> Rows:
    """Return the row of each key in an index; `ABSENT` where it is not in it."""
    found = np.empty(len(keys), np.intp)
    for start in range(0, len(keys), PIECE):
        checkpoint()
        piece = keys[start : start + PIECE]
        rows = map(index.get, piece, repeat(ABSENT))
        found[start : start + PIECE] = np.fromiter(rows, np.intp, len(piece))
    return found
