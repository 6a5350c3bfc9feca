# SPDX-License-Identifier: Apache-2.0
"""`evenkeel drain`: what emptying nodes would move and leave, and emptying them.

Without `--preview` it sets the maintenance label, which the rebalancer acts on, and follows what
happens. Ctrl-C leaves the label: the drain goes on, and the command that ends it is printed.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterable, Sequence

import click
import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from common.api.contract import MAINTENANCE_LABEL, MAINTENANCE_PROGRESS, under_maintenance
from common.api.migrations import Purpose
from common.cache.snapshot import NodeView, Snapshot
from common.cluster.records import NodeName
from common.config import Mode, RebalancerConfiguration, Strategy
from common.kube.api import KubeApi
from common.kube.errors import Forbidden, NotFound
from common.kube.resources import NODES
from common.load import Belief
from common.visible import visible
from evenkeel.completion import complete_nodes
from evenkeel.errors import MissingPermission, NotThere, Refused, UsageError, near
from evenkeel.output import emit
from evenkeel.session import Session, connected, reading
from evenkeel.shell import Call, command, program_name
from rebalancer.evictability import Context, judge
from rebalancer.inspection import Inspection
from rebalancer.inspection.words import counted, shown_percent
from rebalancer.planner import Plan
from rebalancer.report import document, render
from rebalancer.rules import ClusterRules

_POLL_S = 1.0
_SOON_S = 0.1
_SEEN_S = 10.0


@click.command("drain", short_help="What emptying nodes would move and leave; and emptying them.")
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True, shell_complete=complete_nodes)
@click.option("--preview", is_flag=True, help="Show what would happen; change nothing.")
@click.option("--cancel", is_flag=True, help="Take the label off again.")
@command
async def drain_command(call: Call, nodes: tuple[str, ...], *, preview: bool, cancel: bool) -> None:
    """Empty nodes without interrupting service, or show what that would do.

    Sets the label scheduler.alpha.kubernetes.io/maintenance=true and follows the drain. Ctrl-C
    stops following; the label stays.
    """
    if preview and cancel:
        raise UsageError("--preview and --cancel contradict each other")
    if cancel:
        await _cancel(call, nodes)
    elif preview:
        await _preview(call, nodes)
    else:
        await _drain(call, nodes)


async def _cancel(call: Call, nodes: Sequence[str]) -> None:
    async with connected(call.target, clock=call.clock) as client:
        for name in nodes:
            await set_label(client, name, None)
    words = f"The label is off: {', '.join(map(visible, nodes))}."
    emit("Drain", {"nodes": list(nodes), "canceled": True}, call.output, lambda: Text(words))


async def set_label(client: KubeApi, node: str, value: str | None) -> None:
    """Set the maintenance label of a node, or take it off."""
    try:
        body = {"metadata": {"labels": {MAINTENANCE_LABEL: value}}}
        await client.patch(NODES, body, name=node)
    except NotFound:
        raise NotThere("node", node) from None
    except Forbidden:
        raise MissingPermission([f"patch nodes ({visible(node)})"], grants="") from None


async def _preview(call: Call, nodes: Sequence[str]) -> None:
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        belief = await session.look()
        _require(belief.snapshot, nodes)
        with call.progress.waiting("Planning …"):
            asked = await asyncio.to_thread(emptied, belief, session.config, call, nodes)
        idle = why_nothing_acts(session, nodes)
    plan = _foreseen(asked.plan, nodes)
    emit(
        "Drain",
        msgspec.to_builtins(document(plan)) | {"peak": peak(plan, nodes), "whyNot": idle},
        call.output,
        lambda: _page(plan, nodes, idle),
    )


def emptied(
    belief: Belief, config: RebalancerConfiguration, call: Call, nodes: Sequence[str]
) -> Inspection:
    """Return the plan that the label on these nodes would lead to, and nothing else."""
    labeled = {name: _labeled(belief.snapshot.nodes[NodeName(name)]) for name in nodes}
    known: dict[NodeName, NodeView] = dict(belief.snapshot.nodes)
    known.update({NodeName(name): view for name, view in labeled.items()})
    snapshot = msgspec.structs.replace(belief.snapshot, nodes=known)
    # As if it were to happen: what keeps it from happening is told beside the plan.
    only = config.model_copy(
        update={
            "enabled_strategies": (Strategy.NODE_MAINTENANCE,),
            "mode": Mode.ACT,
            "modes": {},
            "paused": False,
            "pools": tuple(
                pool.model_copy(update={"enabled_strategies": None, "modes": {}})
                for pool in config.pools
            ),
            "maintenance": config.maintenance.model_copy(update={"schedule": ()}),
        }
    )
    asked = Inspection(belief._replace(snapshot=snapshot), only, call.clock.now())
    assert asked.plan is not None
    return asked


def _foreseen(plan: Plan, nodes: Sequence[str]) -> Plan:
    """Say of moves what they are for: no node of the preview is under maintenance yet."""
    moves = [
        msgspec.structs.replace(move, message=f"{move.source} is to be emptied")
        if move.source in nodes
        else move
        for move in plan.moves
    ]
    return msgspec.structs.replace(plan, moves=tuple(moves))


def _labeled(view: NodeView) -> NodeView:
    labels = {**view.node.labels, MAINTENANCE_LABEL: "true"}
    node = msgspec.structs.replace(view.node, labels=labels)
    return msgspec.structs.replace(view, node=node)


def _require(snapshot: Snapshot, nodes: Iterable[str]) -> None:
    for name in nodes:
        if NodeName(name) not in snapshot.nodes:
            known = [str(each) for each in snapshot.nodes]
            raise NotThere("node", name, near(name, known))


def peak(plan: Plan, nodes: Sequence[str]) -> dict[str, object]:
    """Return the fullest of the other nodes after the drain."""
    others = [n for n in plan.nodes if n.name not in nodes and not n.unknown]
    known = [n for n in others if n.after.cpu == n.after.cpu]
    if not known:
        return {"node": None, "cpu": None, "memory": None}
    most = max(known, key=lambda n: max(n.after.cpu, n.after.memory))
    return {
        "node": most.name,
        "cpu": round(most.after.cpu, 1),
        "memory": round(most.after.memory, 1),
    }


def _page(plan: Plan, nodes: Sequence[str], idle: str) -> RenderableType:
    leaving = [move for move in plan.moves if move.source in nodes]
    others = len(plan.moves) - len(leaving)
    room = f" and {counted(others, 'pod')} elsewhere, to make room" if others else ""
    stay = [refused for refused in plan.refused if refused.node in nodes]
    found = peak(plan, nodes)
    cpu = shown_percent(found["cpu"] if isinstance(found["cpu"], float) else None)
    lines = [
        Text(f"Would move {counted(len(leaving), 'pod')}{room}; {len(stay)} stay.", style="bold"),
        Text(f"Fullest of the other nodes afterwards: {found['node'] or 'unknown'}, {cpu} CPU."),
    ]
    if idle:
        lines.append(Text(f"Without --preview nothing would happen now: {idle}.", style="yellow"))
    return Group(*lines, Text(), render(plan))


async def _drain(call: Call, nodes: Sequence[str]) -> None:
    progress = call.progress
    async with reading(call.target, clock=call.clock, progress=progress, usage=False) as session:
        _require(session.observer.reader.state.snapshot(), nodes)
        if idle := why_nothing_acts(session, nodes):
            raise Refused(f"nothing would act on the label: {idle}")
        for name in nodes:
            await set_label(session.client, name, "true")
        progress.say(f"Draining {', '.join(nodes)}.")
        try:
            await _follow(session, call, nodes)
        except asyncio.CancelledError:
            progress.say(f"The label stays, and the drain goes on. To end it: {_undo(nodes)}")
            raise
    words = f"Done. To let pods come back: {_undo(nodes)}"
    emit("Drain", {"nodes": list(nodes), "done": True}, call.output, lambda: Text(visible(words)))


def _undo(nodes: Sequence[str]) -> str:
    return f"{program_name()} drain {' '.join(map(shlex.quote, nodes))} --cancel"


def why_nothing_acts(session: Session, nodes: Sequence[str]) -> str:
    """Return why nothing would act on the label now; empty if a rebalancer does."""
    for obstacle in session.obstacles():
        return obstacle
    snapshot, strategy = session.observer.reader.state.snapshot(), Strategy.NODE_MAINTENANCE
    rules = ClusterRules(session.config, snapshot, session.clock.now())
    for name in map(NodeName, nodes):
        if (off := rules.strategy_off(strategy, name, "")) is not None:
            return f"{off.message}{session.installation.guessed}"
        if (idle := rules.observed(strategy, name, "")) is not None:
            return f"{idle.message} (mode){session.installation.guessed}"
    return ""


async def _follow(session: Session, call: Call, nodes: Sequence[str]) -> None:
    """Print how far each node is, until nothing is left that may be moved."""
    await _label_seen(session, call, nodes)
    shown: dict[str, str] = {}
    state = session.observer.reader.state
    while True:
        snapshot = state.snapshot()
        for name in nodes:
            view = snapshot.nodes.get(NodeName(name))
            if view is None or not under_maintenance(view.node.labels):
                raise Refused(f"{visible(name)} is gone, or its label was taken off")
            text = view.node.annotations.get(MAINTENANCE_PROGRESS, "waiting for the rebalancer")
            if shown.get(name) != text:
                shown[name] = text
                print(f"{visible(name)}: {visible(text)}", file=sys.stderr, flush=True)
        if is_done(snapshot, session.config, nodes, call.clock.now()):
            return
        await call.clock.sleep(_POLL_S)


async def _label_seen(session: Session, call: Call, nodes: Sequence[str]) -> None:
    """Wait until the watch shows the labels that were just set, or long enough."""
    left_s = _SEEN_S
    while left_s > 0:
        known = session.observer.reader.state.snapshot().nodes
        views = [known.get(NodeName(name)) for name in nodes]
        if all(view is not None and under_maintenance(view.node.labels) for view in views):
            return
        await call.clock.sleep(_SOON_S)
        left_s -= _SOON_S


def is_done(
    snapshot: Snapshot, config: RebalancerConfiguration, nodes: Sequence[str], now_s: float
) -> bool:
    """Tell whether the rebalancer has taken up the nodes and only pods are left that stay."""
    context = Context.of(snapshot, config, now_s=now_s, purpose=Purpose.MAINTENANCE)
    views = [snapshot.nodes[NodeName(name)] for name in nodes]
    taken_up = all(MAINTENANCE_PROGRESS in view.node.annotations for view in views)
    pods = [pod for view in views for pod in view.pods.values() if not pod.terminating]
    moving = {m.source for m in snapshot.migrations.values() if m.open}.intersection(nodes)
    return (
        taken_up
        and not moving
        and all(any(r.permanent for r in judge(pod, context)) for pod in pods)
    )
