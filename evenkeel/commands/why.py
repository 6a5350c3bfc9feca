# SPDX-License-Identifier: Apache-2.0
"""`evenkeel why`: why a pod, a node or a workload is moved, or is not."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.grid import Grid
from common.visible import made_visible
from console.data import Gate, MigrationRow, WhyDocument, WhyKind
from evenkeel.commands.moves import moves_grid
from evenkeel.completion import complete_nodes, complete_pods, complete_workloads
from evenkeel.errors import NotThere, near
from evenkeel.output import Output, emit
from evenkeel.session import reading
from evenkeel.shell import Call, command
from rebalancer.inspection import Inspection, search, why


@click.group("why", short_help="Why a pod, node or workload is moved, or is not.")
def why_group() -> None:
    """Explain why something is moved or is not: gates, moves, what would have to change."""


@why_group.command("pod")
@click.argument("name", metavar="NAMESPACE/NAME", shell_complete=complete_pods)
@command
async def why_pod_command(call: Call, name: str) -> None:
    """Explain a pod; a name without a namespace is one of `default`."""
    await _answer(call, WhyKind.POD, _qualified(name))


@why_group.command("node")
@click.argument("name", metavar="NAME", shell_complete=complete_nodes)
@command
async def why_node_command(call: Call, name: str) -> None:
    """Explain a node."""
    await _answer(call, WhyKind.NODE, name)


@why_group.command("workload")
@click.argument("name", metavar="NAMESPACE/NAME", shell_complete=complete_workloads)
@command
async def why_workload_command(call: Call, name: str) -> None:
    """Explain a Deployment, StatefulSet or other controller of pods."""
    await _answer(call, WhyKind.WORKLOAD, _qualified(name))


def _qualified(name: str) -> str:
    return name if "/" in name else f"default/{name}"


async def _answer(call: Call, kind: WhyKind, name: str) -> None:
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        asked = await session.inspect()
        document = why(asked, kind, name)
        if document is None:
            raise NotThere(kind.value, name, _known_near(asked, kind, name))
    emit("Why", document, call.output, lambda: page(document, asked.now_s, call.output))


def _known_near(asked: Inspection, kind: WhyKind, name: str) -> list[str]:
    """Return names that are close to one that does not exist."""
    known = [match.name for match in search(asked.snapshot, "", 100_000) if match.kind is kind]
    return near(name, known)


def page(document: WhyDocument, now_s: float, output: Output) -> RenderableType:
    """Return the answer for people: what it is first, then what keeps it, then the rest."""
    shown = made_visible(document)
    parts: list[RenderableType] = [Text(f"{shown.kind.value} {shown.name}", style="bold")]
    parts.append(Text(shown.answer, style=_style(shown.good)))
    facts = Grid(("", ""))
    for fact in shown.facts:
        facts.add(Text(fact.label, style="bold"), fact.text)
    parts += [Text(), facts]
    parts += _section("gates", [_gates(shown.gates)] if shown.gates else [])
    parts += _section("what would have to change", [Text(f" {c}") for c in shown.changes])
    parts += _section("moves", _moves(shown.moves, now_s, output))
    return Group(*parts)


def _style(good: bool | None) -> str:
    return "" if good is None else "green" if good else "yellow"


def _section(title: str, lines: Iterable[RenderableType]) -> list[RenderableType]:
    found = list(lines)
    return [Text(), Text(title, style="bold"), *found] if found else []


def _gates(gates: Iterable[Gate]) -> Grid:
    """Return all gates, those that are not passed first."""
    grid = Grid(("", "", ""))
    for gate in sorted(gates, key=lambda gate: gate.passed):
        mark = Text("ok", style="green") if gate.passed else Text("no", style="red")
        lasting = "" if gate.passed or not gate.for_good else " (lasting)"
        grid.add(mark, "" if gate.passed else gate.name, f"{gate.words}{lasting}")
    return grid


def _moves(rows: Iterable[MigrationRow], now_s: float, output: Output) -> list[RenderableType]:
    found = list(rows)
    return [moves_grid(found, now_s, wide=output.wide)] if found else []
