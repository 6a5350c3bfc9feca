"""`GET /debug/nodes`: what the extender believes of each node and why, for people.

Plain text, the fullest node first; `?output=json`, or a client that accepts JSON and no
text, gets the same as JSON, with the open intents beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from common.health import HEADERS
from common.visible import visible_json, visible_lines
from extender.explaining import NodeRow
from extender.intents import IntentRow

if TYPE_CHECKING:
    from starlette.requests import Request

_NODE_TITLES: Final = ("NODE", "CPU", "MEMORY", "USE", "REQUESTED", "SCORE", "WHY")
_INTENT_TITLES: Final = ("INTENT", "POD", "FROM", "TO", "STATE", "NODE")


def nodes_page(
    nodes: Callable[[], Sequence[NodeRow]], intents: Callable[[], Sequence[IntentRow]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the page's endpoint."""

    async def page(request: Request) -> Response:
        # What is asked for changes with every request, so it is taken down here and now;
        # writing thousands of lines can wait for a thread.
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
