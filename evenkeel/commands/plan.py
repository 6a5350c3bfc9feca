# SPDX-License-Identifier: Apache-2.0
"""`evenkeel plan`: what would be moved where, and why; with `--file` as a file to review."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from common.visible import visible
from evenkeel.errors import UsageError
from evenkeel.output import emit
from evenkeel.planfile import plan_file, written
from evenkeel.session import Installation, reading
from evenkeel.shell import Call, command
from rebalancer.planner import Plan
from rebalancer.report import document, render


@click.command("plan", short_help="What would be moved where, and why.")
@click.option("--file", "file", metavar="F", help="Also write the plan to a file for review.")
@command
async def plan_command(call: Call, *, file: str | None) -> None:
    """Make a plan from the samples at hand, and show it; nothing is moved.

    A file that `--file` writes is pinned to this moment: `evenkeel apply F` carries it out if the
    cluster has not changed in between.
    """
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        with call.progress.waiting("Planning …"):
            asked = await session.inspect()
    plan, asides = asked.plan, tuple(_asides(session.installation))
    if session.trouble:
        notes = (*plan.notes, f"Usage is not read: {session.trouble}.")
        plan = msgspec.structs.replace(plan, notes=notes)
    whole = msgspec.structs.replace(plan, notes=(*plan.notes, *asides))
    if file is not None:
        _write(file, written(plan_file(whole, asked, session.client.server)))
    emit("Plan", document(whole), call.output, lambda: _page(plan, asides, file))


def _asides(there: Installation) -> Iterator[str]:
    """Yield what a reader should know about this command."""
    yield f"Judged by {there.config_from}."
    if there.why_no_migrations:
        yield f"Earlier moves are not known: {there.why_no_migrations}."


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None


def _page(plan: Plan, asides: Sequence[str], file: str | None) -> RenderableType:
    if file is None:
        return render(plan, asides=asides)
    name = visible(file)
    use = f"evenkeel apply {name} carries it out" if plan.moves else "it moves nothing"
    hint = f"Written to {name}; {use}."
    return Group(render(plan, asides=asides), Text(hint, style="bold"))
