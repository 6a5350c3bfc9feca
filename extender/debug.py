# SPDX-License-Identifier: Apache-2.0
"""`GET /debug/nodes`: what the extender believes about each node, and why, for people.

The rows are made from the same figures as the answers. The page is plain text with the
fullest node first; `?output=json`, or a client that accepts JSON and no text, gets the same
as JSON, with the open intents beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence, Set
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from common.cluster.records import NodeName
from common.health import HEADERS
from common.visible import visible_json, visible_lines
from extender.intents import IntentRow
from extender.scoring import FULL, NEUTRAL, Board, Demand, Overlay, Tally

if TYPE_CHECKING:
    from starlette.requests import Request

_NODE_TITLES: Final = ("NODE", "CPU", "MEMORY", "USE", "REQUESTED", "SCORE", "WHY")
_INTENT_TITLES: Final = ("INTENT", "POD", "FROM", "TO", "STATE", "NODE")
_NOT_EVALUATED: Final = "NotJudged"


class Charge(msgspec.Struct, frozen=True, rename="camel"):
    """An amount on top of the believed load."""

    pods: int
    cpu_milli: float
    mem_bytes: float


_NOTHING: Final = Charge(0, 0.0, 0.0)


class NodeRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One node as the extender sees it."""

    node: str
    maintenance: bool = False
    kept_empty: bool = False
    """It is emptied for an autoscaler: it gets pods only if no other node can take them."""
    unknown: str | None
    """Why its load is unknown; None if it is known."""
    cpu_milli: float = 0.0
    mem_bytes: float = 0.0
    cpu_percent: float | None = None
    mem_percent: float | None = None
    use: float | None = None
    """Load with all charges, divided by the threshold: at 1 the node is overloaded."""
    requested: float | None = None
    """Requests with all charges, as a share of allocatable."""
    newcomers: Charge = _NOTHING
    """What unmeasured pods are charged beyond their requests."""
    assumed: Charge = _NOTHING
    """Pods that were placed by an answer and are in no measurement and no board yet."""
    held: Charge = _NOTHING
    """Moved pods that are expected here."""
    score: int = NEUTRAL
    """The score for a pod without requests."""
    why: str = ""


def explain(
    overlay: Overlay,
    pod: Demand,
    *,
    maintenance: Set[str],
    kept_empty: Set[str],
    assumed: Callable[[NodeName], Collection[Demand]],
    held: Callable[[NodeName], Collection[Demand]],
) -> list[NodeRow]:
    """Return what is believed about every node; the scores are those for `pod`."""
    board = overlay.board
    predicted, scores = overlay.predict(board.names, Demand()), overlay.all_scores(pod)
    uses, requests = predicted.use.tolist(), predicted.requested.tolist()
    figures = zip(board.names, uses, requests, scores, strict=True)
    rows, resting = [], board.resting
    for index, (name, use, requested, score) in enumerate(figures):
        placed, reserved = assumed(NodeName(name)), held(NodeName(name))
        row = _believed(board, index, name)
        row.maintenance = name in maintenance
        row.kept_empty = name in kept_empty
        if row.unknown is None:
            row.use, row.requested = use, requested
        if placed:
            row.assumed = _charge(overlay.tally(index, placed), len(placed))
        if reserved:
            row.held = _charge(overlay.tally(index, reserved), len(reserved))
        row.score = score
        row.why = _reason(row, resting=resting)
        rows.append(row)
    return rows


def _believed(board: Board, index: int, name: str) -> NodeRow:
    load = board.loads[index]
    if load is None:
        return NodeRow(node=name, unknown=_NOT_EVALUATED)
    new = board.newcomers[index]
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


def _reason(row: NodeRow, *, resting: bool) -> str:
    parts = ["under maintenance: rejected"] if row.maintenance else []
    if row.kept_empty:
        parts.append("kept empty for an autoscaler: the lowest score, and rejected for another")
    if resting:
        parts.append("too few nodes are measured: all scores are equal")
    elif row.use is None:
        parts.append(f"load unknown ({row.unknown}): gets the median score of the known nodes")
    else:
        state = "overloaded" if row.use >= FULL else "has room"
        parts.append(f"{state}: its fuller resource is at {100 * row.use:.0f} % of the threshold")
        if (row.requested or 0.0) > row.use:
            parts.append(f"{100 * (row.requested or 0.0):.0f} % requested lowers the score")
    for charge, description in (
        (row.newcomers, "not measured yet"),
        (row.assumed, "placed but not observed yet"),
        (row.held, "expected from a move"),
    ):
        if charge.pods:
            parts.append(f"{charge.pods} {'pod' if charge.pods == 1 else 'pods'} {description}")
    return "; ".join(parts)


def nodes_page(
    nodes: Callable[[], Sequence[NodeRow]], intents: Callable[[], Sequence[IntentRow]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of the page."""

    async def page(request: Request) -> Response:
        # The rows change with every request to the extender, so they are collected here, on
        # the event loop; formatting thousands of lines can wait for a thread.
        write = _as_json if _wants_json(request) else _as_text
        return await asyncio.to_thread(write, nodes(), intents())

    return page


def _as_json(nodes: Sequence[NodeRow], intents: Sequence[IntentRow]) -> Response:
    body = msgspec.json.encode({"nodes": _fullest_first(nodes), "intents": list(intents)})
    return Response(visible_json(body.decode()), media_type="application/json", headers=HEADERS)


def _as_text(nodes: Sequence[NodeRow], intents: Sequence[IntentRow]) -> Response:
    parts = (_nodes(_fullest_first(nodes)), _intents(intents))
    text = "\n\n".join(filter(None, parts))
    return Response(f"{visible_lines(text)}\n", media_type="text/plain", headers=HEADERS)


def _fullest_first(rows: Sequence[NodeRow]) -> list[NodeRow]:
    return sorted(rows, key=lambda row: (-(row.use or 0.0), row.node))


def _wants_json(request: Request) -> bool:
    output = request.query_params.get("output")
    if output is not None:
        return output == "json"
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/" not in accepted


def _nodes(rows: Sequence[NodeRow]) -> str:
    if not rows:
        return "no node is known yet"
    lines = [
        (
            row.node,
            _percent(row.cpu_percent),
            _percent(row.mem_percent),
            _percent(None if row.use is None else 100 * row.use),
            _percent(None if row.requested is None else 100 * row.requested),
            str(row.score),
            row.why,
        )
        for row in rows
    ]
    return _table(_NODE_TITLES, lines)


def _intents(rows: Sequence[IntentRow]) -> str:
    lines = [
        (row.migration, row.pod, row.source, row.target, row.state, row.node or "-") for row in rows
    ]
    return _table(_INTENT_TITLES, lines) if lines else ""


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}%"


def _table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(titles, *lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (titles, *lines)
    )
