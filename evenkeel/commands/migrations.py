# SPDX-License-Identifier: Apache-2.0
"""`evenkeel migrations` and `evenkeel history`: what moves and what moved."""

from __future__ import annotations

import asyncio
import sys

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from common.cluster.migrations import MigrationRecord
from console.data import MigrationsDocument
from evenkeel.commands.moves import moves_grid
from evenkeel.errors import UsageError
from evenkeel.output import Output, emit, plain
from evenkeel.session import Session, reading
from evenkeel.shell import SPAN, Call, command
from rebalancer.inspection import migration_row, migrations_document
from rebalancer.inspection.moves import since
from rebalancer.inspection.words import counted, duration


@click.command("migrations", short_help="What moves, and what moved last.")
@click.option("-w", "--watch", is_flag=True, help="Go on and print every change.")
@click.option("--limit", default=20, show_default=True, help="Finished moves to list.")
@command
async def migrations_command(call: Call, *, watch: bool, limit: int) -> None:
    """Show the moves that are under way, and the last ones that finished."""
    if watch and call.output is Output.YAML:
        raise UsageError("-w prints lines as they come: use -o text, wide or json with it")
    progress = call.progress
    async with reading(call.target, clock=call.clock, progress=progress, usage=False) as session:
        if watch:
            await _watch(session, call)
            return
        document = _document(session, list(session.known().values()), limit)
    emit("Migrations", document, call.output, lambda: _page(document, call))


@click.command("history", short_help="What moved, newest first, predicted against actual.")
@click.option(
    "--since", "since_s", type=SPAN, default="24h", show_default=True, help="How far back."
)
@command
async def history_command(call: Call, *, since_s: float) -> None:
    """Show what moved, newest first, with predicted and actual use of both nodes."""
    progress = call.progress
    async with reading(call.target, clock=call.clock, progress=progress, usage=False) as session:
        now_s = call.clock.now()
        known = list(session.known().values())
        wanted = since([m for m in known if not m.open], now_s - since_s)
        document = _document(session, wanted, len(wanted))
    reach = _reach(session, known, now_s)
    emit(
        "History",
        {**plain(document), "reaches": reach},
        call.output,
        lambda: _history(document, reach, call),
    )


def _document(session: Session, known: list[MigrationRecord], limit: int) -> MigrationsDocument:
    why = session.installation.why_no_migrations
    return migrations_document(known, most=max(0, limit), why_none=why)


def _page(document: MigrationsDocument, call: Call) -> RenderableType:
    if document.why_none:
        return Text(f"no moves are known: {document.why_none}")
    if not document.rows:
        return Text("nothing moves, and no move is remembered")
    grid = moves_grid(document.rows, call.clock.now(), wide=call.output.wide)
    rest = [Text(f"{document.left_out} older ones: evenkeel history", style="dim")]
    return Group(grid, *(rest if document.left_out else []))


def _reach(session: Session, known: list[MigrationRecord], now_s: float) -> str:
    """Say how far back the memory of the cluster reaches."""
    kept = session.config.keep_finished
    if session.installation.why_no_migrations:
        return session.installation.why_no_migrations
    oldest = min((m.created_s for m in known), default=None)
    if oldest is None:
        return f"no move is remembered; finished ones are kept for {kept} (keepFinished)"
    age = duration(now_s - oldest)
    return f"reaches back {age}; finished moves are kept for at least {kept} (keepFinished)"


def _history(document: MigrationsDocument, reach: str, call: Call) -> RenderableType:
    said = Text(f"{counted(len(document.rows), 'move')}; {reach}", style="dim")
    if not document.rows:
        return said
    return Group(moves_grid(document.rows, call.clock.now(), wide=call.output.wide), said)


async def _watch(session: Session, call: Call) -> None:
    """Print every change of a Migration until interrupted."""
    if session.installation.why_no_migrations:
        raise UsageError(f"there is nothing to watch: {session.installation.why_no_migrations}")
    changed = asyncio.Event()
    session.observer.reader.state.migrations.listen(lambda _old, _new: changed.set())
    shown: dict[str, tuple[str, str, str]] = {}
    while True:
        for record in sorted(session.known().values(), key=lambda m: m.created_s):
            state = (record.phase, record.outcome, record.message)
            if shown.get(record.uid) != state:
                shown[record.uid] = state
                _print(record, call)
        changed.clear()
        await changed.wait()


def _print(record: MigrationRecord, call: Call) -> None:
    if call.output is Output.JSON:
        line = msgspec.json.encode(migration_row(record)).decode()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return
    document = migrations_document([record])
    emit("Migration", document, call.output, lambda: _page(document, call))
