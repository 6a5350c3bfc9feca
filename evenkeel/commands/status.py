# SPDX-License-Identifier: Apache-2.0
"""`evenkeel status`: is it installed, leading, acting, paused and guided; one screen."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.api.contract import INSTALL_CRD
from common.grid import Grid
from common.visible import made_visible
from console.data import BreakerRow, ExtenderRow, HealthDocument
from evenkeel.output import emit
from evenkeel.session import CONFIG_MAP, Installation, Session, reading
from evenkeel.shell import Call, command
from rebalancer.inspection import Inspection, LoopState, health_document, leader_words, view_of
from rebalancer.inspection.health import CONFIGURED, NEVER_LED
from rebalancer.inspection.words import duration

_NOTES = 8
"""Notes of the last plan that are shown."""


@click.command(
    "status",
    short_help="Is it installed, leading, acting, paused, guided; breaker, metrics, moves.",
)
@command
async def status_command(call: Call) -> None:
    """Show on one screen whether Evenkeel is installed, leads, acts and is guided."""
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        asked = await session.inspect()
        document = health_of(session, asked)
    emit("Status", document, call.output, lambda: screen(session, document))


def health_of(session: Session, asked: Inspection) -> HealthDocument:
    """Return how the loop is doing, from what is written down in the cluster."""
    there, leases = session.installation, asked.snapshot.leases
    installed = there.crd or f"{there.namespace}/{CONFIG_MAP}" in leases
    state = LoopState(
        installed=installed,
        leader=leader_words(leases, f"{there.namespace}/{CONFIG_MAP}", asked.now_s),
        extenders=view_of(leases.values(), asked.now_s),
        pause=asked.pause,
        pause_unknown=there.why_pause_unknown,
        last_plan_s=last_plan_s(asked),
        notes=tuple(notes_of(session)),
    )
    return health_document(asked, state)


def last_plan_s(asked: Inspection) -> float | None:
    """Return when the newest Migration was made; plans that move nothing leave no trace."""
    return max((m.created_s for m in asked.migrations), default=None)


def notes_of(session: Session) -> Iterator[str]:
    """Yield what a reader should know about this answer."""
    there = session.installation
    yield f"Judged by {there.config_from}."
    if there.why_no_migrations:
        yield f"Moves are not known: {there.why_no_migrations}."
    if session.trouble:
        yield f"Usage is not read: {session.trouble}."


def screen(session: Session, document: HealthDocument) -> RenderableType:
    """Return the screen."""
    shown, there = made_visible(document), session.installation
    facts = Grid(("", ""), indent=0)
    for label, text in _lines(shown, there):
        facts.add(Text(label, style="bold"), text)
    notes = [Text(f"· {note}", style="dim") for note in shown.notes[:_NOTES]]
    return Group(facts, *notes)


def _lines(shown: HealthDocument, there: Installation) -> Iterator[tuple[str, Text]]:
    yield "installed", _installed(shown, there)
    yield "leader", _judged(shown.leader, good=shown.leader.endswith(" leads"))
    yield "mode", _mode(shown, there)
    yield "paused", _paused(shown)
    yield "strategies", Text(", ".join(shown.strategies) or "none is enabled")
    yield "guided", _judged(shown.guided, good="calls the extender" in shown.guided)
    for extender in shown.extenders:
        yield "extender", _extender(extender, shown.at_s)
    # Both are read from Migrations: without them nothing is known, which is not zero.
    unknown = Text("unknown", style="yellow") if there.why_no_migrations else None
    for breaker in shown.breakers if unknown is None else ():
        yield "breaker", _breaker(breaker)
    if unknown is not None:
        yield "breaker", unknown
    yield "metrics", _metrics(shown)
    yield "moves", unknown or _moves(shown)
    yield "last plan", unknown or _last_plan(shown)


def _judged(words: str, *, good: bool) -> Text:
    return Text(words, style="green" if good else "yellow")


def _installed(shown: HealthDocument, there: Installation) -> Text:
    namespace = there.namespace
    if not shown.installed:
        words = f"no: {INSTALL_CRD} installs the CRD, docs/deployment.md the rest"
        return Text(words, style="yellow")
    if shown.leader == NEVER_LED:
        words = f"partly: no rebalancer has led in namespace {namespace} (-n names another one)"
        return Text(words, style="yellow")
    return Text(f"yes, in namespace {namespace}", style="green")


def _mode(shown: HealthDocument, there: Installation) -> Text:
    if there.guessed and shown.leader.endswith(" leads"):
        return _judged("unknown: the configuration of the rebalancer cannot be read", good=False)
    acts = "moves pods" if shown.acts else "plans, and moves nothing"
    return Text(f"{shown.mode}: {acts}")


def _paused(shown: HealthDocument) -> Text:
    pause = shown.pause
    if pause is None and shown.pause_unknown:
        return _judged(f"unknown: {shown.pause_unknown}", good=False)
    if pause is None:
        return Text("no")
    why = f": {pause.why}" if pause.why else ""
    until = f", for another {duration(pause.until_s - shown.at_s)}" if pause.until_s else ""
    ended = "" if pause.by == CONFIGURED else " (evenkeel resume)"
    return Text(f"yes, by {pause.by or 'someone'}{why}{until}{ended}", style="yellow")


def _extender(row: ExtenderRow, now_s: float) -> Text:
    seen = duration(now_s - row.reported_s)
    behind = f", {row.behind} Migrations behind" if row.behind else ""
    called = f", called by {', '.join(row.schedulers)}" if row.schedulers else ", never called"
    trouble = f"; {row.words}" if row.words else ""
    text = f"{row.name}: reported {seen} ago{called}{behind}{trouble}"
    return _judged(text, good=not row.words and not row.behind)


def _breaker(row: BreakerRow) -> Text:
    cause = f": {row.cause}" if row.cause else ""
    return _judged(f"{row.state} for {row.purpose}{cause}", good=row.state == "closed")


def _metrics(shown: HealthDocument) -> Text:
    known = shown.nodes - shown.nodes_unknown
    age = f", {duration(shown.metrics_age_s)} old" if shown.metrics_age_s is not None else ""
    trouble = f"; {shown.trouble}" if shown.trouble else ""
    text = f"{shown.source}{age}; the load of {known} of {shown.nodes} nodes is known{trouble}"
    return _judged(text, good=known == shown.nodes and not shown.trouble)


def _moves(shown: HealthDocument) -> Text:
    landed = f", {shown.as_planned} of {shown.replaced} landed as planned" if shown.replaced else ""
    return Text(f"{shown.open_moves} under way, {shown.finished_moves} finished{landed}")


def _last_plan(shown: HealthDocument) -> Text:
    if shown.last_plan_s is None:
        return Text("no plan has moved a pod yet, or its moves are forgotten (keepFinished)")
    return Text(f"the last that moved a pod: {duration(shown.at_s - shown.last_plan_s)} ago")
