# SPDX-License-Identifier: Apache-2.0
"""`evenkeel nodes`: the load of every node, and why one is unknown."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.grid import Grid
from common.visible import visible
from console.data import ClusterDocument, NodeCell, NodeState
from evenkeel.output import Output, emit
from evenkeel.session import Session, reading
from evenkeel.shell import Call, command
from rebalancer.inspection import cluster_document

_BAR = 10
_STATES = {
    NodeState.NOT_READY: "not Ready",
    NodeState.MAINTENANCE: "under maintenance",
    NodeState.CORDONED: "cordoned",
}


@click.command("nodes", short_help="Load of every node, and why one is unknown.")
@click.option("--by-name", is_flag=True, help="Sort by name; by default the most loaded is first.")
@command
async def nodes_command(call: Call, *, by_name: bool) -> None:
    """Show the load of every node as Evenkeel sees it, and why one is unknown."""
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        document = cluster_document(await session.inspect(plan=False))
    emit(
        "Nodes",
        document,
        call.output,
        lambda: table(document, session, call.output, by_name=by_name),
    )


def table(
    document: ClusterDocument, session: Session, output: Output, *, by_name: bool
) -> RenderableType:
    """Return the nodes for people."""
    more = ("pool", "zone") if output.wide else ()
    headings = ("node", "cpu", "memory", "cpu asked", "memory asked", "pods", *more, "")
    grid = Grid(headings, right=("cpu asked", "memory asked", "pods"))
    nodes = sorted(document.nodes, key=lambda cell: cell.name if by_name else _rank(cell))
    for cell in nodes:
        extra = (visible(cell.pool), visible(cell.zone)) if output.wide else ()
        grid.add(
            visible(cell.name),
            bar(cell.cpu, cell.cpu_ceiling or document.ceilings.cpu),
            bar(cell.memory, cell.memory_ceiling or document.ceilings.memory),
            share(cell.cpu_requests),
            share(cell.memory_requests),
            str(cell.pods),
            *extra,
            Text(remark(cell), style="yellow"),
        )
    return Group(grid, Text(_caption(document, session), style="dim"))


def _rank(cell: NodeCell) -> tuple[float, str]:
    known = [value for value in (cell.cpu, cell.memory) if value is not None]
    return -max(known, default=-1.0), cell.name


def bar(value: float | None, ceiling: float) -> Text:
    """Return a level as a bar; what is unknown has none."""
    if value is None:
        return Text("unknown", style="yellow")
    filled = min(_BAR, max(0, round(value / 100 * _BAR)))
    style = "red" if value > ceiling else "yellow" if value > 0.75 * ceiling else "green"
    rest = Text("·" * (_BAR - filled), style="dim")
    return Text("█" * filled, style=style) + rest + Text(f"{value:5.0f} %")


def share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f} %"


def remark(cell: NodeCell) -> str:
    """Return what else there is to say about a node."""
    said = (_STATES.get(cell.state, ""), cell.note)
    return "; ".join(part for part in said if part)


def _caption(document: ClusterDocument, session: Session) -> str:
    known = sum(cell.cpu is not None for cell in document.nodes)
    trouble = document.trouble or session.trouble
    said = f"{known} of {len(document.nodes)} nodes known, usage from {document.source}"
    return f"{said} ({visible(trouble)})" if trouble else said
