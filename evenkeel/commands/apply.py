# SPDX-License-Identifier: Apache-2.0
"""`evenkeel apply F`: carries out a plan that was reviewed, if it still holds.

The plan is validated exactly as the loop validates its own before it acts, on the cluster as it is
now. It is carried out whole or not at all: if a pod, a source, a target, fit or a goal has changed,
everything that changed is named and nothing is created. The migration controller applies all gates
and limits to every Migration anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import click
from rich.console import Group, RenderableType
from rich.text import Text

from common.api.migrations import Outcome, Phase, migration_name
from common.clock import Clock
from common.cluster.migrations import MigrationRecord
from common.kube.resources import MIGRATIONS
from common.load import Belief
from common.metrics import Metrics
from common.visible import visible
from evenkeel.commands.moves import moves_grid
from evenkeel.errors import MissingPermission, Refused
from evenkeel.output import emit
from evenkeel.planfile import PlanFile, moves_of, read_plan_file
from evenkeel.session import Session, may, reading
from evenkeel.shell import Call, command
from rebalancer.decision import Decider
from rebalancer.inspection import migration_row
from rebalancer.inspection.words import counted
from rebalancer.launcher import predicted_use, spec_of
from rebalancer.planner.plan import Chain, Move
from rebalancer.planner.validation import Revalidated
from rebalancer.rules import ClusterRules
from rebalancer.selection import chains_of, not_migrating
from rebalancer.store import CreateResult, MigrationStore

_SEEN_S = 30.0
"""Within this time the watch shows what was created."""


@click.command("apply", short_help="Carry out a reviewed plan.")
@click.argument("file", metavar="F", type=click.Path())
@click.option("--wait", is_flag=True, help="Wait until all moves are over.")
@command
async def apply_command(call: Call, file: str, *, wait: bool) -> int | None:
    """Create the Migrations of a plan that `evenkeel plan --file F` wrote.

    Needs permission to create Migrations, which equals the permission to evict.
    """
    plan = read_plan_file(file, call.progress.say)
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        chains = chains_of(move for move in moves_of(plan) if move.this_cycle)
        if reasons := list(_obstacles(session, plan, chains)):
            raise Refused(f"not applied: {'; '.join(reasons)}")
        if not await may(session.client, "create", MIGRATIONS):
            raise MissingPermission(["create migrations.evenkeel.io"], grants="")
        belief = await session.look()
        with call.progress.waiting("Validating the plan …"):
            held = await asyncio.to_thread(validated, session, belief, chains, call.clock)
        if drift := list(_drift(chains, held)):
            raise Refused(f"not applied, because the cluster has changed: {'; '.join(drift)}")
        names = await _create(session, plan, held, belief)
        call.progress.say(_said(plan, names))
        records = await _followed(session, names, call) if wait else _known(session, names)
    rows = tuple(migration_row(record) for record in records)
    answer = {"planId": plan.plan_id, "created": len(names), "rows": rows}
    emit("Applied", answer, call.output, lambda: _page(records, call))
    return 3 if wait and any(_went_wrong(record) for record in records) else None


def _obstacles(session: Session, plan: PlanFile, chains: Sequence[Chain]) -> Iterator[str]:
    """Yield what keeps any plan from being carried out now."""
    yield from session.obstacles()
    if not session.installation.crd:
        return
    moves = [move for chain in chains for move in chain]
    yield from _rules_against(session, moves)
    if not moves:
        yield "the plan has no move for this cycle"
    if plan.cluster != session.client.server:
        yield f"the plan is of another cluster ({visible(plan.cluster)})"


def _rules_against(session: Session, moves: Sequence[Move]) -> Iterator[str]:
    """Yield what modes and schedules have against moves, by the rules for each of them."""
    snapshot = session.observer.reader.state.snapshot()
    rules = ClusterRules(session.config, snapshot, session.clock.now())
    found, guessed = set(), session.installation.guessed
    for move in moves:
        strategy, source, namespace = move.strategy, move.source, move.pod.partition("/")[0]
        if (off := rules.strategy_off(strategy, source, move.reason)) is not None:
            found.add(f"{off.message}{guessed}")
        elif (idle := rules.observed(strategy, source, namespace)) is not None:
            found.add(f"{idle.message} (mode){guessed}")
        elif (closed := rules.closed(strategy, source, namespace)) is not None:
            found.add(f"{strategy} waits: {closed.message}")
    yield from sorted(found)


def validated(
    session: Session, belief: Belief, chains: Sequence[Chain], clock: Clock
) -> Revalidated:
    """Validate chains on the cluster as it is now, as the loop does."""
    config, now_s = session.config, clock.now()
    known = belief.snapshot.migrations
    objections = (not_migrating(known, config, now_s),)
    return Decider(config).revalidate(chains, belief, now_s, objections)


def _drift(chains: Sequence[Chain], held: Revalidated) -> Iterator[str]:
    """Yield what has changed since the plan was made."""
    for dropped in held.dropped:
        names = ", ".join(visible(move.pod) for move in dropped.moves)
        yield f"{names}: {dropped.why.message} ({dropped.why.name})"
    now = {move.uid: move for chain in held.chains for move in chain}
    for move in (move for chain in chains for move in chain):
        found = now.get(move.uid)
        if found is not None and found.target != move.target:
            yield f"{visible(move.pod)}: no longer fits {visible(move.target)}"


async def _create(session: Session, plan: PlanFile, held: Revalidated, belief: Belief) -> list[str]:
    state, clock = session.observer.reader.state, session.clock
    store = MigrationStore(session.client, state, clock=clock, metrics=Metrics("apply"))
    names: list[str] = []
    for move in (move for chain in held.chains for move in chain):
        created = await _create_one(store, session, plan, move, belief, held)
        if created is not CreateResult.CREATED:
            done = f"; {counted(len(names), 'Migration')} created before" if names else ""
            raise Refused(f"{visible(move.pod)}: its Migration was not created{done}")
        names.append(migration_name(move.uid))
    return names


async def _create_one(
    store: MigrationStore,
    session: Session,
    plan: PlanFile,
    move: Move,
    belief: Belief,
    held: Revalidated,
) -> CreateResult:
    spec = spec_of(move, plan.plan_id, belief, session.config, session.clock.now())
    if spec is None:
        return CreateResult.FAILED
    before = belief.snapshot.migrations.get(migration_name(move.uid))
    return (await store.create(spec, predicted_use(move, held.after), before)).result


def _said(plan: PlanFile, names: Sequence[str]) -> str:
    later = sum(not move.this_cycle for move in plan.moves)
    rest = f"; {later} later moves of the plan need a new plan" if later else ""
    return f"Created {counted(len(names), 'Migration')} of {plan.plan_id}{rest}."


def _known(session: Session, names: Sequence[str]) -> list[MigrationRecord]:
    known = session.known()
    return [known[name] for name in names if name in known]


async def _followed(session: Session, names: Sequence[str], call: Call) -> list[MigrationRecord]:
    """Wait until all Migrations are over; show what each comes to."""
    changed = asyncio.Event()
    session.observer.reader.state.migrations.listen(lambda _old, _new: changed.set())
    end_s = call.clock.monotonic() + _SEEN_S
    while True:
        changed.clear()
        found = _known(session, names)
        over = [record for record in found if not record.open]
        waited = call.clock.monotonic() > end_s
        if len(over) == len(names) or (waited and len(found) < len(names)):
            return found
        call.progress.say(f"{len(over)} of {len(names)} moves are over.")
        await changed.wait()


def _went_wrong(record: MigrationRecord) -> bool:
    bad = (Outcome.BACK_ON_SOURCE, Outcome.UNGUIDED)
    return record.phase == Phase.FAILED or record.outcome in bad


def _page(records: Sequence[MigrationRecord], call: Call) -> RenderableType:
    if not records:
        return Text("evenkeel migrations shows how it goes on.")
    grid = moves_grid(map(migration_row, records), call.clock.now(), wide=call.output.wide)
    return Group(grid)
