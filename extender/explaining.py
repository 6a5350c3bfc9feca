"""What the extender believes of each node, and why, for people.

The rows are made from the very figures that answers are made from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set
from typing import Final

import msgspec

from common.cluster.records import NodeName
from extender.scoring import FULL, NEUTRAL, Board, Demand, Overlay, Tally


class Charge(msgspec.Struct, frozen=True, rename="camel"):
    """Something on top of the believed load."""

    pods: int
    cpu_milli: float
    mem_bytes: float


_NOTHING: Final = Charge(0, 0.0, 0.0)
_NEVER_JUDGED: Final = "NotJudged"


class NodeRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One node as the extender sees it."""

    node: str
    maintenance: bool = False
    unknown: str | None
    """Why its load is not known; none if it is."""
    cpu_milli: float = 0.0
    mem_bytes: float = 0.0
    cpu_percent: float | None = None
    mem_percent: float | None = None
    use: float | None = None
    """Load with everything on top, over the threshold: at 1 the node is overloaded."""
    requested: float | None = None
    """Requests with everything on top, of allocatable."""
    newcomers: Charge = _NOTHING
    """What unmeasured pods count for beyond what they ask."""
    assumed: Charge = _NOTHING
    """Pods that were answered and are in no measurement and no board yet."""
    held: Charge = _NOTHING
    """Moved pods that are expected here."""
    score: int = NEUTRAL
    """What a pod that says nothing about itself would get."""
    why: str = ""


def explain(
    overlay: Overlay,
    pod: Demand,
    *,
    maintenance: Set[str],
    assumed: Callable[[NodeName], Collection[Demand]],
    held: Callable[[NodeName], Collection[Demand]],
) -> list[NodeRow]:
    """Return what is believed of every node; `pod` is the one that would be scored."""
    board = overlay.board
    judged, scores = overlay.judge(board.names, Demand()), overlay.all_scores(pod)
    figures = zip(board.names, judged.use.tolist(), judged.requested.tolist(), scores, strict=True)
    rows, resting = [], board.resting
    for row, (name, use, requested, score) in enumerate(figures):
        promised, kept = assumed(NodeName(name)), held(NodeName(name))
        found = _believed(board, row, name)
        found.maintenance = name in maintenance
        if found.unknown is None:
            found.use, found.requested = use, requested
        if promised:
            found.assumed = _charge(overlay.tally(row, promised), len(promised))
        if kept:
            found.held = _charge(overlay.tally(row, kept), len(kept))
        found.score = score
        found.why = _words(found, resting=resting)
        rows.append(found)
    return rows


def _believed(board: Board, row: int, name: str) -> NodeRow:
    load = board.loads[row]
    if load is None:
        return NodeRow(node=name, unknown=_NEVER_JUDGED)
    new = board.newcomers[row]
    known = load.why is None
    return NodeRow(
        node=name,
        unknown=None if load.why is None else load.why.value,
        cpu_milli=load.cpu_milli,
        mem_bytes=load.mem_bytes,
        cpu_percent=load.cpu_percent if known else None,
        mem_percent=load.mem_percent if known else None,
        newcomers=Charge(new.pods, new.cpu_milli, new.mem_bytes),
    )


def _charge(sums: Tally, pods: int) -> Charge:
    return Charge(pods, sums.cpu_milli, sums.mem_bytes)


def _words(row: NodeRow, *, resting: bool) -> str:
    parts = ["under maintenance: refused"] if row.maintenance else []
    if resting:
        parts.append("too little is measured: all scores are equal")
    elif row.use is None:
        parts.append(f"load unknown ({row.unknown}): scored as the middle of the others")
    else:
        state = "overloaded" if row.use >= FULL else "has room"
        parts.append(f"{state}: its scarcer resource is at {100 * row.use:.0f} % of the threshold")
        if (row.requested or 0.0) > row.use:
            parts.append(f"{100 * (row.requested or 0.0):.0f} % requested weighs in")
    for charge, words in (
        (row.newcomers, "not yet measured"),
        (row.assumed, "answered and not yet seen"),
        (row.held, "expected from a move"),
    ):
        if charge.pods:
            parts.append(f"{charge.pods} {'pod' if charge.pods == 1 else 'pods'} {words}")
    return "; ".join(parts)
